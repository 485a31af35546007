package joint_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// BenchmarkPlan plans the training of a deep chain, and a random iteration, of about a thousand to a hundred
// thousand buffers within half of the memory that they take.
func BenchmarkPlan(b *testing.B) {
	for _, buffers := range []int{1_000, 10_000, 100_000} {
		for name, p := range map[string]*plan.Problem{
			"chain":  plantest.Chain(buffers/3, 1<<20, 1_000_000),
			"random": plantest.Random(1, buffers*2/3),
		} {
			b.Run(fmt.Sprintf("%s/buffers=%d", name, len(p.Buffers)), func(b *testing.B) {
				peak, _ := p.PeakLive()
				budget := (peak + p.MustReside().Total()) / 2
				for b.Loop() {
					pl, err := joint.Joint{}.Plan(
						context.Background(),
						p,
						plan.Request{Budget: budget, Evaluator: sim.Simulator{}},
					)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(pl.Footprint)/float64(budget), "footprint/budget")
					if pl.StepBound > 0 {
						m, err := sim.Run(context.Background(), p, pl, sim.Options{})
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(float64(m.StepTime)/float64(pl.StepBound), "time/bound")
					}
				}
			})
		}
	}
}
