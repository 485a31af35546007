package networks

import (
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Footprint is the memory of a network-wide static allocation, by purpose, in bytes.
type Footprint struct {
	// Features are the inputs and all that the forward pass makes, each with memory of its own.
	Features int64
	// Weights are the parameters, WeightGradients their gradients.
	Weights, WeightGradients int64
	// Gradients is the most that one backward op needs for gradients of activations: one pair of buffers
	// serves all layers.
	Gradients int64
	// Workspace is the largest one, which serves all layers too.
	Workspace int64
	// State is optimizer state and running statistics. vDNN's accounting does not name it, and Total leaves
	// it out.
	State int64
}

// Total is the allocation in vDNN's accounting, in bytes.
func (f Footprint) Total() int64 {
	return f.Features + f.Weights + f.WeightGradients + f.Gradients + f.Workspace
}

// StaticFootprint returns what vDNN's baseline (MICRO 2016) would hold from the first iteration to the last:
// every feature map, weight and weight gradient at once; gradients of feature maps and workspaces in buffers
// of the largest one's size, reused from layer to layer. Workspaces are those of each op's variant 0.
// In-place layers have no feature map of their own.
func StaticFootprint(p *plan.Problem) Footprint {
	var f Footprint
	workspace := make([]bool, len(p.Buffers))
	for i := range p.Ops {
		op := &p.Ops[i]
		if op.Workspace != plan.NoBuffer {
			workspace[op.Workspace] = true
			f.Workspace = max(f.Workspace, p.Rounded(op.Workspace))
		}
		var gradients int64
		seen := make(map[plan.BufferID]bool, 8)
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			if p.Buffers[a.Buffer].Category == timeline.AutogradDetail && !seen[a.Buffer] {
				seen[a.Buffer] = true
				gradients += p.Rounded(a.Buffer)
			}
		}
		f.Gradients = max(f.Gradients, gradients)
	}
	for b := range p.Buffers {
		size := p.Rounded(plan.BufferID(b))
		switch buf := &p.Buffers[b]; {
		case workspace[b] || buf.Category == timeline.AutogradDetail:
		case buf.Category == timeline.Parameter:
			f.Weights += size
		case buf.Category == timeline.Gradient:
			f.WeightGradients += size
		case buf.Life == plan.Persistent:
			f.State += size
		case p.Ops[buf.Start].Phase == traces.PhaseForward:
			f.Features += size
		}
	}
	return f
}
