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
		with := fastest(t, p, joint.Seeded(others...), r)
		without := fastest(t, p, joint.Unrefined(others...), r)
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

// A plan for little memory is faster for what its searches borrow from others.
func TestBorrowingMakesPlansFaster(t *testing.T) {
	t.Parallel()
	others := published()
	p := joint.Network(t, "AlexNet")
	r := plan.Request{Budget: budgets(p, 8)[5], Seed: 1, Evaluator: sim.Simulator{}}
	with := fastest(t, p, joint.Seeded(others...), r)
	without := fastest(t, p, joint.WithoutLenders(others...), r)
	if with >= without || with == plantest.Never {
		t.Errorf("%d ns within %d bytes with borrowing, %d without", with, r.Budget, without)
	}
}

// fastest returns the step time of a manager's plan, [plantest.Never] if it does not fit.
func fastest(t *testing.T, p *plan.Problem, m plan.Manager, r plan.Request) int64 {
	t.Helper()
	pl, err := m.Plan(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	if pl.Footprint > r.Budget {
		return plantest.Never
	}
	return measure(t, p, pl).StepTime
}
