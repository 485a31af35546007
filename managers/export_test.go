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

// Segments plans segments with swaps for eager PyTorch, and nothing else.
type Segments struct{}

// Info implements plan.Manager.
func (Segments) Info() plan.Info { return plan.Info{Name: "segments"} }

// Plan implements plan.Manager.
func (m Segments) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	s := eagerSearch{ctx: ctx, p: p, r: r}
	if x := s.segments(); x.Plan != nil {
		return x.Plan, nil
	}
	return nil, &plan.Unavailable{Manager: m.Info().Name, Reason: "nothing can be cut"}
}
