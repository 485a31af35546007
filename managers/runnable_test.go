package managers_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// TestWhatPyTorchCanDoOfAnyPlanOfOursIsTried: at this budget, what eager PyTorch can carry out of joint's
// plan for any executor is faster than its plan for eager PyTorch alone, and than all other managers' plans.
func TestWhatPyTorchCanDoOfAnyPlanOfOursIsTried(t *testing.T) {
	const work = 500_000
	joint, err := managers.Select("joint")
	if err != nil {
		t.Fatal(err)
	}
	p := gpt(60)
	eager := *p
	eager.EagerOnly = true
	peak, _ := p.PeakLive()
	budget := peak * 60 / 100
	r := plan.Request{Budget: budget, Seed: 1, Work: work, Evaluator: sim.Simulator{}}
	pl, err := joint[0].Plan(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	if pl, err = managers.Eager(t.Context(), &eager, pl); err != nil || pl == nil || pl.Footprint > budget {
		t.Fatalf("of the plan for any executor remains %+v: %v", pl, err)
	}
	m, err := sim.Run(t.Context(), &eager, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := stepWithin(t, joint[0], &eager, budget, work); got > m.StepTime || got == plantest.Never {
		t.Errorf("a step takes %d ns, and %d with a part of the plan for any executor", got, m.StepTime)
	}
}
