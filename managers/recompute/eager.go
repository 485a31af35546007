package recompute

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// What PyTorch can carry out today.
//
// Problem: planners decide tensor by tensor and op by op. Eager PyTorch has hooks on tensors saved for
// backward (copy them out, bring them back) and torch.utils.checkpoint: a region of the forward pass saves
// its inputs and what a policy selects. The first time the backward pass unpacks one of the other tensors,
// the whole region is rerun and all of them are back.
//
// Approach: keep those decisions that this can express, and say what it cannot.
//
//   - Swaps stay if the tensor leaves after a forward pass and returns to the backward pass of that pair, or
//     of a later one ([plan.Problem.EagerRefusal]); they move to the moments at which hooks act (hooks.go).
//   - Dropped tensors are gathered into regions, contiguous ranges of forward ops: the ops that make what one
//     rerun of the decisions brings back. Overlapping ranges form one region. A range within one module
//     becomes that module's range if the module is at most twice as long, runs in one piece and has no
//     other region in it, since checkpoints wrap modules.
//   - A region is rerun once, as a whole, where the first of its dropped tensors is needed. Ops all of whose
//     outputs were saved do not run (selective checkpointing returns what it saved); the others do, in order.
//   - A region's inputs are saved by its checkpoint. So if an input is dropped, either its producer joins the
//     region or the input is kept. It joins as long as the region stays below a quarter of the forward pass
//     or twice what was dropped. A swapped input comes back in time, or stays.
//   - If an op of a region cannot run again (it draws random numbers, for example), only the ops that the
//     dropped tensors need are rerun. The agent can do that; a checkpoint cannot. Tensors that need the op
//     itself are kept.
//   - Whatever is left over is kept in memory.
//
// Our reading: inputs of a region that the recording frees before the backward pass needs them would be kept
// alive by the checkpoint. A plan cannot lengthen a lifetime, so their producers join the region. An output
// of the region that is in memory is overwritten with the bytes it has, while PyTorch would allocate it
// twice.
//
// Complexity: O(regions x (ops of the region + accesses)), because a region is tried again each time it
// grows. Rejected: one region for every layer, whatever was decided: it discards what the planner chose.

// cannotRun is why tensors are kept that need an op which draws random numbers, for example.
const cannotRun = "their region holds an op that cannot run again"

// maxGrowth bounds how often a region grows before its buffers are kept instead.
const maxGrowth = 32

// Eager returns the part of the decisions that eager PyTorch can carry out, with notes about what was lost,
// one sentence each. The plan made from it may be marked [plan.TorchEager]. Its error wraps [plan.ErrInvalid]
// if the decisions do not belong to the problem.
func Eager(p *plan.Problem, d plan.Decisions) (plan.Decisions, []string, error) {
	e := &eager{p: p, b: chain.New(p), pairs: pairs(p), kept: map[string]int{}}
	e.away = e.b.NewSet()
	for i := range d.Absences {
		if x := &d.Absences[i]; x.Buffer < 0 || int(x.Buffer) >= len(p.Buffers) || x.After < 0 ||
			int(x.Before) >= len(p.Ops) || x.Before <= x.After {
			return plan.Decisions{}, nil, fmt.Errorf("%w decisions: absence %d is not of this problem",
				plan.ErrInvalid, i)
		}
	}
	e.sort(&d)
	e.regions(&d)
	out := e.settle()
	for i := range d.Variants {
		if d.Variants[i] != 0 {
			e.notes = append(e.notes, "Eager PyTorch does not let a plan choose the algorithm of an op: "+
				"the recorded ones are taken.")
			break
		}
	}
	reasons := make([]string, 0, len(e.kept))
	for why := range e.kept {
		reasons = append(reasons, why)
	}
	slices.Sort(reasons)
	for _, why := range reasons {
		e.notes = append(e.notes, fmt.Sprintf("%d absences of %d are kept in memory: %s.", e.kept[why],
			len(d.Absences), why))
	}
	return out, e.notes, nil
}

