package crew

import (
	"context"
	"errors"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A plan that swaps only in the first of two micro-batches costs time and saves nothing: the second holds as
// much as before.
func TestAPlanThatLowersNoPeakIsNotCarriedOut(t *testing.T) {
	p := plantest.Accumulated(2, 6, 1<<20, 1e6)
	pairs := p.Pairs()
	for _, all := range []bool{false, true} {
		var d plan.Decisions
		for _, g := range p.Gaps(1, 1) {
			in := plan.PairAt(pairs, g.After)
			if g.After < in.Turn && in.Turn <= g.Before && (all || in.Begin == 0) {
				d.Absences = append(d.Absences, plan.Absence{How: plan.Swap, Buffer: g.Buffer, After: g.After,
					Release: g.After + 1, Fetch: g.Before, Before: g.Before})
			}
		}
		pl, err := plan.Assemble(p, d)
		if err != nil || len(d.Absences) == 0 {
			t.Fatal(len(d.Absences), err)
		}
		pl.Executor = plan.TorchEager
		c := Choice{Make: func(context.Context, *plan.Problem, int64) (*plan.Plan, error) { return pl, nil }}
		_, err = c.Plan(t.Context(), p, maybe.Int{})
		if errors.Is(err, live.ErrNoGain) == all || all && err != nil {
			t.Errorf("swaps in all micro-batches %v: %v", all, err)
		}
	}
}

func TestATrainingFitsOnlyARoomThatIsKnown(t *testing.T) {
	for _, c := range []struct {
		room maybe.Int
		all  int64
		want bool
	}{
		{maybe.Int{}, 0, false}, {maybe.Int{}, 1, false},
		{maybe.Known(1000), 900, true}, {maybe.Known(1000), 901, false},
	} {
		x := Choice{Caching: func(context.Context, *plan.Problem) (int64, error) { return c.all, nil }}
		if got, err := x.fits(t.Context(), nil, c.room); err != nil || got != c.want {
			t.Errorf("%d in %v: %t, %v", c.all, c.room, got, err)
		}
	}
}
