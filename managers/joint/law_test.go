package joint_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

func budgets(p *plan.Problem) []int64 {
	peak, _ := p.PeakLive()
	floor := p.MustReside().Total()
	var b []int64
	for k := range 10 {
		b = append(b, floor+(peak*95/100-floor)*int64(9-k)/9)
	}
	return b
}

func TestEveryPlanIsValid(t *testing.T) {
	fits, asked := 0, 0
	for seed := range uint64(120) {
		p := plantest.Random(seed, 8+int(seed%60))
		for _, b := range append(budgets(p), 0) {
			if p.CheckBudget(b) != nil {
				continue
			}
			pl, err := joint.Joint{}.Plan(context.Background(), p, plan.Request{Budget: b, Evaluator: sim.Simulator{}})
			if err != nil {
				t.Fatalf("seed %d budget %d: %v", seed, b, err)
			}
			if err := plan.Validate(p, pl); err != nil {
				t.Fatalf("seed %d budget %d: %v", seed, b, err)
			}
			asked++
			if b == 0 || pl.Footprint <= b {
				fits++
			}
		}
	}
	t.Logf("%d of %d fit", fits, asked)
}

func TestChain(t *testing.T) {
	p := plantest.Chain(16, 1<<20, 1_000_000)
	for _, b := range append(budgets(p), 0) {
		pl, err := joint.Joint{}.Plan(context.Background(), p, plan.Request{Budget: b, Evaluator: sim.Simulator{}})
		if err != nil {
			t.Fatal(err)
		}
		m, _ := sim.Run(context.Background(), p, pl, sim.Options{})
		t.Logf("budget %d footprint %d time %d stall %d redo %d swapped %d work %d planning %v", b, pl.Footprint, m.StepTime, m.Stall, m.RecomputeTime, m.SwappedOut, pl.Work, pl.Planning)
	}
}
