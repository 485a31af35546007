package managers

import (
	"context"
	"errors"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// parks is a manager that also has optimizer state wait on the host: in a running training if its budget
// cannot be met otherwise, elsewhere if that is faster as well. It makes a second plan only then, since
// planning takes seconds.
type parks struct{ plan.Manager }

// Plan implements plan.Manager.
func (m parks) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	pl, err := m.Manager.Plan(ctx, p, r)
	small := (*plan.TooSmall)(nil)
	switch {
	case r.Budget <= 0 || err != nil && !errors.As(err, &small):
		return pl, err
	case !p.EagerOnly:
		return m.faster(ctx, p, r, pl, err)
	}
	held := p.Held() - p.Outside
	if err == nil {
		eager, eagerErr := Eager(ctx, p, pl)
		if eagerErr != nil {
			return pl, nil
		}
		if eager != nil {
			held, _ = eager.PeakLive()
		}
		if held <= r.Budget {
			return pl, nil
		}
	}
	q, state := p.Parked()
	if q == nil {
		return pl, err
	}
	parked, parkedErr := m.with(ctx, q, r)
	if parkedErr != nil {
		if err != nil {
			return nil, parkedErr
		}
		return pl, nil
	}
	if with, _ := parked.PeakLive(); err == nil && with >= held {
		return pl, nil
	}
	return park(parked, state), nil
}

// park signs a plan for a step whose optimizer state is away.
func park(pl *plan.Plan, state int64) *plan.Plan {
	pl.Parks = true
	pl.Note("%s of optimizer state stays on the host between optimizer steps", timeline.IEC.Bytes(state))
	return pl
}

// faster returns pl, or a plan that keeps optimizer state away if that is faster, takes less memory at the
// same speed, or alone fits the budget. A plan with state away takes at least as long as its ops and the
// copies of the state: if pl is faster than that, no such plan is made.
func (m parks) faster(
	ctx context.Context, p *plan.Problem, r plan.Request, pl *plan.Plan, err error,
) (*plan.Plan, error) {
	q, state := p.Parked()
	if q == nil || ctx.Err() != nil {
		return pl, err
	}
	fits := err == nil && pl.Footprint <= r.Budget
	var known int64
	if fits {
		if r.Evaluator == nil || !p.HasTimes {
			return pl, nil
		}
		at, evaluateErr := r.Evaluator.Evaluate(ctx, p, pl)
		if evaluateErr != nil || at.StepTime < joint.Bound(q, 0)/int64(max(q.Iterations, 1)) {
			return pl, nil
		}
		known = at.StepTime
	}
	r.Near = nil // its bound is that of another problem
	parked, parkedErr := m.Manager.Plan(ctx, q, r)
	switch {
	case parkedErr != nil && err != nil:
		return nil, err
	case parkedErr != nil || err == nil && !fits && parked.Footprint >= pl.Footprint:
		return pl, nil
	case fits:
		at, evaluateErr := r.Evaluator.Evaluate(ctx, q, parked)
		if evaluateErr != nil || parked.Footprint > r.Budget || at.StepTime > known ||
			at.StepTime == known && parked.Footprint >= pl.Footprint {
			return pl, nil
		}
	}
	return park(parked, state), nil
}

// with plans a problem whose optimizer state is away, for eager PyTorch.
func (m parks) with(ctx context.Context, q *plan.Problem, r plan.Request) (*plan.Plan, error) {
	pl, err := m.Manager.Plan(ctx, q, r)
	if err != nil {
		return nil, err
	}
	eager, err := Eager(ctx, q, pl)
	if err != nil || eager != nil {
		return eager, err
	}
	// nothing else must leave
	if eager, err = place.Assemble(q, plan.Decisions{}); err != nil {
		return nil, err
	}
	if _, err := place.Place(ctx, q, eager, place.Options{Capacity: r.Budget, Work: eagerWork}); err != nil {
		return nil, err
	}
	eager.Manager, eager.Executor, eager.Budget = pl.Manager, plan.TorchEager, r.Budget
	eager.Work, eager.Planning = pl.Work, pl.Planning
	return eager, nil
}
