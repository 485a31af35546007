package managers_test

import (
	"fmt"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/networks/networkstest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// TestTheSmallestPlanIsNoLargerThanAnyBudgetThatIsMet: asked for as little memory as a step can take at all,
// joint returns its smallest plan. At no budget below that plan's footprint does it have one that fits.
func TestTheSmallestPlanIsNoLargerThanAnyBudgetThatIsMet(t *testing.T) {
	t.Parallel()
	ours, err := managers.Select("joint")
	if err != nil {
		t.Fatal(err)
	}
	cases := []lawCase{
		{name: "uneven layers", p: plantest.UnevenLayers(1, 24).Problem()},
		{name: "adam", p: adam(8)},
		{name: "alexnet", p: networkstest.Problem(t, "alexnet", 128, "titan-x")},
	}
	for seed := range uint64(24) {
		p := plantest.Random(seed, 20+int(seed)*3)
		cases = append(cases, lawCase{name: fmt.Sprint("random ", seed), p: p})
	}
	tried := 0
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			within := func(budget int64) *plan.Plan {
				t.Helper()
				r := plan.Request{Budget: budget, Seed: 1, Work: 300_000, Evaluator: sim.Simulator{}}
				pl, err := ours[0].Plan(t.Context(), x.p, r)
				if err != nil {
					t.Fatal(err)
				}
				return pl
			}
			low := plan.LeastResident(x.p)
			high := within(low).Footprint - 1
			for k := range min(high-low, 5) { // none if the least fits
				budget := high - (high-low)*k/5
				if pl := within(budget); pl.Footprint <= budget {
					t.Errorf("the smallest plan takes %d bytes, and one of %d fits %d", high+1, pl.Footprint,
						budget)
				}
				tried++
			}
		})
	}
	if t.Logf("%d budgets below the smallest plan", tried); tried < 30 {
		t.Error("the law was hardly tried")
	}
}