// eager is the state of one conversion.
type eager struct {
	p     *plan.Problem
	b     *chain.Builder
	pairs []plan.Pair
	swaps []plan.Absence
	drops []plan.Absence // at most one a buffer
	all   []region
	away  *chain.Set
	kept  map[string]int
	notes []string
}

// region is a range of forward ops and what it drops.
type region struct {
	lo, hi plan.OpID
	drops  []int32 // in eager.drops
	grown  int
	length int // before it grew
	// sparse says that only the ops run that the dropped tensors need: others in the range cannot run again.
	sparse bool
}

// sort keeps the absences that hooks can express: swaps as they are, drops from the last forward touch on,
// each buffer once.
func (e *eager) sort(d *plan.Decisions) {
	seen := make([]bool, len(e.p.Buffers))
	order := make([]int, len(d.Absences))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(d.Absences[i].After, d.Absences[j].After)
	})
	for _, i := range order {
		x := d.Absences[i]
		turn := plan.PairAt(e.pairs, x.After).Turn
		g := crossing(e.p, x.Buffer, turn)
		switch {
		case x.How == plan.Discard:
			e.kept["a tensor cannot be dropped because it is overwritten next"]++
			continue
		case x.Before < turn || x.After >= turn || g.Before != x.Before:
			e.kept["hooks act between a forward pass and its backward pass only"]++
			continue
		}
		absence := plan.Absence{Buffer: x.Buffer, After: g.After, Before: g.Before}
		if why := e.p.EagerRefusal(absence).Why; why != "" {
			e.kept[why]++
			continue
		}
		if seen[x.Buffer] {
			continue // a second absence: it leaves only once, after the forward pass
		}
		seen[x.Buffer] = true
		if x.How == plan.Swap {
			if !e.hooked(&x) {
				e.kept["hooks would bring them back before they have left"]++
				continue
			}
			e.swaps = append(e.swaps, x)
			continue
		}
		x.After, x.Release = g.After, g.After+1
		e.drops = append(e.drops, x)
	}
	slices.SortStableFunc(e.drops, func(x, y plan.Absence) int {
		return cmp.Compare(e.made(x.Buffer), e.made(y.Buffer))
	})
}

// crossing returns the gap of a buffer around a position: between its last touch before it and its first from
// it on; -1 and -1 if one of them is missing.
func crossing(p *plan.Problem, b plan.BufferID, at plan.OpID) plan.Gap {
	t := p.TouchesOf(b)
	k := plan.FirstTouch(t, at)
	if k == 0 || k == len(t) {
		return plan.Gap{Buffer: b, After: -1, Before: -1}
	}
	return plan.Gap{Buffer: b, After: t[k-1].Op, Before: t[k].Op}
}

// made returns the first op that touches a buffer.
func (e *eager) made(b plan.BufferID) plan.OpID { return e.p.TouchesOf(b)[0].Op }

// regions gathers the drops: those of one rerun together, overlapping ranges joined.
func (e *eager) regions(d *plan.Decisions) {
	type run struct{ fetch, begin plan.OpID } // of one pair: a region is a piece of one forward pass
	byRun := map[run]int{}
	for i := range e.drops {
		x := &e.drops[i]
		ops, ok := e.p.Producer(x.Buffer, x.After+1)
		if !ok {
			e.kept["nobody in the iteration makes them"]++
			x.Buffer = plan.NoBuffer
			continue
		}
		pair := plan.PairAt(e.pairs, ops[0])
		if ops[len(ops)-1] >= pair.Turn {
			e.kept["one forward pass makes them and another changes them"]++
			x.Buffer = plan.NoBuffer
			continue
		}
		key := run{x.Fetch, pair.Begin}
		r, ok := byRun[key]
		if !ok {
			r = len(e.all)
			byRun[key] = r
			e.all = append(e.all, region{lo: ops[0], hi: ops[len(ops)-1] + 1})
		}
		e.all[r].drops = append(e.all[r].drops, int32(i))
		e.all[r].lo, e.all[r].hi = min(e.all[r].lo, ops[0]), max(e.all[r].hi, ops[len(ops)-1]+1)
	}
	e.join()
	for i := range e.all {
		e.module(i)
	}
	e.join()
	for i := range e.all {
		e.all[i].length = int(e.all[i].hi - e.all[i].lo)
	}
}

