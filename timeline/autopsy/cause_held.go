package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// What a step returned and a variable of the loop keeps until the next step has returned as well, so that two
// steps' outputs exist at once. The pattern: in earlier rounds, blocks of these lines outlived their round
// and were freed in the next one; those of the last round still exist; and without them the request would be
// served. Look-alikes: a graph that is retained (retainedFault), which includes these blocks and explains
// more; gradients and the optimizer's state, which are meant to stay; what nothing ever frees, which other
// detectors cover. Source: Python evaluates the right side of an assignment before it drops the old value of
// the name.

// leastHeldRounds is how many rounds must have been seen from begin to end.
const leastHeldRounds = 2

func heldFault(c *evidence) (fault, bool) {
	all := c.rounds()
	n := len(all) - 1 // the one under way
	if c.a.State == nil {
		return fault{}, false
	}
	if n < leastHeldRounds {
		return heldOnce(c, all)
	}
	a := &c.d.Allocs
	of := map[traces.StackID]bool{} // stacks that may hold results
	result := func(s traces.StackID) bool {
		is, known := of[s]
		if !known {
			is = s != traces.NoStack && !c.kinds.Of(s).Has(frames.KindBackwardPass|frames.KindStep|
				frames.KindOptimizer|frames.KindModuleInit|frames.KindModuleMove|frames.KindLoad)
			of[s] = is
		}
		return is
	}
	habit := map[traces.StackID]int{}
	for k := 1; k < n; k++ {
		first, end := c.d.AllocsIn(all[k-1].first, all[k].first)
		seen := map[traces.StackID]bool{}
		for id := first; id < end; id++ {
			s := a.Stack[id]
			if r := a.Requested[id]; result(s) && !seen[s] && r >= all[k].first && r < all[k].end &&
				!isKept(a.Category[id]) {
				seen[s] = true
				habit[s]++
			}
		}
	}
	var ids []timeline.AllocID
	first, end := c.d.AllocsIn(all[n-1].first, all[n].first)
	for id := first; id < end; id++ {
		if s := a.Stack[id]; a.Requested[id] > c.a.At && 2*habit[s] >= n-1 && habit[s] > 0 {
			ids = append(ids, id)
		}
	}
	bytes := c.bytesOf(ids)
	f := factsOf(c.d, c.a, c.u)
	if len(ids) == 0 || !f.known || !f.enough(bytes) {
		return fault{}, false
	}
	line := c.topName(c.sitesOf(ids))
	var changes []Change
	for k := 1; k <= n; k++ {
		first, end := c.d.AllocsIn(all[k-1].first, all[k].first)
		for id := first; id < end; id++ {
			to := min(a.Requested[id], timeline.Moment(c.d.Len()))
			if habit[a.Stack[id]] > 0 && to > all[k].first {
				changes = append(changes, Change{id, all[k].first, to, a.Rounded[id]})
			}
		}
	}
	out := fault{Cause: Cause{Kind: "outputs_held", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of the previous step are still there, most from %s; earlier steps freed theirs just as late",
		c.u.Bytes(bytes), line)}}
	out.said = fmt.Sprintf("The loop still holds the last step's outputs while the next step runs: %s, most "+
		"of it from %s.", c.u.Bytes(bytes), line)
	out.fix = "Delete them at the end of each step (del outputs), or let the function that runs a step " +
		"return numbers only."
	out.sure(Certain, "each step's blocks outlive the step and are freed in the next one")
	out.lever = remedy{name: "del_outputs", command: at("del outputs", line), changes: changes}
	return out, true
}

// heldOnce finds the same in the second step, before any habit shows: a call of the model without a graph
// left its outputs beyond the optimizer's step, and the next call is making them again. Look-alikes: a graph,
// which something else keeps; what is computed once and used in every step, which is not made again; outputs
// that are collected, of which the next steps would keep theirs, too.
func heldOnce(c *evidence, all []round) (fault, bool) {
	if len(all) != leastHeldRounds || !all[0].stepped {
		return fault{}, false
	}
	type kind struct {
		stack traces.StackID
		size  int64
	}
	a, again := &c.d.Allocs, map[kind]bool{}
	first, end := c.d.AllocsIn(all[1].first, c.a.At)
	for id := first; id < end; id++ {
		again[kind{a.Stack[id], a.Size[id]}] = true
	}
	var ids []timeline.AllocID
	from := map[traces.StackID]int{}
	first, end = c.d.AllocsIn(all[0].first, all[0].end)
	for id := first; id < end; id++ {
		s := a.Stack[id]
		if a.Requested[id] > c.a.At && c.inModel(s) && c.graphless(id) >= 0 && again[kind{s, a.Size[id]}] {
			ids = append(ids, id)
			from[s]++
		}
	}
	bytes := c.bytesOf(ids)
	f := factsOf(c.d, c.a, c.u)
	if len(ids) == 0 || !f.known || !f.enough(bytes) {
		return fault{}, false
	}
	line, most := c.topName(c.sitesOf(ids)), 0
	for _, n := range from {
		most = max(most, n)
	}
	out := fault{Cause: Cause{Kind: "outputs_held", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of the first step are still there, most from %s, and this step is making them again",
		c.u.Bytes(bytes), nBlocks(len(ids)), line)}}
	out.said = fmt.Sprintf("The loop still holds what the model returned in the first step while the next "+
		"step makes it again: %s in %s, most of it from %s.", c.u.Bytes(bytes), nBlocks(len(ids)), line)
	out.fix = "Delete it at the end of each step (del outputs)."
	if most >= leastLayers {
		out.fix = "Delete it at the end of each step (del outputs), and let the model return only those of " +
			"its layers' outputs that are used."
	}
	out.sure(Likely, "a call without a graph left it beyond the optimizer's step; outputs that are "+
		"collected would look the same")
	out.lever = remedy{name: "del_outputs", command: at("del outputs", line),
		changes: endingAt(c, ids, func(timeline.AllocID) timeline.Moment { return all[1].first }),
		partly:  most >= leastLayers}
	out.elseFix = "if they are collected, keep them on the CPU"
	out.instead = remedy{name: "move_outputs_to_cpu", command: at("kept.append(output.cpu())", line),
		changes: out.lever.changes}
	return out, true
}
