package steps

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
)

// Parts: the pieces of a step, learnt from the recording. A step may have several micro-batches, several
// pairs of forward and backward and several optimizers, and there may be an evaluation between steps, so no
// order is assumed. A part is a run of allocations of one phase; a forward also ends when another line calls
// the model or the training loop allocates in between (the next batch, the loss). Lifetimes show which
// backward belongs to a forward: the one that frees most of what the forward left.
//
// Linear in allocations, after reading each stack once. Rejected: one forward and one backward a step, as in
// [Phases] after its smoothing, which hides accumulation and validation without no_grad.

// Part is one forward, backward or optimizer's step: the events [First, End).
type Part struct {
	Phase      traces.Phase
	First, End timeline.Moment
	// Caller is the frame that calls the model, the line of the training loop; -1 if unknown, and for other
	// phases.
	Caller traces.FrameID
	// Kept are the rounded bytes that it allocated and that are still there when it ends.
	Kept int64
	// Frees is, for a forward, the index of the part that frees most of Kept; -1 if most of Kept is never
	// freed.
	Frees int
}

// Parts returns the parts of all steps in order, without overlaps; nil if stacks show none. It is computed
// once; callers must not modify the result.
func Parts(d *timeline.Device) []Part { return parts.Of(d) }

var parts = timeline.NewMemo(findParts)

// stackPart is what a stack shows about its part.
type stackPart struct {
	phase  traces.Phase
	caller traces.FrameID
}

// modelCaller returns the frame that calls the outermost module of a stack, -1 if there is none.
func modelCaller(stack []traces.FrameID, kinds []frames.Kind) traces.FrameID {
	for i := len(stack) - 1; i >= 0; i-- {
		if !kinds[stack[i]].Has(frames.KindModel) {
			continue
		}
		for _, f := range stack[i+1:] {
			if k := kinds[f]; k.Has(frames.KindPython) && !k.Has(frames.KindWrapper|frames.KindLibrary) {
				return f
			}
		}
		return -1 // a thread that the library started
	}
	return -1
}

// stackParts returns the stackPart of each stack.
func stackParts(t *timeline.Timeline) []stackPart {
	kinds, table := t.Kinds(), &t.Places().Stacks
	out := make([]stackPart, len(kinds.Stacks))
	for i, k := range kinds.Stacks {
		out[i] = stackPart{frames.PhaseOf(k), -1}
		switch {
		case k.Has(frames.KindStep):
			out[i].phase = traces.PhaseOptimizer
		case k.Has(frames.KindBackwardPass):
			out[i].phase = traces.PhaseBackward
		case out[i].phase == traces.PhaseOptimizer: // its constructor, zero_grad: no part of a step
			out[i].phase = traces.PhaseUnknown
		case out[i].phase == traces.PhaseForward:
			out[i].caller = modelCaller(table.At(traces.StackID(i)), kinds.Frames)
		}
	}
	return out
}

func findParts(d *timeline.Device) []Part {
	if d.Len() == 0 || d.Info.Kind == traces.DeviceArena {
		return nil
	}
	of := stackParts(d.Timeline())
	var out []Part
	open := false
	for a := d.Begun(timeline.Start); a < timeline.AllocID(d.Allocs.Len()); a++ {
		says := stackPart{traces.PhaseUnknown, -1}
		if s := d.Allocs.Stack[a]; s >= 0 && int(s) < len(of) {
			says = of[s]
		} else if len(out) > 0 && out[len(out)-1].Phase == traces.PhaseBackward {
			out[len(out)-1].End = d.Allocs.Start[a] + 1
			continue // the engine's threads have no Python frames
		}
		at := d.Allocs.Start[a]
		if says.phase == traces.PhaseUnknown {
			if open && out[len(out)-1].Phase == traces.PhaseForward {
				out[len(out)-1].End, open = at, false
			}
			continue
		}
		if n := len(out); n > 0 && out[n-1].Phase == says.phase &&
			(open && out[n-1].Caller == says.caller || says.phase != traces.PhaseForward) {
			out[n-1].End, open = at+1, true
			continue
		}
		if n := len(out); open && out[n-1].Phase == traces.PhaseForward {
			out[n-1].End = at
		}
		out = append(out, Part{Phase: says.phase, First: at, End: at + 1, Caller: says.caller, Frees: -1})
		open = true
	}
	if open {
		out[len(out)-1].End = timeline.Moment(d.Len())
	}
	for i := range out {
		settle(d, out, i)
	}
	return out
}

// PartAt returns the index of the last part that begins at or before a moment, -1 for none.
func PartAt(list []Part, m timeline.Moment) int {
	i, found := slices.BinarySearchFunc(list, m,
		func(p Part, m timeline.Moment) int { return cmp.Compare(p.First, m) })
	if !found {
		i--
	}
	return i
}

// settle computes what a part keeps and which part frees it.
func settle(d *timeline.Device, list []Part, i int) {
	p := &list[i]
	first, end := d.AllocsIn(p.First, p.End)
	freed := map[int]int64{}
	for a := first; a < end; a++ {
		r := d.Allocs.Requested[a]
		if r < p.End {
			continue
		}
		p.Kept += d.Allocs.Rounded[a]
		by := -1
		if r != timeline.Never {
			by = PartAt(list, r)
		}
		freed[by] += d.Allocs.Rounded[a]
	}
	best := int64(0)
	for by, bytes := range freed {
		if bytes > best || bytes == best && by > p.Frees {
			best, p.Frees = bytes, by
		}
	}
}