// join makes one region of those that overlap.
func (e *eager) join() {
	slices.SortStableFunc(e.all, func(x, y region) int { return cmp.Compare(x.lo, y.lo) })
	out := e.all[:0]
	for _, r := range e.all {
		if k := len(out) - 1; k >= 0 && r.lo < out[k].hi {
			out[k].hi = max(out[k].hi, r.hi)
			out[k].drops = append(out[k].drops, r.drops...)
			out[k].grown = max(out[k].grown, r.grown)
			out[k].length += r.length
			out[k].sparse = out[k].sparse || r.sparse
			continue
		}
		out = append(out, r)
	}
	e.all = out
}

// module widens a region to the smallest module around it, if that runs in one piece, is not much longer and
// has no other region in it: two that become one bring all of their tensors back at once.
func (e *eager) module(k int) {
	ops := e.p.Ops
	r := &e.all[k]
	prefix := ops[r.lo].Module
	for i := r.lo + 1; i < r.hi && prefix != ""; i++ {
		for !within(ops[i].Module, prefix) {
			prefix = prefix[:max(strings.LastIndexByte(prefix, '.'), 0)]
			if prefix == "" {
				break
			}
		}
	}
	if prefix == "" {
		return
	}
	lo, hi := r.lo, r.hi
	pair := plan.PairAt(e.pairs, lo)
	for lo > pair.Begin && within(ops[lo-1].Module, prefix) {
		lo--
	}
	for hi < pair.Turn && within(ops[hi].Module, prefix) {
		hi++
	}
	for i := lo; i < hi; i++ {
		if !ops[i].Rerunnable {
			return
		}
	}
	alone := (k == 0 || e.all[k-1].hi <= lo) && (k+1 == len(e.all) || hi <= e.all[k+1].lo)
	if alone && hi-lo <= 2*(r.hi-r.lo) {
		r.lo, r.hi = lo, hi
	}
}

// within reports whether a module path is the prefix or below it.
func within(path, prefix string) bool {
	return strings.HasPrefix(path, prefix) && (len(path) == len(prefix) || path[len(prefix)] == '.')
}

// settle makes the regions run, growing or giving up those that cannot, and returns the decisions.
func (e *eager) settle() plan.Decisions {
	for {
		e.away.Reset()
		for _, x := range e.swaps {
			e.away.Add(x)
		}
		for i := range e.all {
			gone := func(k int32) bool { return e.drops[k].Buffer == plan.NoBuffer }
			e.all[i].drops = slices.DeleteFunc(e.all[i].drops, gone)
			x := e.first(&e.all[i])
			for _, k := range e.all[i].drops {
				e.drops[k].Fetch = x
				e.away.Add(e.drops[k])
			}
		}
		e.all = slices.DeleteFunc(e.all, func(r region) bool { return len(r.drops) == 0 })
		slices.SortStableFunc(e.all, func(x, y region) int { return cmp.Compare(e.first(&x), e.first(&y)) })
		var reruns []plan.Rerun
		changed := false
		for lo := 0; lo < len(e.all); {
			x := e.first(&e.all[lo])
			var ops []plan.OpID
			var wanted []plan.BufferID
			hi := lo
			// Regions that one op needs run in one go.
			for ; hi < len(e.all) && e.first(&e.all[hi]) == x; hi++ {
				o, w := e.chain(&e.all[hi], x)
				ops, wanted = append(ops, o...), append(wanted, w...)
			}
			slices.Sort(ops)
			if _, err := e.b.Verify(x, ops, wanted, e.away); err != nil {
				e.mend(e.all[lo:hi], x, err)
				changed = true
			}
			reruns = append(reruns, plan.Rerun{Before: x, Ops: ops})
			lo = hi
		}
		if !changed {
			return e.decisions(reruns)
		}
		e.join()
	}
}

