package autopsy

import (
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// The user's modules that a call of the model ran through.

// modulesOf returns the frames of the user's modules that a call of the model ran through.
func modulesOf(c *evidence, p *steps.Part) map[traces.FrameID]bool {
	out := map[traces.FrameID]bool{}
	eachPath(c, p, func(own []traces.FrameID) {
		for _, fr := range own {
			out[fr] = true
		}
	})
	return out
}

// outermostOf returns the frames of a call's outermost module: the model's own lines, not its layers'.
func outermostOf(c *evidence, p *steps.Part) map[traces.FrameID]bool {
	out := map[traces.FrameID]bool{}
	eachPath(c, p, func(own []traces.FrameID) { out[own[len(own)-1]] = true })
	return out
}

// eachPath passes on the user's frames of each stack in a call of the model, innermost first, without those
// of the training loop. Stacks without any are left out.
func eachPath(c *evidence, p *steps.Part, do func(own []traces.FrameID)) {
	seen := map[traces.StackID]bool{}
	var own []traces.FrameID
	first, end := c.d.AllocsIn(p.First, p.End)
	for id := first; id < end; id++ {
		s := c.d.Allocs.Stack[id]
		if s < 0 || seen[s] || !c.inModel(s) {
			continue
		}
		seen[s] = true
		own = own[:0]
		for _, fr := range c.d.Timeline().Places().Stacks.At(s) {
			if fr == p.Caller {
				break // anything further out is the training loop
			}
			if c.ofUser(fr) {
				own = append(own, fr)
			}
		}
		if len(own) > 0 {
			do(own)
		}
	}
}
