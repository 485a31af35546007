package replay_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/replay"
)

// knows is a manager that plans for eager PyTorch if the problem says so.
type knows struct{ plan.Manager }

func (m knows) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	pl, err := m.Manager.Plan(ctx, p, r)
	if err != nil || !p.EagerOnly {
		return pl, err
	}
	return managers.Eager(ctx, p, pl)
}

// If what eager PyTorch can run of a plan is too large, the manager is asked to plan for eager PyTorch alone.
func TestAManagerPlansForEagerPyTorchAlone(t *testing.T) {
	p := plantest.Chain(12, 8<<20, 4_000_000)
	peak, _ := p.PeakLive()
	all, err := managers.Select("capuchin")
	if err != nil {
		t.Fatal(err)
	}
	got, err := replay.Compare(t.Context(), p, []plan.Manager{knows{all[0]}},
		replay.Options{Budget: peak * 7 / 10, Seed: 1,
			Eager: func(ctx context.Context, p *plan.Problem, pl *plan.Plan) (*plan.Plan, error) {
				if pl.Executor == plan.TorchEager {
					return pl, nil
				}
				all, err := pool.Exact().Plan(ctx, p, plan.Request{})
				if err == nil {
					all.Executor = plan.TorchEager
				}
				return all, err
			}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Results {
		if r.Executor == plan.TorchEager {
			if !r.Fits {
				t.Errorf("the plan for eager PyTorch takes %d bytes of %d", r.Measurement.Footprint, got.Net)
			}
			return
		}
	}
	t.Errorf("no plan for eager PyTorch among %d results", len(got.Results))
}
