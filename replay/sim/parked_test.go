package sim_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// TestOptimizerStateThatWaitsOnTheHostCountsAsMoved: a step whose state leaves and returns copies it twice.
func TestOptimizerStateThatWaitsOnTheHostCountsAsMoved(t *testing.T) {
	const state = 8 << 20
	b := plantest.New()
	act := b.Buffer("act", 1<<20, timeline.Activation)
	moment := b.Persistent("exp_avg", state, timeline.OptimizerState)
	b.Op("forward", traces.PhaseForward, 1000, nil, []plan.BufferID{act})
	b.Op("backward", traces.PhaseBackward, 1000, []plan.BufferID{act}, nil)
	b.Op("update", traces.PhaseOptimizer, 1000, nil, nil)
	b.Mutate(moment)
	p := b.End()
	q, _ := p.Parked()
	for _, c := range []struct {
		of     *plan.Problem
		parks  bool
		copied int64
	}{{p, false, 0}, {q, true, state}} {
		pl, err := plan.Assemble(c.of, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		pl.Parks = c.parks
		offsets, end := make([]int64, len(pl.Instances)), int64(0)
		for i := range offsets {
			offsets[i], end = end, end+pl.Instances[i].Size
		}
		pl.Place(offsets)
		pl.Order(c.of)
		m, err := sim.Run(t.Context(), p, pl, sim.Options{})
		if err != nil || m.SwappedOut != c.copied || m.SwappedIn != c.copied {
			t.Errorf("%d bytes out and %d in, want %d: %v", m.SwappedOut, m.SwappedIn, c.copied, err)
		}
	}
}
