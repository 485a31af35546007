package managers

import (
	"context"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// orders is a manager that runs ops in another order. If that alone does not meet the budget, joint plans the
// problem in that order. It is not the other way round: joint's plans are for executors that run ops as the
// program does, and all bounds and comparisons are for those.
type orders struct{ plan.Manager }

// Plan implements plan.Manager.
func (m orders) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	pl, err := m.Manager.Plan(ctx, p, r)
	if err != nil || r.Budget <= 0 || pl.Footprint <= r.Budget || ctx.Err() != nil {
		return pl, err
	}
	q, err := pl.Of(p)
	if err != nil {
		return nil, err
	}
	moves, err := joint.Joint{}.Plan(ctx, q, r)
	if err != nil || moves.Footprint > r.Budget && moves.Footprint >= pl.Footprint {
		return pl, nil
	}
	moves.Manager, moves.Executor, moves.Sequence = pl.Manager, pl.Executor, pl.Sequence
	moves.Work, moves.Planning = pl.Work+moves.Work, pl.Planning+moves.Planning
	moves.Notes = append(pl.Notes, moves.Notes...)
	moves.Note("in this order, joint chose what leaves memory; the bound is one for plans in this order")
	return moves, nil
}
