package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// checkpoint is a part of an iteration that the program itself checkpoints: its forward pass keeps only the
// inputs, and is rerun in the backward pass.
type checkpoint struct {
	Module string // the innermost module that holds all of it, "" for none
	// Forward and Last are its first and last op in the forward pass, and [First, End) are the positions in
	// the backward pass at which it is rerun.
	Forward, Last, First, End plan.OpID
	// Time is the duration of the rerun, in nanoseconds. Bytes is what it produces for the backward pass;
	// without the checkpoint this would be kept from Last on.
	Time, Bytes int64
}

// checkpointsOf returns the parts that the program checkpoints, in the order of their reruns. Parts whose
// forward pass is not in the iteration are left out.
//
// A part is a run of rerun ops without an op of the backward pass between them. Its forward pass is found by
// its first op: the last earlier op of that name and module with which no other part begins, since backward
// passes run in the opposite order. Both read what came into the part.
func checkpointsOf(p *plan.Problem) []checkpoint {
	var all []checkpoint
	begun := map[plan.OpID]bool{}
	for i := 0; i < len(p.Ops); {
		if !p.Ops[i].Again {
			i++
			continue
		}
		x := checkpoint{First: plan.OpID(i), End: plan.OpID(i) + 1, Forward: -1, Module: p.Ops[i].Module}
		last := x.First // that a module of its own runs: what runs between modules has no name here
		for ; i < len(p.Ops) && (p.Ops[i].Again || between(&p.Ops[i])); i++ {
			if !p.Ops[i].Again {
				continue
			}
			if x.End = plan.OpID(i) + 1; p.Ops[i].Module != "" {
				last, x.Module = plan.OpID(i), commonModule(x.Module, p.Ops[i].Module)
			}
		}
		for k := x.First - 1; k >= 0 && x.Forward < 0; k-- {
			if runsAgain(&p.Ops[k], &p.Ops[x.First]) && !begun[k] {
				x.Forward, begun[k] = k, true
			}
		}
		if x.Forward < 0 {
			continue
		}
		x.Last = x.Forward
		for k := x.Forward; k < x.First; k++ {
			if runsAgain(&p.Ops[k], &p.Ops[last]) {
				x.Last = k
				break
			}
		}
		if !rereads(p, &x) {
			continue
		}
		for k := x.First; k < x.End; k++ {
			x.Time += p.Ops[k].Duration + p.Ops[k].Gap
		}
		for b := range p.Buffers {
			if s := &p.Buffers[b]; s.Life == plan.Inside && x.First <= s.Start && s.Start < x.End &&
				usedFrom(p, plan.BufferID(b), x.End) {
				x.Bytes += p.Rounded(plan.BufferID(b))
			}
		}
		all = append(all, x)
	}
	return all
}

// rereads reports whether a part reads again what its forward pass read, other than parameters: what came
// into it. Where a backward pass runs a module on inputs of its own, as the adjoint of an ODE does, nothing
// is checkpointed, and nothing would be kept instead.
func rereads(p *plan.Problem, x *checkpoint) bool {
	came := map[plan.BufferID]bool{}
	each := func(from, to plan.OpID, f func(b plan.BufferID) bool) bool {
		for k := from; k < to; k++ {
			for _, a := range p.AccessesOf(k) {
				if a.Mode.Reads() && p.Buffers[a.Buffer].Category != timeline.Parameter && f(a.Buffer) {
					return true
				}
			}
		}
		return false
	}
	each(x.Forward, x.Last+1, func(b plan.BufferID) bool {
		if p.Buffers[b].Life != plan.Inside || p.Buffers[b].Start < x.Forward {
			came[b] = true
		}
		return false
	})
	return each(x.First, x.End, func(b plan.BufferID) bool { return came[b] })
}

// between reports whether an op does no work on the device.
func between(o *plan.Op) bool {
	return o.Recorded == 0 && (o.Name == plan.HostOp || o.Name == "free") ||
		o.Name == plan.SaveOp || o.Name == plan.LoadOp
}

