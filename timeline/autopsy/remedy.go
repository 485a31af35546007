package autopsy

import (
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// The lever of a fault: the line of code to change and the blocks that then end earlier. The recording does
// not show when a block was last used, so each ends at a moment by which it is certain that nothing needs it:
// the end of the backward that follows it in its step, or the end of the step. So the saving is never
// overestimated. If the failed request is one more of the fault's blocks, it counts. Linear in the fault's
// blocks. Rejected: subtracting what a fault holds at the failure from the peak, which says nothing about the
// following steps.

// endingAt returns changes with which allocations end at given moments; those that end by then are left out.
func endingAt(c *evidence, ids []timeline.AllocID, at func(timeline.AllocID) timeline.Moment) []Change {
	var out []Change
	for _, id := range ids {
		from := at(id)
		to := min(c.d.Allocs.Requested[id], timeline.Moment(c.d.Len()))
		if from < to {
			out = append(out, Change{id, max(from, c.d.Allocs.Start[id]), to, c.d.Allocs.Rounded[id]})
		}
	}
	return out
}

// neverMade returns changes that leave allocations out.
func neverMade(c *evidence, pick func(timeline.AllocID) bool) []Change {
	return cutsOf(c.d, func(id timeline.AllocID) int64 {
		if pick(id) {
			return c.d.Allocs.Rounded[id]
		}
		return 0
	})
}

// afterBackward returns the moment by which nothing needs what a step allocated at a moment: the end of the
// next backward of the step, else the beginning of the next step; Never in a step under way.
func (c *history) afterBackward(at timeline.Moment) timeline.Moment {
	began := false
	for i := max(steps.PartAt(c.parts, at), 0); i < len(c.parts); i++ {
		p := &c.parts[i]
		switch {
		case p.Phase == traces.PhaseBackward && p.End > at && i+1 < len(c.parts):
			return p.End
		case p.Phase != traces.PhaseForward:
			began = true
		case p.Phase == traces.PhaseForward && p.First > at && began:
			return p.First
		}
	}
	return timeline.Never
}

// placeMark separates a command from the place that it is for.
const placeMark = "  # "

// at returns the line of a place after a command, as a comment.
func at(command, place string) string {
	if place == "" {
		return command
	}
	return command + placeMark + place
}

// clause returns a sentence as the levers' texts are: in lower case and without its end.
func clause(sentence string) string {
	s := strings.TrimSuffix(strings.TrimSuffix(sentence, "."), ":")
	return strings.ToLower(s[:1]) + s[1:]
}

// nextCall ends what calls of the model left when the call after each begins.
func nextCall(c *evidence, ids []timeline.AllocID) []Change {
	return endingAt(c, ids, func(id timeline.AllocID) timeline.Moment {
		if k := steps.PartAt(c.parts, c.d.Allocs.Start[id]) + 1; k < len(c.parts) {
			return c.parts[k].First
		}
		return timeline.Never
	})
}

// nextLoss ends what calls of the model left when the first call for another loss begins. A loss may take
// several calls, as one of a pair of images does: it is where a loss is made between calls, and after each
// call where none is.
func nextLoss(c *evidence, ids []timeline.AllocID, calls []steps.Part) []Change {
	if len(calls) < 2 {
		return nextCall(c, ids)
	}
	last := len(calls) - 1
	losses, of := map[int]bool{}, map[traces.StackID]bool{} // after which calls, and of which lines
	first, end := c.d.AllocsIn(calls[0].First, calls[last].First)
	k := 0
	for id := first; id < end; id++ {
		for calls[k+1].First <= c.d.Allocs.Start[id] {
			k++
		}
		s := c.d.Allocs.Stack[id]
		is, known := of[s]
		if !known {
			is = c.ofLoss(s) && !c.kinds.Of(s).Has(frames.KindModel|frames.KindBackwardPass|frames.KindStep)
			of[s] = is
		}
		if is {
			losses[k] = true
		}
	}
	var ends []timeline.Moment
	for k := range last {
		if losses[k] || len(losses) == 0 {
			ends = append(ends, calls[k+1].First)
		}
	}
	return endingAt(c, ids, func(id timeline.AllocID) timeline.Moment {
		k, same := slices.BinarySearch(ends, c.d.Allocs.Start[id])
		if same {
			k++
		}
		if k < len(ends) {
			return ends[k]
		}
		return timeline.Never
	})
}

// gradientsToCome returns the bytes of gradients that a backward would make before the request that failed:
// of all weights in the first step, where there are none yet.
func gradientsToCome(c *evidence) int64 {
	if c.lastOf(traces.PhaseBackward) >= 0 {
		bytes, _ := remade(c)
		if rounds := len(c.rounds()) - 1; rounds > 0 {
			return bytes / int64(rounds)
		}
		return 0
	}
	_, bytes := c.weights()
	return bytes
}

// ungraphed ends what calls of the model made as it would end without a graph, the last of each line when the
// next call begins.
func ungraphed(c *evidence, calls []steps.Part) (out []Change) {
	for k := range calls {
		after := timeline.Never
		if k+1 < len(calls) {
			after = calls[k+1].First
		}
		out = append(out, ungraphedUntil(c, calls[k], after)...)
	}
	return out
}

// ungraphedUntil ends what a call of the model made as it would end without a graph: a block of a line when
// the line makes its next one, for the next layer, and the last of each at a given moment.
func ungraphedUntil(c *evidence, p steps.Part, after timeline.Moment) []Change {
	a := &c.d.Allocs
	var ids []timeline.AllocID
	next, until := map[traces.StackID]timeline.Moment{}, map[timeline.AllocID]timeline.Moment{}
	first, end := c.d.AllocsIn(p.First, min(p.End, c.a.At+1))
	for id := end - 1; id >= first; id-- {
		s := a.Stack[id]
		if !c.kinds.Of(s).Has(frames.KindModel) {
			continue
		}
		m, ok := next[s]
		if !ok {
			m = after
		}
		ids, until[id] = append(ids, id), m
		next[s] = a.Start[id]
	}
	return endingAt(c, ids, func(id timeline.AllocID) timeline.Moment { return until[id] })
}

// untilNext ends each block when its line makes the next one, and leaves the last of each line.
func untilNext(c *evidence, ids []timeline.AllocID) []Change {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	next := map[traces.StackID]timeline.Moment{}
	until := map[timeline.AllocID]timeline.Moment{}
	for _, id := range slices.Backward(ids) {
		s := c.d.Allocs.Stack[id]
		until[id] = timeline.Never
		if m, ok := next[s]; ok {
			until[id] = m
		}
		next[s] = c.d.Allocs.Start[id]
	}
	return endingAt(c, ids, func(id timeline.AllocID) timeline.Moment { return until[id] })
}

// remade counts the bytes of gradients that a finished backward made and that ended after an optimizer's
// step, and says which sizes they have.
func remade(c *evidence) (bytes int64, sizes map[int64]bool) {
	sizes = map[int64]bool{}
	weights, _ := c.weights()
	for _, r := range c.rounds() {
		if !r.stepped || r.backward == timeline.Never || r.after == timeline.Never {
			continue
		}
		first, end := c.d.AllocsIn(r.backward, r.after)
		for id := first; id < end; id++ {
			q := c.d.Allocs.Requested[id]
			if q > r.after && q <= c.a.At && weights[c.d.Allocs.Size[id]] > 0 {
				bytes += c.d.Allocs.Rounded[id]
				sizes[c.d.Allocs.Size[id]] = true
			}
		}
	}
	return bytes, sizes
}
