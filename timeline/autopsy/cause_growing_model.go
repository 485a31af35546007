package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A model that grows while it trains: Gaussians or points that are split, a vocabulary or a codebook that is
// extended, a network to which neurons are added. The pattern: lines outside of the model's run hold as many
// blocks as before at the beginning of each backward, and more bytes every few rounds and never fewer; and
// the backward makes gradients of the same sizes. Look-alikes: results that are put together in one tensor,
// for whose sizes there are no gradients (concatenatedFault); longer batches, none of which exists for two
// rounds; weights that are unfrozen, which do not change their sizes. Sources: densification in 3D Gaussian
// splatting (Kerbl et al. 2023), where the issues answer out-of-memory errors with a limit.

const (
	// leastRises is how often the bytes of a line must have grown.
	leastRises = 3
	// grownTimes is how many times the bytes at first those at last must be.
	grownTimes = 1.5
)

// held is what one stack has at the begin of each round.
type held struct {
	blocks []int
	bytes  []int64
	// stayed are its blocks that were there at the begin of two rounds, as weights are and batches are not,
	// and all those that were there at one.
	stayed, all int
}

// heldAt returns, for the stacks outside of the model's run that hold something at the moment, what they held
// at some moments.
func heldAt(c *evidence, ticks []timeline.Moment) map[traces.StackID]*held {
	out := map[traces.StackID]*held{}
	for _, id := range c.live {
		s := c.d.Origin(id)
		const other = frames.KindModel | frames.KindBackwardPass | frames.KindStep
		if s != traces.NoStack && out[s] == nil && !c.kinds.Of(s).Has(other) {
			out[s] = &held{blocks: make([]int, len(ticks)), bytes: make([]int64, len(ticks))}
		}
	}
	for id := timeline.AllocID(0); id < c.d.Begun(c.a.At); id++ {
		h := out[c.d.Origin(id)]
		if h == nil {
			continue
		}
		from, _ := slices.BinarySearch(ticks, c.d.Allocs.Start[id])
		to, _ := slices.BinarySearch(ticks, c.d.Allocs.Requested[id])
		for k := from; k < to; k++ {
			h.blocks[k]++
			h.bytes[k] += c.d.Allocs.Rounded[id]
		}
		h.stayed += min(max(to-from-1, 0), 1)
		h.all += min(max(to-from, 0), 1)
	}
	return out
}

// grows reports whether it holds the same number of blocks from one moment on, which get larger.
func (h *held) grows() bool {
	first := slices.IndexFunc(h.blocks, func(n int) bool { return n > 0 })
	if first < 0 || 2*h.stayed < h.all {
		return false
	}
	rises := 0
	for k := first + 1; k < len(h.bytes); k++ {
		switch {
		case h.blocks[k] != h.blocks[first] || h.bytes[k] < h.bytes[k-1]:
			return false
		case h.bytes[k] > h.bytes[k-1]:
			rises++
		}
	}
	return rises >= leastRises && float64(h.bytes[len(h.bytes)-1]) >= grownTimes*float64(h.bytes[first])
}

func growingModelFault(c *evidence) (fault, bool) {
	var begins []timeline.Moment // of backwards: a training without modules has no other parts
	gradients := map[int64]bool{}
	for i, p := range c.parts {
		if p.Phase != traces.PhaseBackward {
			continue
		}
		if i == 0 || c.parts[i-1].Phase != traces.PhaseBackward {
			begins = append(begins, p.First)
		}
		first, end := c.d.AllocsIn(p.First, p.End)
		for id := first; id < end; id++ {
			gradients[c.d.Allocs.Size[id]] = true
		}
	}
	if len(begins) <= leastRises {
		return fault{}, false
	}
	growing := map[traces.StackID]bool{}
	for s, h := range heldAt(c, begins) {
		growing[s] = h.grows()
	}
	trained := map[traces.StackID]bool{}
	for id := timeline.AllocID(0); id < c.d.Begun(c.a.At); id++ {
		if s := c.d.Origin(id); growing[s] && gradients[c.d.Allocs.Size[id]] {
			trained[s] = true
		}
	}
	var ids []timeline.AllocID
	sizes := map[int64]bool{}
	for _, id := range c.live {
		if trained[c.d.Origin(id)] {
			ids, sizes[c.d.Allocs.Size[id]] = append(ids, id), true
		}
	}
	if len(ids) == 0 {
		return fault{}, false
	}
	var with int64 // gradients, and state of the optimizer, of these sizes
	for _, id := range c.live {
		s := c.d.Origin(id)
		if k := c.kinds.Of(s); sizes[c.d.Allocs.Size[id]] && !trained[s] &&
			(s == traces.NoStack || k.Has(frames.KindBackwardPass|frames.KindStep)) {
			with += c.d.Allocs.Rounded[id]
		}
	}
	bytes, line := c.bytesOf(ids), c.topName(c.sitesOf(ids))
	f := fault{Cause: Cause{Kind: "growing_parameters", Bytes: maybe.Known(bytes + with), Text: fmt.Sprintf(
		"%s from %s and lines like it: as many blocks as when the training began, but larger; gradients "+
			"have the same sizes", c.u.Bytes(bytes), line)}}
	f.said = fmt.Sprintf("The model itself grows while it trains: %s keeps making its parameters larger, "+
		"and with gradients and optimizer state they take %s.", line, c.u.Bytes(bytes+with))
	f.fix = "Limit its size, for example the number of points; split fewer of them, or stop splitting " +
		"earlier."
	f.sure(Certain, "the same number of blocks gets larger, and the backward makes gradients of their sizes")
	f.lever = remedy{name: "limit_growth", command: at("if len(points) < limit:", line)}
	return f, true
}
