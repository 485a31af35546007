package joint_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// Cool searches come after all others and only add plans, so no plan is slower because of them. Some are
// faster: among many absences, hot searches end above what cool ones reach.
func TestCoolSearchesNeverMakeAPlanSlower(t *testing.T) {
	t.Parallel()
	others := published()
	faster := 0
	p := joint.Network(t, "VGG-16")
	for _, b := range budgets(p, 8)[4:6] {
		r := plan.Request{Budget: b, Seed: 1, Evaluator: sim.Simulator{}}
		step := func(m plan.Manager) int64 {
			pl, err := m.Plan(t.Context(), p, r)
			if err != nil {
				t.Fatal(err)
			}
			if pl.Footprint > b {
				return plantest.Never
			}
			return measure(t, p, pl).StepTime
		}
		with, without := step(joint.Seeded(others...)), step(joint.Unrefined(others...))
		if with > without {
			t.Errorf("%d ns within %d bytes, %d without cool searches", with, b, without)
		}
		if with < without {
			faster++
		}
	}
	if faster == 0 {
		t.Error("with cool searches no plan is faster than without")
	}
}
