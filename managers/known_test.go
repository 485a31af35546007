package managers

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/networks/networkstest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// A plan that is known for a smaller budget is the answer at a larger one if nothing better is found there.
func TestMoreMemoryIsNeverSlowerThanWhatIsKnown(t *testing.T) {
	p := networkstest.Problem(t, "vgg-16", 32, "v100-pcie-16gb")
	peak, _ := p.PeakLive()
	least := p.MustReside().Total()
	r := plan.Request{Seed: 1, Work: 200_000, Evaluator: sim.Simulator{}}
	planned := func(m plan.Manager, p *plan.Problem, budget int64, known ...*plan.Plan) *plan.Plan {
		t.Helper()
		r.Budget, r.Known = budget, known
		pl, err := m.Plan(t.Context(), p, r)
		if err != nil {
			t.Fatal(err)
		}
		return pl
	}
	dull, err := Select("vdnn-all") // it finds the same slow plan at every budget
	if err != nil {
		t.Fatal(err)
	}
	small, large := least+(peak-least)*6/10, least+(peak-least)*8/10
	quick := planned(joint.Joint{}, p, small)
	notes := slices.Clone(quick.Notes)
	alone := planned(dull[0], p, large)
	got := planned(knows{dull[0]}, p, large, quick)
	if !slices.Equal(got.Steps, quick.Steps) || got.Manager != "vdnn-all" || got.Budget != large {
		t.Errorf("%s within %d, and a faster plan was known", got.Manager, got.Budget)
	}
	if got.StepBound != alone.StepBound {
		t.Errorf("a bound for another budget: %d", got.StepBound)
	}
	if quick.Budget != small || quick.StepBound == 0 || !slices.Equal(quick.Notes, notes) {
		t.Error("the known plan was changed")
	}
	other := planned(joint.Joint{}, plantest.Chain(4, 1<<20, 1000), 100<<20)
	slow := planned(dull[0], p, large)
	for name, x := range map[string]*plan.Plan{
		"of another problem": other, "slower": slow,
		"for another executor": {Executor: plan.TorchEager, Steps: quick.Steps, Instances: quick.Instances},
	} {
		if got := planned(knows{joint.Joint{}}, p, large, x); !slices.Equal(got.Steps,
			planned(joint.Joint{}, p, large).Steps) {
			t.Errorf("a plan %s is taken", name)
		}
	}
	if got := planned(knows{joint.Joint{}}, p, quick.Footprint-1, quick); got.Footprint >= quick.Footprint {
		t.Errorf("a plan of %d bytes is taken within %d", got.Footprint, quick.Footprint-1)
	}
}
