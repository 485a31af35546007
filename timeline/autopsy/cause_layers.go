package autopsy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Layers that keep what they made until they run again: an attribute of each module holds a bias, a mask or
// a map that only its own call needs, so that those of all layers exist at once. The pattern, in a call
// without a graph: one line of the model made a block for each layer and all of them are there, although the
// call frees most of what it makes; and what the line made in the call before outlived that call until this
// one. Look-alikes: a list of all layers' outputs and the skip connections of a U-Net, which end with the
// call; outputs that the loop still holds, which no later call frees one by one; keys and values, which
// cacheFault knows; a graph, which keeps what most lines make.

// heldShare is the share of all memory that the layers' blocks must be.
const heldShare = 0.3

func layersFault(c *evidence) (fault, bool) {
	if len(c.parts) < 2 || c.a.Asked.Or(0) <= 0 {
		return fault{}, false
	}
	last, before := &c.parts[len(c.parts)-1], &c.parts[len(c.parts)-2]
	if last.Phase != traces.PhaseForward || before.Phase != traces.PhaseForward ||
		last.Caller != before.Caller || c.trainedFrom(last) {
		return fault{}, false
	}
	_, kept := c.forwardBlocks(last.First, c.a.At, c.a.At+1)
	_, made := c.forwardBlocks(last.First, c.a.At, last.First)
	if float64(kept) >= keptByCall*float64(made) { // a graph
		return fault{}, false
	}
	if _, cached := cacheFault(c); cached {
		return fault{}, false
	}
	lines := layersBlocks(c, last)
	var ids []timeline.AllocID
	for _, s := range slices.Sorted(maps.Keys(lines)) {
		if now := lines[s]; len(now) >= leastLayers && outlivedCall(c, before, last, s) &&
			c.bytesOf(now) > c.bytesOf(ids) {
			ids = now
		}
	}
	bytes := c.bytesOf(ids)
	if float64(bytes) < heldShare*float64(c.total+c.a.Asked.Or(0)) {
		return fault{}, false
	}
	line := c.userLine(c.d.Allocs.Stack[ids[0]])
	f := fault{Cause: Cause{Kind: "hook_keeps", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of %s in the call under way are still there, and those of the call before were until it began",
		nBlocks(len(ids)), line)}}
	f.said = fmt.Sprintf("Each layer keeps what %s made until it runs again: %s in %s, although the call "+
		"keeps no graph.", line, c.u.Bytes(bytes), nBlocks(len(ids)))
	f.seek = "Look for an attribute of the module, a list or a hook that holds it"
	f.fix = "use a local variable, which ends with the layer's call."
	f.sure(Likely, "what the same line made in the call before outlived that call; a state that each layer "+
		"needs in its next call would look the same")
	f.lever = remedy{name: "drop_references", command: at("del self.value", line),
		changes: untilReturned(c, before, c.d.Allocs.Stack[ids[0]])}
	return f, true
}

// layersBlocks returns what the lines of the model made in a call under way, of those that made several
// blocks, if all of these are still alive. The last may be in use; the others could have ended.
func layersBlocks(c *evidence, p *steps.Part) map[traces.StackID][]timeline.AllocID {
	lines := map[traces.StackID][]timeline.AllocID{}
	ended := map[traces.StackID]bool{}
	first, end := c.d.AllocsIn(p.First, c.a.At)
	for id := first; id < end; id++ {
		s := c.d.Allocs.Stack[id]
		if !c.inModel(s) {
			continue
		}
		lines[s] = append(lines[s], id)
		ended[s] = ended[s] || c.d.Allocs.Requested[id] <= c.a.At
	}
	maps.DeleteFunc(lines, func(s traces.StackID, _ []timeline.AllocID) bool { return ended[s] })
	return lines
}

// outlivedCall reports whether all that a line made in a finished call was there when the next one began, and
// the first of it has ended since.
func outlivedCall(c *evidence, p, next *steps.Part, s traces.StackID) bool {
	n, gone := 0, false
	first, end := c.d.AllocsIn(p.First, p.End)
	for id := first; id < end; id++ {
		if c.d.Allocs.Stack[id] != s {
			continue
		}
		if c.d.Allocs.Requested[id] < next.First {
			return false
		}
		n++
		gone = gone || c.d.Allocs.Requested[id] <= c.a.At
	}
	return n >= leastLayers && gone
}

// untilReturned ends what a line made in this call and in the one before when the function that the line is
// in runs again: its local variables have ended by then.
func untilReturned(c *evidence, before *steps.Part, s traces.StackID) []Change {
	fn, file := c.userFunction(s)
	in := map[traces.StackID]bool{}
	inside := func(x traces.StackID) bool {
		is, known := in[x]
		if !known {
			f, at := c.userFunction(x)
			is = f == fn && at == file
			in[x] = is
		}
		return is
	}
	until, left := map[timeline.AllocID]timeline.Moment{}, false
	var ids, open []timeline.AllocID
	at := func(x traces.StackID, now timeline.Moment) {
		if within := inside(x); !within {
			left = true
		} else if left {
			for _, id := range open {
				until[id] = now
			}
			open, left = nil, false
		}
	}
	first, end := c.d.AllocsIn(before.First, c.a.At)
	for id := first; id < end; id++ {
		x := c.d.Allocs.Stack[id]
		at(x, c.d.Allocs.Start[id])
		if x == s {
			ids, open = append(ids, id), append(open, id)
		}
	}
	at(c.d.Event(c.a.At).Stack, c.a.At)
	for _, id := range open {
		until[id] = timeline.Never
	}
	return endingAt(c, ids, func(id timeline.AllocID) timeline.Moment { return until[id] })
}
