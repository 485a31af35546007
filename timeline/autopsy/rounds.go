package autopsy

import (
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
)

// round is a run of forwards and what follows until the next forward after a backward or an optimizer: a
// step, or one micro-batch of a step that accumulates gradients. Moments are Never where the recording has
// none up to the autopsy's.
type round struct {
	first    timeline.Moment
	backward timeline.Moment // the first backward begins
	after    timeline.Moment // what follows the last backward begins
	end      timeline.Moment // the next round begins
	stepped  bool            // an optimizer's step is in it
	from, to int             // its parts [from, to)
}

// rounds returns the rounds up to the moment of the autopsy, in order, the one under way last.
func (c *history) rounds() []round {
	var out []round
	for i, p := range c.parts {
		n := len(out)
		if p.Phase == traces.PhaseForward && (i == 0 || c.parts[i-1].Phase != traces.PhaseForward) {
			if n > 0 {
				out[n-1].end = p.First
				if out[n-1].backward != timeline.Never && out[n-1].after == timeline.Never {
					out[n-1].after = p.First
				}
			}
			out = append(out, round{first: p.First, backward: timeline.Never, after: timeline.Never,
				end: timeline.Never, from: i})
			n++
		}
		if n == 0 {
			continue
		}
		r := &out[n-1]
		r.to = i + 1
		switch p.Phase {
		case traces.PhaseBackward:
			if r.backward == timeline.Never {
				r.backward = p.First
			}
			r.after = timeline.Never
		case traces.PhaseOptimizer:
			r.stepped = true
			if r.backward != timeline.Never && r.after == timeline.Never {
				r.after = p.First
			}
		}
	}
	return out
}

// forwardBlocks returns what the forwards of [from, to) made inside the model and left until alive.
func (c *history) forwardBlocks(from, to, alive timeline.Moment) (ids []timeline.AllocID, bytes int64) {
	first, end := c.d.AllocsIn(from, to)
	for id := first; id < end; id++ {
		k := c.kinds.Of(c.d.Allocs.Stack[id])
		if !k.Has(frames.KindModel) || k.Has(frames.KindBackwardPass|frames.KindStep) ||
			c.d.Allocs.Requested[id] < alive {
			continue
		}
		ids = append(ids, id)
		bytes += c.d.Allocs.Rounded[id]
	}
	return ids, bytes
}

// stillThere keeps the blocks that are allocated at the moment of the autopsy.
func (c *evidence) stillThere(ids []timeline.AllocID) (out []timeline.AllocID) {
	for _, id := range ids {
		if c.d.Allocs.Requested[id] > c.a.At {
			out = append(out, id)
		}
	}
	return out
}

// weights counts the blocks by requested size that were there before the first part: parameters, and what
// has their sizes.
func (c *evidence) weights() (count map[int64]int, bytes int64) {
	count = map[int64]int{}
	for _, id := range c.live {
		if len(c.parts) > 0 && c.d.Allocs.Start[id] < c.parts[0].First {
			count[c.d.Allocs.Size[id]]++
			bytes += c.d.Allocs.Size[id]
		}
	}
	return count, bytes
}

// leastSteps is how many steps must have left something.
const leastSteps = 4

// leftSince returns those live blocks whose stacks left something in steps all over a stretch, and in how
// many of its steps, which begin at ticks.
func leftSince(c *evidence, ticks []timeline.Moment, live []timeline.AllocID) (ids []timeline.AllocID,
	in int,
) {
	n := len(ticks) - 1 // the last step is under way
	if n < leastSteps {
		return nil, 0
	}
	type stack struct {
		ids  []timeline.AllocID
		seen map[int]bool
	}
	found := map[traces.StackID]*stack{}
	for _, id := range live {
		at := c.d.Allocs.Start[id]
		if at < ticks[0] || at >= ticks[n] {
			continue
		}
		k, ok := slices.BinarySearch(ticks, at)
		if !ok {
			k--
		}
		s := found[c.d.Origin(id)]
		if s == nil {
			s = &stack{seen: map[int]bool{}}
			found[c.d.Origin(id)] = s
		}
		s.ids, s.seen[k] = append(s.ids, id), true
	}
	all := map[int]bool{}
	for _, s := range found {
		var third [3]bool
		for k := range s.seen {
			third[k*3/n] = true
		}
		if len(s.seen) < leastSteps || !third[0] || !third[1] || !third[2] {
			continue
		}
		ids = append(ids, s.ids...)
		for k := range s.seen {
			all[k] = true
		}
	}
	slices.Sort(ids)
	return ids, len(all)
}

// ticks returns the moments at which a step's work begins: the first forward after a backward or an
// optimizer, of the last phase that the steps have.
func ticks(c *evidence) []timeline.Moment {
	var out []timeline.Moment
	for i, p := range c.parts {
		if p.Phase == traces.PhaseForward && (i == 0 || c.parts[i-1].Phase != traces.PhaseForward) {
			out = append(out, p.First)
		}
	}
	return out
}
