package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// If batches are padded to their longest sequence, the largest step is seen far more often than it is
// recorded: a running training reports the sizes of the tensors that autograd saves at no cost, and nothing
// else of a step. Approach: a tensor that is not saved takes the new size of saved tensors of its old size,
// since an op's output or its gradient is as large as what it is computed from. If no saved tensor has its
// size, it grows with one whose size is a multiple or a fraction of its own (masks of one byte, three
// projections in one), and failing that like the one that grows most. So sizes are too large rather than too
// small.
//
// Rejected: a polynomial in the sequence length through recorded steps: batches of an encoder and a decoder
// have two lengths, and nobody reports them.

// Resized returns the problem of a step that has larger tensors: known are the sizes of some buffers, in
// bytes. Buffers that do not grow with the batch stay as they are, and none becomes smaller. Durations grow
// with what an op touches. Sizes of other buffers follow from those of the known ones, and are inferred.
func Resized(p *Problem, known map[BufferID]int64) (*Problem, error) {
	q := *p
	q.Buffers, q.Ops, q.Notes = slices.Clone(p.Buffers), slices.Clone(p.Ops), slices.Clone(p.Notes)
	g := growthOf(p, known)
	stays := Constants(p)
	for i := range q.Buffers {
		b := &q.Buffers[i]
		size, ok := known[BufferID(i)]
		switch {
		case ok:
		case stays[i] || optimizers(p, BufferID(i)):
			continue
		default:
			size = g.size(b.Size)
		}
		if b.Size = max(b.Size, size); b.Size > MaxSize {
			return nil, fmt.Errorf("%w problem: buffer %d (%s) would have %d bytes", ErrInvalid, i, b.Name,
				b.Size)
		}
	}
	for i := range q.Ops {
		var before, after float64
		for _, a := range p.AccessesOf(OpID(i)) {
			before += float64(p.Buffers[a.Buffer].Size)
			after += float64(q.Buffers[a.Buffer].Size)
		}
		if before > 0 && after > before {
			op := &q.Ops[i]
			op.Duration = int64(float64(op.Duration) * after / before)
		}
	}
	q.TimesInferred = true
	if err := q.Finish(); err != nil {
		return nil, fmt.Errorf("scale %s to the sizes of a larger step: %w", p.Name, err)
	}
	return &q, nil
}

// Constants says which buffers of a single recording do not grow with the batch: parameters, optimizer state,
// other persistent buffers, and gradients of parameters. Recordings call gradients of activations gradients
// too, so a gradient counts as a parameter's if it persists, an op of the optimizer touches it, or a
// parameter has its size.
func Constants(p *Problem) []bool {
	sizes := map[int64]bool{}
	for i := range p.Buffers {
		if p.Buffers[i].Category == timeline.Parameter {
			sizes[p.Buffers[i].Size] = true
		}
	}
	constant := make([]bool, len(p.Buffers))
	for i := range p.Buffers {
		switch b := &p.Buffers[i]; b.Category {
		case timeline.Parameter, timeline.OptimizerState:
			constant[i] = true
		case timeline.Gradient:
			constant[i] = b.Life == Persistent || sizes[b.Size] ||
				slices.ContainsFunc(p.TouchesOf(BufferID(i)), func(t Touch) bool {
					return p.Ops[t.Op].Phase == traces.PhaseOptimizer
				})
		default:
			constant[i] = b.Life == Persistent
		}
	}
	return constant
}

// optimizers reports whether only the optimizer touches a buffer.
func optimizers(p *Problem, b BufferID) bool {
	touches := p.TouchesOf(b)
	return len(touches) > 0 && !slices.ContainsFunc(touches, func(t Touch) bool {
		return p.Ops[t.Op].Phase != traces.PhaseOptimizer
	})
}

// growth is how tensors of one size grow.
type growth struct {
	sizes []int64 // known, ascending
	of    map[int64]int64
	most  float64
}

// growthOf returns how the buffers whose sizes are known grow. Parameters, which are saved too, tell nothing.
func growthOf(p *Problem, known map[BufferID]int64) growth {
	g := growth{of: map[int64]int64{}, most: 1}
	for id, size := range known {
		b := &p.Buffers[id]
		if b.Size == 0 || b.Life == Persistent || b.Category == timeline.Parameter {
			continue
		}
		g.of[b.Size] = max(g.of[b.Size], size, b.Size)
		g.most = max(g.most, float64(size)/float64(b.Size))
	}
	g.sizes = slices.Sorted(maps.Keys(g.of))
	return g
}

// mostTimes is how many times another's size a tensor's may be and still grow with that.
const mostTimes = 16

// size returns how large a tensor of some bytes becomes.
func (g *growth) size(bytes int64) int64 {
	if to, ok := g.of[bytes]; ok {
		return to
	}
	near := slices.Clone(g.sizes)
	times := func(s int64) float64 {
		return max(float64(s), float64(bytes)) / min(float64(s), float64(bytes))
	}
	near = slices.DeleteFunc(near, func(s int64) bool {
		k := times(s)
		return bytes == 0 || k > mostTimes || k != math.Trunc(k)
	})
	if len(near) == 0 {
		return int64(math.Ceil(float64(bytes) * g.most))
	}
	s := slices.MinFunc(near, func(a, b int64) int { return cmp.Compare(times(a), times(b)) })
	return int64(math.Ceil(float64(bytes) * float64(g.of[s]) / float64(s)))
}
