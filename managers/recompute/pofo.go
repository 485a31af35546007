package recompute

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/curve"
	"github.com/gmemtop/gmemtop/traces"
)

// Recomputation and offloading together on a chain.
//
// Problem: rotor leaves the link idle, and a manager that only swaps uses nothing but the link: in one
// forward pass it can copy out only a part of what must leave. Compute and link are two resources, and the
// best plan uses both.
//
// Approach: the program of Beaumont, Eyraud-Dubois, Shilova, "Efficient Combination of Rematerialization and
// Offloading for Training DNNs", NeurIPS 2021 (POFO), in our reading. In the forward pass each result that is
// held, and the inside of a stage that is held as a whole, either stays in memory or goes to the host. Later
// reruns are rotor's, C(s, t, m). Let P(s, away, b, m) be the least time added by the stages from s on, with
// m bytes left for them, the input of s on the host or not, and copies out of b still to be made when s
// begins. Then
//
//	P(s, away, b, m) = least over j of
//	    P(j+1, no,  b - forward(s..j),             m - result of j) + C(s, j, m - copies - input)
//	    P(j+1, yes, b - forward(s..j) + copy of j, m)               + C(s, j, m - copies - input)
//	  and over the ways to hold stage s as a whole, inside and result each in memory or on the host,
//	  and  wait + P(s, away, b - wait, m)
//
// where copies are the bytes of b, which are still in memory, and the input counts if it is away, because its
// stage needs it back. A copy hides behind compute as long as the rest of b fits into memory; otherwise it
// costs the wait. The backward pass is taken for a mirror image of the forward pass: copies back are made in
// the opposite order, and compute has more time for them there, so they cause no longer waits.
//
// Release and fetch follow from the times at which copies end and must begin, as far as memory allows. The
// result is estimated with both lanes of the link. Of the program's budgets, we take the one whose plan meets
// the real budget and has the least estimated time.
//
// Our reading, and what differs from the paper: we had its abstract and not its text, so the state above is
// ours. The paper claims optimal sequences; ours counts time and memory in steps, and claims nothing. Copies
// that a slow link cannot finish before the turn are counted as if they could continue. Stages are those of
// rotor. Without copy engines nothing is offloaded.
//
// Complexity: rotor's, and O(stages^2 x steps of time x units). Rejected: a price per nanosecond of copying
// in place of b, which hides where along the way the link is short.
type pofo struct{}

// Info implements [plan.Manager].
func (pofo) Info() plan.Info {
	return plan.Info{Name: "pofo", After: "Beaumont 2021", Family: plan.Combining, Needs: traces.Dataflow,
		Reading: "the paper's program is written from its abstract: the state of copies under way is ours, " +
			"and copies back are taken for a mirror of the copies out.",
		Summary: "Chooses by dynamic programming which results of a chain of stages stay, which go to the " +
			"host and which are recomputed."}
}

// Plan implements [plan.Manager]. Request.Work bounds the steps of the dynamic programs.
func (m pofo) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	pl, stages, err := staged(ctx, p, r, m.Info(), func(c *chains) decider {
		return (&offloads{p: p, chains: c}).decide
	})
	if err == nil && r.Budget > 0 {
		pl.Note("%d stages.", stages)
	}
	return pl, err
}

// offloads are the chains of an iteration whose results may go to the host.
type offloads struct {
	p *plan.Problem
	*chains
}

// offload is an activation that goes to the host.
type offload struct {
	plan.Gap
	bytes, out, in int64     // size and times of its copies
	due            plan.OpID // where it must be back: before its gap ends if reruns need it
}

// decide returns the decisions with the least time within the limit on live bytes, as far as the program and
// the estimate can tell, or those with the least memory.
func (o *offloads) decide(ctx context.Context, limit int64) (plan.Decisions, int64, error) {
	if limit <= 0 {
		return plan.Decisions{}, 0, nil
	}
	var work int64
	programs := make([]*offloadProgram, len(o.passes))
	top := 0
	for k, s := range o.passes {
		g := newOffloadProgram(o.p, o.b, s, limit, o.work)
		if err := g.solve(ctx); err != nil {
			return plan.Decisions{}, work, err
		}
		programs[k] = g
		work += g.work
		top = max(top, g.top)
	}
	best := tightest(ctx, top, limit, func(less int) attempt {
		var drops []chain.Drop
		var outs []offload
		for _, g := range programs {
			d, s := g.decisions(g.top - less)
			drops, outs = append(drops, d...), append(outs, s...)
		}
		a := o.realize(drops, outs, limit)
		work += int64(len(a.Absences))
		return a
	})
	return best.Decisions, work, ctx.Err()
}

// realizations bounds how often decisions are recomputed because reruns and stalls move their copies.
const realizations = 4

