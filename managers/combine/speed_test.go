package combine

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

func TestSpeed(t *testing.T) {
	if os.Getenv("SPEED") == "" {
		t.Skip("SPEED")
	}
	ten := func() map[string]*plan.Problem {
		return map[string]*plan.Problem{"chain10k": plantest.Chain(3400, 1<<20, 1<<20), "random10k": plantest.Random(3, 6700)}
	}
	ps := ten()
	if os.Getenv("SPEED") == "100k" {
		ps = map[string]*plan.Problem{"chain100k": plantest.Chain(34000, 1<<20, 1<<20), "random100k": plantest.Random(3, 67000)}
	}
	for name, p := range ps {
		for _, link := range []float64{1, 0.2} {
			p.Hardware.D2H.BytesPerSecond = link * (1 << 30)
			p.Hardware.H2D.BytesPerSecond = link * (1 << 30)
			low := p.MustReside().Total()
			high, _ := p.PeakLive()
			for _, f := range []float64{0.3, 0.7} {
				budget := low + int64(float64(high-low)*f)
				for _, m := range All() {
					t0 := time.Now()
					pl, err := m.Plan(context.Background(), p, plan.Request{Budget: budget, Seed: 1, Evaluator: evaluator})
					if err != nil {
						t.Fatal(err)
					}
					el := time.Since(t0)
					ms, _ := sim.Run(context.Background(), p, pl, sim.Options{})
					fmt.Printf("%s %d buffers %d ops link %.1f f %.1f %-9s fits %v step %.1f%% absences %d reruns %d work %d in %v\n", name, len(p.Buffers), len(p.Ops), link, f, m.Info().Name, pl.Footprint <= budget,
						100*float64(ms.StepTime)/float64(p.Starts()[p.Len()]), len(pl.Absences), len(pl.Reruns), pl.Work, el.Round(time.Millisecond))
				}
			}
		}
	}
}
