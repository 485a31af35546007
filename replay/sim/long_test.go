package sim_test

import (
	"context"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// From some seconds on, a float64 that counts nanoseconds is coarser than a millionth of one: the rest of a
// step may then be too little to move the clock.
func TestIterationsOfHoursEnd(t *testing.T) {
	for seed := range uint64(200) {
		p, pl := random(t, seed, 0.8)
		q := *p
		q.Ops = slices.Clone(p.Ops)
		for i := range q.Ops {
			q.Ops[i].Duration = q.Ops[i].Duration*1_000_003 + 7
		}
		q.Hardware.Together = 0.9
		q.Hardware.D2H = plan.Link{BytesPerSecond: p.Hardware.D2H.BytesPerSecond / 1_000_003}
		q.Hardware.H2D = plan.Link{BytesPerSecond: p.Hardware.H2D.BytesPerSecond / 1_000_033}
		m, err := sim.Run(context.Background(), &q, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.StepTime <= 0 {
			t.Errorf("seed %d: a step of %d ns", seed, m.StepTime)
		}
	}
}
