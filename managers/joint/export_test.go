package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// What the tests beside this package, which need managers that import it, share with those in it.
var (
	Network = network
	Serial  = serial
)

// BoundAlone is [Bound] for plans that do what a family does and nothing else.
func BoundAlone(p *plan.Problem, limit int64, family plan.Family) int64 {
	set := defaults()
	return alone(compile(p, set), family).bound(limit, set.mostTurns)
}

// BoundOfMoment is [Bound] by the fullest moments alone.
func BoundOfMoment(p *plan.Problem, limit int64) int64 {
	set := defaults()
	return newBounder(compile(p, set)).bound(limit, set.publicTurns)
}
