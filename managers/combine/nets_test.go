package combine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

func TestNets(t *testing.T) {
	for _, x := range []struct {
		net, hw string
		b       int
	}{{"VGG-16", "titan", 128}, {"ResNet-50", "v100", 64}, {"BERT-base", "a100", 32}, {"GPT-2 medium", "a100", 8}} {
		var hw plan.Hardware
		for _, h := range hardware.Presets() {
			if len(h.Name) > 0 && (hw.Name == "" || contains(h.Name, x.hw)) {
				hw = h
			}
		}
		n, err := networks.ByName(x.net)
		if err != nil {
			t.Fatal(err)
		}
		p, err := n.Problem(x.b, hw, networks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		keep, _, _ := measure(context.Background(), p, evaluator, plan.Decisions{})
		low := p.MustReside().Total()
		high, _ := p.PeakLive()
		fmt.Printf("%s %s ops %d buffers %d low %d high %d MiB keep %.1f ms\n", x.net, hw.Name, len(p.Ops), len(p.Buffers), low>>20, high>>20, float64(keep.step)/1e6)
		for _, f := range []float64{0.05, 0.2, 0.4, 0.6} {
			for _, m := range All() {
				budget := low + int64(f*float64(high-low))
				t0 := time.Now()
				pl, err := m.Plan(context.Background(), p, plan.Request{Budget: budget, Seed: 1, Evaluator: evaluator})
				if err != nil {
					t.Fatal(err)
				}
				el := time.Since(t0)
				if err := plan.Validate(p, pl); err != nil {
					t.Fatal(err)
				}
				ms, _ := sim.Run(context.Background(), p, pl, sim.Options{})
				live, _ := pl.PeakLive()
				sw, rc := 0, 0
				for _, x := range pl.Absences {
					if x.How == plan.Swap {
						sw++
					} else {
						rc++
					}
				}
				fmt.Printf("   f %.2f %-9s budget %5d foot %5d live %5d +%.1f%% stall %.1f recompute %.1f swaps %d rec %d, %v %s\n", f, m.Info().Name, budget>>20, pl.Footprint>>20, live>>20, 100*float64(ms.StepTime)/float64(keep.step)-100,
					float64(ms.Stall)/float64(keep.step)*100, 100*float64(ms.RecomputeTime)/float64(keep.step), sw, rc, el.Round(time.Millisecond), pl.Notes[len(pl.Notes)-1])
			}
		}
	}
}

func contains(a, b string) bool {
	for i := 0; i+len(b) <= len(a); i++ {
		ok := true
		for k := range b {
			if a[i+k]|32 != b[k]|32 {
				ok = false
			}
		}
		if ok {
			return true
		}
	}
	return false
}