// realize gives what leaves its positions, within a limit.
func (o *offloads) realize(drops []chain.Drop, outs []offload, limit int64) attempt {
	slices.SortStableFunc(outs, func(x, y offload) int { return cmp.Compare(x.due, y.due) })
	reach, _ := o.estimate(nil, nil, nil)
	best := attempt{peak: math.MaxInt64, time: math.MaxInt64}
	for room, k := limit, 0; k < realizations; k++ {
		swaps := o.positions(drops, outs, reach, room)
		r, _ := o.b.PlanPossible(drops, swaps, o.mostOps)
		a := attempt{Decisions: plan.Decisions{Absences: append(swaps, r.Absences...), Reruns: r.Reruns}}
		a.peak = o.b.PeakLive(a.Absences, a.Reruns)
		reach, a.time = o.estimate(outs, swaps, r.Reruns)
		if a.better(&best, limit) {
			best = a
		}
		if a.peak > limit { // scratch of chains
			room -= a.peak - limit
		} else if k > 0 || len(outs) == 0 {
			break
		}
	}
	return best
}

// positions returns the absences of what goes to the host: released when its copy out is done and fetched as
// late as its copy back allows, or sooner and later where more would be in memory than the limit allows.
func (o *offloads) positions(drops []chain.Drop, outs []offload, reach []int64, limit int64) []plan.Absence {
	tree := curve.New(o.p.Load())
	for i := range drops {
		d := &drops[i]
		tree.Add(int(d.After)+1, int(max(d.Fetch, d.After+1)), -o.p.Rounded(d.Buffer))
	}
	swaps := make([]plan.Absence, len(outs))
	order := make([]int, len(outs))
	for i := range outs {
		x := &outs[i]
		tree.Add(int(x.After)+1, int(x.due), -x.bytes)
		swaps[i] = plan.Absence{Buffer: x.Buffer, After: x.After, Before: x.Before, Release: x.After + 1,
			Fetch: x.due, How: plan.Swap, Paced: true, Why: "held on the host"}
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(outs[i].After, outs[j].After) })
	var free int64
	for _, i := range order { // in the order in which the copies out are made
		x, s := &outs[i], &swaps[i]
		free = max(free, reach[x.After+1]) + x.out
		to, _ := slices.BinarySearch(reach[:x.due], free)
		if at := tree.First(int(s.Release), to, limit-x.bytes); at >= 0 {
			to = at
		}
		if to > int(s.Release) {
			tree.Add(int(s.Release), to, x.bytes)
			s.Release = plan.OpID(to)
		}
	}
	begin := make([]int64, len(outs)) // of the copies back, at the latest
	due := int64(math.MaxInt64)
	for i := len(outs) - 1; i >= 0; i-- {
		due = min(due, reach[outs[i].due]) - outs[i].in
		begin[i] = due
	}
	last := plan.OpID(0)
	for i := range outs { // in the order in which they are due
		x, s := &outs[i], &swaps[i]
		from, at := slices.BinarySearch(reach, begin[i])
		if !at {
			from--
		}
		from = max(from, int(s.Release), int(last))
		if from < int(x.due) {
			if at := tree.Last(from, int(x.due), limit-x.bytes); at >= 0 {
				from = at + 1
			}
			tree.Add(from, int(x.due), x.bytes)
			s.Fetch = plan.OpID(from)
		}
		last = s.Fetch
	}
	return swaps
}

// estimate returns when compute reaches each position, and the end: ops on one stream, reruns before their
// ops, and one lane each way for copies. A release waits for its copy out, and an op that needs a value for
// its copy back.
func (o *offloads) estimate(outs []offload, swaps []plan.Absence, reruns []plan.Rerun) ([]int64, int64) {
	n := len(o.p.Ops)
	reach := make([]int64, n+1)
	again := make([]int64, n+1)
	for i := range reruns {
		again[reruns[i].Before] = o.b.TimeOf(reruns[i : i+1])
	}
	type event struct {
		at   plan.OpID
		kind int8 // in this order at one position: fetched, released, needed, written
		i    int
	}
	var events []event
	for i := range swaps {
		events = append(events, event{swaps[i].Fetch, 0, i}, event{swaps[i].Release, 1, i},
			event{outs[i].due, 2, i}, event{swaps[i].After, 3, i})
	}
	slices.SortFunc(events, func(x, y event) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.kind, y.kind), cmp.Compare(x.i, y.i))
	})
	var now, outFree, inFree int64
	done, back := make([]int64, len(outs)), make([]int64, len(outs))
	for x := range n {
		for ; len(events) > 0 && int(events[0].at) == x && events[0].kind < 3; events = events[1:] {
			switch i := events[0].i; events[0].kind {
			case 0:
				inFree = max(inFree, now, done[i]) + outs[i].in
				back[i] = inFree
			case 1:
				now = max(now, done[i])
			case 2:
				now = max(now, back[i])
			}
		}
		reach[x] = now
		now += again[x] + o.b.OpTime(plan.OpID(x))
		for ; len(events) > 0 && int(events[0].at) == x; events = events[1:] {
			outFree = max(outFree, now) + outs[events[0].i].out
			done[events[0].i] = outFree
		}
	}
	reach[n] = now
	return reach, now
}
