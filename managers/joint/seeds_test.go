package joint_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/managers/swap"
	"github.com/gmemtop/gmemtop/replay/sim"
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

// TestLargeProblemsAreNotLeftToTheFirstWhoAreAsked: where planning takes long and other managers are asked
// first, one by one, none of them is faster than the result. Planning for tens of thousands of buffers with
// all managers takes a minute per budget, so here joint treats small problems as large ones.
func TestLargeProblemsAreNotLeftToTheFirstWhoAreAsked(t *testing.T) {
	t.Parallel()
	var others []plan.Manager
	for _, m := range managers.All() {
		switch i := m.Info(); {
		case i.Family <= plan.Pooling, i.Name == "joint", i.Name == "portfolio", i.Name == "zero-offload",
			i.Name == "checkmate", i.Name == "checkmate-lp", i.Name == "tvdnn-ilp":
		default:
			others = append(others, m)
		}
	}
	of := map[plan.Family]int{} // how often the best of the others is of each family
	for _, p := range []*plan.Problem{plantest.EvenLayers(40).Problem(),
		plantest.UnevenLayers(1, 24).Problem(), plantest.UnevenLayers(2, 24).Problem(),
		plantest.Chain(40, 1<<20, 1_000_000)} {
		peak, _ := p.PeakLive()
		for _, share := range []int64{15, 25, 35, 50, 70} {
			r := plan.Request{Budget: peak * share / 100, Seed: 1, Evaluator: sim.Simulator{}}
			if p.CheckBudget(r.Budget) != nil {
				continue
			}
			step := func(m plan.Manager, r plan.Request) int64 {
				pl, err := m.Plan(t.Context(), p, r)
				if err != nil || pl.Footprint > r.Budget {
					return plantest.Never
				}
				return measure(t, p, pl).StepTime
			}
			best, family := int64(plantest.Never), plan.Baseline
			for _, m := range others {
				if x := step(m, r); x < best {
					best, family = x, m.Info().Family
				}
			}
			r.Work = 10_000 // our own search is not under test
			if mine := step(joint.AsLarge(others...), r); mine > best {
				t.Errorf("%d ops at %d %%: joint takes %d ns, another %d", len(p.Ops), share, mine, best)
			}
			of[family]++
		}
	}
	if t.Log(of); of[plan.Recomputing] < 5 || of[plan.Swapping] < 3 {
		t.Error("the best of the others hardly ever is of a family that is asked late")
	}
}
