package joint

import (
	"math"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// prove spends more effort on the bound if a plan that takes known nanoseconds is not near it.
func (b *bounder) prove(limit int64, turns int, known, work int64) int64 {
	bound := b.bound(limit, turns)
	par := &b.m.params
	if float64(known) <= float64(bound)*(1+par.proofGap) {
		return bound
	}
	s := newIntervals(b, limit)
	if s == nil {
		return bound
	}
	v := s.prove(float64(known), par.proofGap, work)
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return bound
	}
	return max(bound, int64(v*(1-1e-9)))
}

// Bound returns a proven lower bound, in nanoseconds, on the step time of every plan of the problem whose
// footprint is at most limit bytes, or of every plan if limit is 0.
func Bound(p *plan.Problem, limit int64) int64 { return newBounder(compile(p, defaults())).best(limit) }

// best returns the tightest bound that we can prove.
func (b *bounder) best(limit int64) int64 {
	par := &b.m.params
	if limit <= 0 {
		return b.bound(math.MaxInt64/2, par.publicTurns)
	}
	known := b.bound(limit, par.publicTurns)
	known += known / par.proofAim
	return b.prove(limit, par.publicTurns, known, par.proofWork)
}
