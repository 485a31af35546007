package managers

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/networks/networkstest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// Below what a step holds at all times, joint has optimizer state wait on the host and moves other buffers
// beside it. Eager PyTorch gets a plan of the same step.
func TestJointMeetsABudgetBelowWhatResides(t *testing.T) {
	p := networkstest.Problem(t, "bert", 4, "v100-pcie-16gb")
	joint, err := Select("joint")
	if err != nil {
		t.Fatal(err)
	}
	budget := p.MustReside().Total() * 9 / 10
	r := plan.Request{Budget: budget, Work: 100_000, Evaluator: sim.Simulator{}}
	pl, err := joint[0].Plan(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	if !pl.Parks || len(pl.Absences) == 0 || pl.Footprint > budget {
		t.Fatalf("parks %v, %d absences, %d bytes within %d", pl.Parks, len(pl.Absences), pl.Footprint,
			budget)
	}
	eager, err := Eager(t.Context(), p, pl)
	if pl.SectionBytes > 0 && err == nil && eager == nil {
		return // buffers are cut, which eager PyTorch cannot do
	}
	if err != nil || eager == nil || !eager.Parks || eager.Executor != plan.TorchEager {
		t.Fatalf("eager: %+v, %v", eager, err)
	}
	for _, x := range []*plan.Plan{pl, eager} {
		if err := plan.Validate(p, x); err != nil {
			t.Error(err)
		}
	}
}

// A plan with parked optimizer state that is made for any executor is remade for eager PyTorch.
func TestAParkedPlanIsMadeForEagerPyTorch(t *testing.T) {
	p := networkstest.Problem(t, "alexnet", 64, "v100-pcie-16gb")
	zero, err := Select("zero-offload")
	if err != nil {
		t.Fatal(err)
	}
	pl, err := zero[0].Plan(t.Context(), p, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	eager, err := Eager(t.Context(), p, pl)
	if err != nil || !eager.Parks || eager.Executor != plan.TorchEager || pl.Executor != plan.Ideal {
		t.Fatalf("%+v, %v", eager, err)
	}
	if err := plan.Validate(p, eager); err != nil {
		t.Error(err)
	}
}
