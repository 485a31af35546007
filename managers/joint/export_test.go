package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// What the external tests, which need managers that import this package, share with the internal ones.
var (
	Network = network
	Serial  = serial
)

// AsLarge returns our planner with other managers to ask, which treats any problem as one of tens of
// thousands of buffers.
func AsLarge(others ...plan.Manager) Joint {
	par := defaults()
	par.largeProblem, par.hugeProblem, par.vastProblem, par.tieBuffers = 0, 0, 0, 0
	return Joint{params: &par, seeds: others}
}

// Unrefined returns our planner with other managers to ask, without cool searches.
func Unrefined(others ...plan.Manager) Joint {
	par := defaults()
	par.cool = nil
	return Joint{params: &par, seeds: others}
}

// WithoutLenders returns our planner with other managers to ask, whose searches borrow from no plan.
func WithoutLenders(others ...plan.Manager) Joint {
	par := defaults()
	par.lenders = 0
	return Joint{params: &par, seeds: others}
}

// Bounds are the bounds of one problem. Shared work is done once.
type Bounds struct {
	all   *bounder
	alone map[plan.Family]*bounder
}

// NewBounds returns the bounds of a problem.
func NewBounds(p *plan.Problem) *Bounds {
	m := compile(p, defaults())
	return &Bounds{newBounder(m), map[plan.Family]*bounder{
		plan.Swapping: alone(m, plan.Swapping), plan.Recomputing: alone(m, plan.Recomputing),
	}}
}

// Best is [Bound].
func (x *Bounds) Best(limit int64) int64 { return x.all.best(limit) }

// OfMoment is [Bound] by the fullest moments alone.
func (x *Bounds) OfMoment(limit int64) int64 { return x.all.bound(limit, x.all.m.params.publicTurns) }

// Alone is [Bound] for plans that only do what a family does.
func (x *Bounds) Alone(limit int64, family plan.Family) int64 {
	return x.alone[family].bound(limit, x.all.m.params.mostTurns)
}
