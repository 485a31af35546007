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
	if n < leastHeldRounds || c.a.State == nil {
		return fault{}, false
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
