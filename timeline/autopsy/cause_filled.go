package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// One tensor that a function fills from many calls of the model and returns: the windows of a volume that are
// put together, the tiles of an image, the embeddings of all nodes. The pattern: a function of the user's
// made a block that is larger than anything the model makes, called the model repeatedly while it existed,
// and has returned, since code outside of it has allocated something; the block still exists. Look-alikes:
// data that the function moved to the GPU and reads in parts, which ends when it returns, and is data's
// fault; what a training step returns, whose calls a backward follows; results in a list, each of which is
// small. Source: the device argument of MONAI's sliding_window_inference.

// filledFrom reports whether a function filled a block from several calls of the model, and has returned
// since.
func filledFrom(c *evidence, id timeline.AllocID) bool {
	fn, file := c.userFunction(c.d.Origin(id))
	if fn == "" || fn == "<module>" {
		return false
	}
	until := min(c.d.Allocs.Requested[id], c.a.At)
	last, most := timeline.Start, 0
	for i := max(steps.PartAt(c.parts, c.d.Allocs.Start[id]), 0); i < len(c.parts); i++ {
		p := &c.parts[i]
		if p.First < c.d.Allocs.Start[id] || p.First >= until || p.Caller < 0 ||
			p.Phase != traces.PhaseForward {
			continue
		}
		f, in, _ := c.d.Timeline().Places().FrameText(p.Caller)
		if f != fn || in != file {
			continue
		}
		if c.trainedFrom(p) {
			return false
		}
		most += repeats(c, p.First, min(p.End, until))
		last = p.First
	}
	if last == timeline.Start || most < leastForwards {
		return false
	}
	first, end := c.d.AllocsIn(last, until)
	for x := first; x < end; x++ {
		if s := c.d.Allocs.Stack[x]; s >= 0 && !within(c, s, fn, file) {
			return true
		}
	}
	return !within(c, c.d.Event(c.a.At).Stack, fn, file) && until == c.a.At
}

// repeats returns how often the line of the model that allocated most often did in [from, to).
func repeats(c *evidence, from, to timeline.Moment) (most int) {
	count := map[traces.StackID]int{}
	first, end := c.d.AllocsIn(from, to)
	for id := first; id < end; id++ {
		if s := c.d.Allocs.Stack[id]; c.inModel(s) {
			count[s]++
			most = max(most, count[s])
		}
	}
	return most
}

func windowsFault(c *evidence) (fault, bool) {
	table, most := sites.Of(c.d.Timeline()), largestMade(c)
	filled := map[int32][]timeline.AllocID{}
	for _, id := range c.live {
		n := table.Number(c.d.Origin(id))
		if n >= 0 && c.d.Allocs.Size[id] >= wholeTimes*most && c.ofData(c.d.Origin(id)) && filledFrom(c, id) {
			filled[n] = append(filled[n], id)
		}
	}
	best, ok := c.largest(filled)
	if !ok {
		return fault{}, false
	}
	ids, line := filled[best], table.Names[best]
	bytes := c.bytesOf(ids)
	f := fault{Cause: Cause{Kind: "collected_outputs", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s holds %s in %s that one function made, filled from calls of the model and returned", line,
		c.u.Bytes(bytes), nBlocks(len(ids)))}}
	f.said = fmt.Sprintf("The results of many calls of the model are put together on the GPU at %s: %s.",
		line, c.u.Bytes(bytes))
	f.fix = "Make that tensor on the CPU and move each result to it, or pass device=\"cpu\" to the " +
		"function that does it: the calls themselves stay on the GPU."
	f.sure(Likely, "the function called the model while the tensor was there, and has returned; a table "+
		"that calls only read would look the same")
	f.lever = remedy{name: "move_outputs_to_cpu",
		command: at("results = torch.zeros(size, device=\"cpu\")", line),
		changes: neverMade(c, func(id timeline.AllocID) bool {
			return c.d.Allocs.Stack[id] >= 0 && table.Number(c.d.Allocs.Stack[id]) == best
		})}
	if s := c.d.Event(c.a.At).Stack; s >= 0 && table.Number(s) == best {
		f.lever.request = c.a.Asked.Or(0)
	}
	return f, true
}
