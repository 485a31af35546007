package plan

import (
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// EagerRefusal says why eager PyTorch cannot keep a buffer out of memory for an absence; "" where it can. Hooks on saved tensors see what the forward
// pass saves for the backward pass, and nothing else: an activation that leaves behind a forward op and returns to a backward op.
func (p *Problem) EagerRefusal(x Absence) string {
	b := &p.Buffers[x.Buffer]
	switch {
	case b.Category != timeline.Activation && b.Category != timeline.Input && b.Category != timeline.Unknown && b.Category != timeline.AutogradDetail:
		return "only tensors saved for backward can leave, and this is " + b.Category.String()
	case p.Ops[x.After].Phase == traces.PhaseBackward || p.Ops[x.After].Phase == traces.PhaseOptimizer:
		return "it leaves behind the forward pass"
	case p.Ops[x.Before].Phase == traces.PhaseForward:
		return "it would have to be back within the forward pass"
	}
	return ""
}
