package whatif

import (
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
)

// How would the run have continued after the failed request? As it did the last time it was there, because
// training repeats itself. The requests' stacks, read backwards from the failed one, are compared with
// themselves. At the longest match the process was at the same point before, and what it did from there to
// the failure is what it would have done next: the rest of this step and the beginning of the next.
//
// Layers repeat, too, but a layer is no step. A loop over layers makes all its requests inside one call of
// PyTorch's (a module, the backward pass, an optimizer's step); a step does not. A loop of the user's in a
// loss or in data preparation is no step either, because a step runs the model. Nor is building the model
// from layers, or moving it to a device.
//
// The match lengths are the Z function of the reversed sequence: O(n) for n requests.
//
// Rejected: the steps of package steps. Validation, sampling and loops without an optimizer have none.

// leastMatch is how many requests up to the failed one must have occurred in the same order before.
const leastMatch = 8

// period returns the number of requests after which the failed one comes again, 0 if the process was never at
// this point before.
func period(d *timeline.Device, failed timeline.Moment) (requests int) {
	first, n := d.Begun(timeline.Start), d.Begun(failed)
	stacks := []traces.StackID{d.Event(failed).Stack}
	for a := n - 1; a >= first; a-- {
		stacks = append(stacks, d.Allocs.Stack[a])
	}
	least := stepLength(d, stacks)
	const makes = frames.KindModuleInit | frames.KindModuleMove | frames.KindUserInit | frames.KindLoad
	if least == 0 || stacks[0] == traces.NoStack || d.Timeline().Kinds().Of(stacks[0]).Has(makes) {
		return 0
	}
	least = max(least, modelRun(d, stacks))
	longest := leastMatch - 1
	for i, z := range matches(stacks) {
		asked, before := d.Event(failed).Size, int64(0)
		if i >= least {
			before = d.Allocs.Size[n-timeline.AllocID(i)]
		}
		if z > longest && asked <= before+before/4 && before <= asked+asked/4 {
			longest, requests = z, i
		}
	}
	return requests
}

// matches returns, for every position, how many elements from there equal those at the beginning; 0 for the
// first.
func matches(s []traces.StackID) []int {
	z := make([]int, len(s))
	from, to := 0, 0
	for i := 1; i < len(s); i++ {
		if i < to {
			z[i] = min(to-i, z[i-from])
		}
		for i+z[i] < len(s) && s[z[i]] == s[i+z[i]] {
			z[i]++
		}
		if i+z[i] > to {
			from, to = i, i+z[i]
		}
	}
	return z
}

// modelRun returns how many stacks it takes to reach one from the model's run, a backward pass or an
// optimizer's step; 0 if there is none.
func modelRun(d *timeline.Device, stacks []traces.StackID) int {
	kinds := d.Timeline().Kinds()
	for i, s := range stacks {
		if kinds.Of(s).Has(frames.KindModel | frames.KindBackwardPass | frames.KindStep) {
			return i + 1
		}
	}
	return 0
}

// stepLength returns how many stacks it takes until they are not all inside one call of PyTorch's, 0 if they
// always are. A stack's last frame is its outermost.
func stepLength(d *timeline.Device, stacks []traces.StackID) int {
	table, kinds := &d.Timeline().Trace.Stacks, d.Timeline().Kinds()
	common := table.At(stacks[0])
	last := stacks[0]
	inside := func() bool {
		for _, f := range common {
			if kinds.Frames[f].Has(frames.KindTorch) {
				return true
			}
		}
		return false
	}
	for i, s := range stacks {
		if s == last && i > 0 {
			continue
		}
		last = s
		ids := table.At(s)
		k := 0
		for k < len(common) && k < len(ids) && common[len(common)-1-k] == ids[len(ids)-1-k] {
			k++
		}
		common = common[len(common)-k:]
		if i > 0 && !inside() {
			return i
		}
	}
	return 0
}
