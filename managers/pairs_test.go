package managers

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// Gradient accumulation: a manager that saves memory in one micro-batch alone saves none.
func TestAStepComesDownInAllOfItsMicroBatches(t *testing.T) {
	for _, micro := range []int{1, 2, 5} {
		p := plantest.Accumulated(micro, 12, 1<<20, 1e6)
		p.EagerOnly = true
		all, _ := p.PeakLive()
		for _, name := range []string{"sqrt", "dtr", "capuchin", "vdnn-all", "joint"} {
			ms, err := Select(name)
			if err != nil {
				t.Fatal(err)
			}
			pl, err := ms[0].Plan(context.Background(), p, plan.Request{Budget: all * 7 / 10,
				Evaluator: sim.Simulator{}, Work: 2000})
			if err != nil {
				t.Fatalf("%s, %d micro-batches: %v", name, micro, err)
			}
			eager, err := Eager(context.Background(), p, pl)
			if err != nil || eager == nil {
				t.Fatalf("%s, %d micro-batches: %v, %v", name, micro, eager, err)
			}
			if err := plan.Validate(p, eager); err != nil {
				t.Errorf("%s, %d micro-batches: %v", name, micro, err)
			}
			if got, _ := eager.PeakLive(); got > all*7/10 {
				t.Errorf("%s, %d micro-batches: %d bytes of %d, and the budget is %d", name, micro, got, all,
					all*7/10)
			}
		}
	}
}
