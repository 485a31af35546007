package recompute

import (
	"errors"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// TestCheckmateSolvesOrHasNoPlan: a plan fits the budget and is within the gap of what is proven; with too
// little work, or where nothing fits, checkmate says that the problem is unsolved.
func TestCheckmateSolvesOrHasNoPlan(t *testing.T) {
	solved, unsolved := 0, 0
	ask := func(p *plan.Problem, budget, work int64) error {
		t.Helper()
		pl, err := Checkmate().Plan(t.Context(), p, plan.Request{Budget: budget, Work: work})
		var none *plan.Unavailable
		switch {
		case err == nil:
			solved++
			if budget > 0 && pl.Footprint > budget {
				t.Errorf("a plan of %d bytes within %d", pl.Footprint, budget)
			}
		case errors.As(err, &none) && strings.HasPrefix(none.Reason, "unsolved: "):
			unsolved++
			if pl != nil {
				t.Error("an unsolved problem has a plan")
			}
		default:
			t.Error(err)
		}
		return err
	}
	for seed := range uint64(4) {
		p := training(seed, 10)
		for _, percent := range []int64{70, 40, 10} {
			ask(p, part(p, percent), 0)
			ask(p, part(p, percent), 1)
		}
	}
	p := training(1, 10)
	if peak, _ := p.PeakLive(); ask(p, peak, 0) != nil {
		t.Error("keeping everything is unsolved")
	}
	p = plantest.Chain(8, 1<<20, 1000)
	for i := range p.Ops {
		p.Ops[i].Rerunnable = false
	}
	if ask(p, part(p, 30), 0) == nil {
		t.Error("a budget is met by running again what cannot run again")
	}
	if t.Logf("%d solved, %d unsolved", solved, unsolved); solved < 8 || unsolved < 8 {
		t.Error("the rule was hardly tried")
	}
}