// runsAgain reports whether again is a rerun of the forward op o.
func runsAgain(o, again *plan.Op) bool {
	return o.Phase == traces.PhaseForward && o.Name == again.Name && o.Module == again.Module
}

// usedFrom reports whether an op at or after this position touches a buffer.
func usedFrom(p *plan.Problem, b plan.BufferID, at plan.OpID) bool {
	t := p.TouchesOf(b)
	return len(t) > 0 && t[len(t)-1].Op >= at
}

// commonModule returns the innermost module that holds two modules.
func commonModule(a, b string) string {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return strings.Join(x[:n], ".")
}

// heldWithout returns the peak bytes of an iteration without some of its checkpoints.
func heldWithout(p *plan.Problem, some []checkpoint) int64 {
	load := p.Load()
	delta := make([]int64, len(load)+1)
	for _, x := range some {
		delta[x.Last+1] += x.Bytes
		delta[x.First] -= x.Bytes
	}
	var peak, more int64
	for i, held := range load {
		more += delta[i]
		peak = max(peak, held+more)
	}
	return peak + p.Outside
}

// needless returns the checkpoints that an iteration does not need within the budget, in bytes: the last ones
// of the forward pass first, since their results are kept for the shortest time.
func needless(p *plan.Problem, all []checkpoint, budget int64) []checkpoint {
	var some []checkpoint
	for _, x := range slices.SortedStableFunc(slices.Values(all), func(a, b checkpoint) int {
		return int(b.Forward) - int(a.Forward)
	}) {
		if heldWithout(p, append(some, x)) <= budget {
			some = append(some, x)
		}
	}
	return some
}

// checkpointNotes says what the program's own checkpoints cost and save, and how many of them a budget makes
// unnecessary. It returns none if the program has no checkpoints. A budget of 0 stands for what the iteration
// holds.
func checkpointNotes(p *plan.Problem, budget int64, u timeline.Units) []string {
	all := checkpointsOf(p)
	if len(all) == 0 {
		return nil
	}
	var step int64
	for i := range p.Ops {
		step += p.Ops[i].Duration + p.Ops[i].Gap
	}
	share := func(some []checkpoint) (time int64, percent float64) {
		for _, x := range some {
			time += x.Time
		}
		return time, 100 * float64(time) / float64(max(step, 1))
	}
	time, percent := share(all)
	held, without := p.Held(), heldWithout(p, all)
	notes := []string{fmt.Sprintf("the program itself runs %s again in the backward pass, as checkpoints "+
		"or reversible layers do: this takes %s, %.1f %% of a step, and a step holds %s at its peak, where "+
		"it would otherwise hold up to %s",
		parts(len(all)), timeline.Duration(time), percent, u.Bytes(held), u.Bytes(without))}
	if without == held {
		return append(notes, "this does not lower the peak: if these are checkpoints, turn them off")
	}
	budget = max(budget, held)
	some := needless(p, all, budget)
	if len(some) == 0 {
		return notes
	}
	time, percent = share(some)
	where := ""
	if names := modules(some); names != "" {
		where = " (" + names + ")"
	}
	return append(notes, fmt.Sprintf("if these are checkpoints, turn them off for %d of the %d parts%s: a "+
		"step then holds up to %s and is %s (%.1f %%) shorter", len(some), len(all), where,
		u.Bytes(heldWithout(p, some)), timeline.Duration(time), percent))
}

func parts(n int) string {
	if n == 1 {
		return "1 part"
	}
	return fmt.Sprintf("%d parts", n)
}

// mostNamed is how many modules are named in a sentence.
const mostNamed = 3

// modules names the modules of checkpoints, the first ones if there are many.
func modules(some []checkpoint) string {
	var names []string
	for _, x := range some {
		if x.Module != "" && !slices.Contains(names, x.Module) {
			names = append(names, x.Module)
		}
	}
	if len(names) > mostNamed {
		names = append(names[:mostNamed], "...")
	}
	return strings.Join(names, ", ")
}