// first returns where the first of a region's dropped tensors is needed.
func (e *eager) first(r *region) plan.OpID {
	x := plan.OpID(math.MaxInt32)
	for _, k := range r.drops {
		x = min(x, e.drops[k].Before)
	}
	return x
}

// chain returns the ops of a region that are rerun, and the buffers that come back.
func (e *eager) chain(r *region, x plan.OpID) (ops []plan.OpID, wanted []plan.BufferID) {
	for _, k := range r.drops {
		if b := e.drops[k].Buffer; b != plan.NoBuffer { // else kept since another region was processed
			wanted = append(wanted, b)
		}
	}
	for i := r.lo; i < r.hi; i++ {
		saved, writes := true, false
		for _, a := range e.p.AccessesOf(i) {
			if a.Mode.Writes() {
				writes = true
				saved = saved && e.there(a.Buffer, x)
			}
		}
		if writes && !saved {
			ops = append(ops, i)
		}
	}
	if r.sparse {
		ops = e.needed(ops, wanted, x)
	}
	return ops, wanted
}

// there reports whether a buffer is in memory at x.
func (e *eager) there(b plan.BufferID, x plan.OpID) bool {
	buf := &e.p.Buffers[b]
	return (buf.Life != plan.Inside || x > buf.Start && x < buf.End) && !e.away.Away(b, x)
}

// needed returns those ops without which the wanted buffers do not come back at x.
func (e *eager) needed(ops []plan.OpID, wanted []plan.BufferID, x plan.OpID) []plan.OpID {
	want := map[plan.BufferID]bool{}
	for _, b := range wanted {
		want[b] = true
	}
	var out []plan.OpID
	for _, i := range slices.Backward(ops) {
		accesses := e.p.AccessesOf(i)
		if !slices.ContainsFunc(accesses, func(a plan.Access) bool {
			return a.Mode.Writes() && want[a.Buffer]
		}) {
			continue
		}
		out = append(out, i)
		for _, a := range accesses {
			if a.Mode == plan.Write {
				delete(want, a.Buffer)
			}
		}
		for _, a := range accesses {
			if a.Mode.Reads() && !e.there(a.Buffer, x) {
				want[a.Buffer] = true
			}
		}
	}
	slices.Reverse(out)
	return out
}

// decisions returns the remaining decisions.
func (e *eager) decisions(reruns []plan.Rerun) plan.Decisions {
	out := plan.Decisions{Absences: slices.Clone(e.swaps)}
	// Copies back queue up, so what is needed first must come first.
	slices.SortStableFunc(out.Absences, func(x, y plan.Absence) int {
		return cmp.Compare(x.Before, y.Before)
	})
	ops := 0
	for i := range e.all {
		slices.Sort(e.all[i].drops)
		for _, k := range e.all[i].drops {
			out.Absences = append(out.Absences, e.drops[k])
		}
	}
	for _, r := range reruns {
		ops += len(r.Ops)
	}
	out.Reruns = reruns
	whole := " whole"
	if slices.ContainsFunc(e.all, func(r region) bool { return r.sparse }) {
		whole = ""
	}
	if len(reruns) > 0 {
		regions := "1 region of the forward pass runs"
		if n := len(e.all); n != 1 {
			regions = fmt.Sprintf("%d regions of the forward pass run", n)
		}
		e.notes = append(e.notes, fmt.Sprintf("%s again%s, %d ops in all.", regions, whole, ops))
	}
	return out
}
