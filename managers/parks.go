package managers

import (
	"context"
	"errors"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// parks is a manager that also has optimizer state wait on the host, in a running training whose budget
// cannot be met otherwise. It asks for a second plan only then, since planning takes seconds.
type parks struct{ plan.Manager }

// Plan implements plan.Manager.
func (m parks) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	pl, err := m.Manager.Plan(ctx, p, r)
	small := (*plan.TooSmall)(nil)
	if !p.EagerOnly || r.Budget <= 0 || err != nil && !errors.As(err, &small) {
		return pl, err
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
	parked.Parks = true
	parked.Note("optimizer state of %s waits on the host while no optimizer steps", timeline.IEC.Bytes(state))
	return parked, nil
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
	// nothing else has to leave
	if eager, err = place.Assemble(q, plan.Decisions{}); err != nil {
		return nil, err
	}
	if _, err := place.Place(ctx, q, eager, place.Options{Capacity: r.Budget, Work: eagerWork}); err != nil {
		return nil, err
	}
	eager.Manager, eager.Executor, eager.Budget = pl.Manager, plan.TorchEager, r.Budget
	return eager, nil
}
