package managers

import (
	"context"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Asking returns joint as it is among all managers, but with each of those that it asks wrapped.
func Asking(wrap func(plan.Manager) plan.Manager) plan.Manager {
	asked := seeds(comparable(published()))
	for i := range asked {
		asked[i] = wrap(asked[i])
	}
	return ours(asked)
}

// Segments returns the plan of segments with swaps for eager PyTorch.
func Segments(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	s := eagerSearch{ctx: ctx, p: p, r: r}
	return s.segments().Plan, nil
}
