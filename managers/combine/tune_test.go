package combine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

func TestTune(t *testing.T) {
	for _, link := range []float64{1, 0.5, 0.1} {
		p := plantest.Chain(64, 1<<20, 1<<20)
		p.Hardware.D2H.BytesPerSecond *= link
		p.Hardware.H2D.BytesPerSecond *= link
		low := p.MustReside().Total()
		high, _ := p.PeakLive()
		fmt.Println("link", link, "low", low>>20, "high", high>>20)
		for _, f := range []float64{0, 0.05, 0.1, 0.25, 0.5, 0.75} {
			budget := low + int64(float64(high-low)*f)
			for _, m := range All() {
				t0 := time.Now()
				pl, err := m.Plan(context.Background(), p, plan.Request{Budget: budget, Seed: 1, Evaluator: evaluator})
				if err != nil {
					t.Fatal(err)
				}
				ms, _ := sim.Run(context.Background(), p, pl, sim.Options{})
				sw, rc := 0, 0
				for _, x := range pl.Absences {
					if x.How == plan.Swap {
						sw++
					} else {
						rc++
					}
				}
				live, _ := pl.PeakLive()
				again := 0
				for _, rr := range pl.Reruns {
					again += len(rr.Ops)
				}
				fmt.Printf("  %.2f %-9s budget %3d foot %3d live %3d step %6.1f%% stall %5.1f swaps %3d recomputes %3d (%d ops) work %d in %v\n", f, m.Info().Name, budget>>20, pl.Footprint>>20, live>>20,
					100*float64(ms.StepTime)/float64(p.Starts()[p.Len()]), float64(ms.Stall)/float64(p.Starts()[p.Len()])*100, sw, rc, again, pl.Work, time.Since(t0).Round(time.Millisecond))
			}
		}
	}
}
