package autopsy

import (
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// The user's modules that a call of the model ran through.

// modulesOf returns the frames of the user's modules that a call of the model ran through.
func modulesOf(c *evidence, p *steps.Part) map[traces.FrameID]bool {
	out, seen := map[traces.FrameID]bool{}, map[traces.StackID]bool{}
	first, end := c.d.AllocsIn(p.First, p.End)
	for id := first; id < end; id++ {
		s := c.d.Allocs.Stack[id]
		if s < 0 || seen[s] || !c.inModel(s) {
			continue
		}
		seen[s] = true
		for _, fr := range c.d.Timeline().Places().Stacks.At(s) {
			if fr == p.Caller {
				break // anything further out is the training loop
			}
			if c.ofUser(fr) {
				out[fr] = true
			}
		}
	}
	return out
}

// outermostOf returns the frames of a call's outermost module: the model's own lines, not its layers'.
func outermostOf(c *evidence, p *steps.Part) map[traces.FrameID]bool {
	out, seen := map[traces.FrameID]bool{}, map[traces.StackID]bool{}
	first, end := c.d.AllocsIn(p.First, p.End)
	for id := first; id < end; id++ {
		s := c.d.Allocs.Stack[id]
		if s < 0 || seen[s] || !c.inModel(s) {
			continue
		}
		seen[s] = true
		outermost := traces.FrameID(-1)
		for _, fr := range c.d.Timeline().Places().Stacks.At(s) {
			if fr == p.Caller {
				break
			}
			if c.ofUser(fr) {
				outermost = fr
			}
		}
		if outermost >= 0 {
			out[outermost] = true
		}
	}
	return out
}
