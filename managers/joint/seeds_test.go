package joint_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/managers/swap"
)

// TestNoManagerUndercutsTheBoundOfItsFamily: where that bound is above the best plan, joint does not ask.
func TestNoManagerUndercutsTheBoundOfItsFamily(t *testing.T) {
	t.Parallel()
	tried, above := map[plan.Family]int{}, map[plan.Family]int{}
	check := func(p *plan.Problem, bounds *joint.Bounds, m plan.Manager, budget int64) {
		t.Helper()
		pl, err := m.Plan(t.Context(), p, request(budget))
		if err != nil || pl.Footprint > budget {
			return
		}
		family := m.Info().Family
		bound, step := bounds.Alone(budget, family), measure(t, p, pl).StepTime
		if bound > step {
			t.Errorf("%s takes %d ns within %d bytes, the bound is %d", m.Info().Name, step, budget, bound)
		}
		tried[family]++
		if bound > bounds.OfMoment(budget) {
			above[family]++
		}
	}
	var problems []*plan.Problem
	for seed := range uint64(5) {
		problems = append(problems, plantest.Random(seed, 20+int(seed)*2))
		problems = append(problems, plantest.UnevenLayers(seed, 10).Problem())
	}
	problems = append(problems, plantest.Chain(20, 1<<20, 1_000_000), plantest.EvenLayers(20).Problem())
	for _, p := range problems {
		bounds := joint.NewBounds(p)
		for _, budget := range budgets(p, 5)[1:4] {
			for _, m := range append(swap.All(), recompute.Sqrt(), recompute.DTR(), recompute.Rotor()) {
				switch m.Info().Name {
				case "vdnn-dyn", "autoswap", "tvdnn-ilp": // they take long, and others of their kind do not
				default:
					check(p, bounds, m, budget)
				}
			}
		}
	}
	for _, family := range []plan.Family{plan.Swapping, plan.Recomputing} {
		t.Logf("%s: %d plans, the bound above that of doing all for %d", family, tried[family], above[family])
		if tried[family] < 20 || above[family] < 5 {
			t.Errorf("%s: the law was hardly tried", family)
		}
	}
}
