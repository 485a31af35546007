package recompute

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

func TestTry(t *testing.T) {
	hw := plan.Hardware{Name: "x", D2H: plan.Link{BytesPerSecond: 12e9}, H2D: plan.Link{BytesPerSecond: 12e9}, Together: 1, FlopsPerSecond: 10e12, BytesPerSecond: 700e9}
	for _, n := range pickNets() {
		p, err := n.Problem(n.Batches[0], hw, networks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		peak, _ := p.PeakLive()
		must := p.MustReside()
		base, _ := plan.Assemble(p, plan.Decisions{})
		m0, _ := sim.Run(context.Background(), p, base, sim.Options{})
		for _, m := range pickManagers() {
			if m == nil {
				continue
			}
			for _, share := range []float64{0, 1, .8, .6, .4} {
				pl, err := m.Plan(context.Background(), p, plan.Request{Budget: int64(share * float64(peak)), Evaluator: sim.Simulator{}})
				if err != nil {
					t.Logf("%s %v: %v", n.Name, share, err)
					continue
				}
				if err := plan.Validate(p, pl); err != nil {
					t.Fatal(err)
				}
				m1, err := sim.Run(context.Background(), p, pl, sim.Options{})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%-14s ops %5d %-12s budget %.2f peak %6.0f MiB must %.2f -> %.3f step +%.1f%% plan %v %v", n.Name, p.Len(), m.Info().Name, share, float64(peak)/(1<<20), float64(must.Total())/float64(peak), float64(pl.Footprint)/float64(peak),
					100*(float64(m1.StepTime)/float64(m0.StepTime)-1), pl.Planning, pl.Notes[1:])
			}
		}
	}
}

func pickNets() (out []networks.Network) {
	want := strings.Split(os.Getenv("NETS"), ",")
	for _, n := range networks.All() {
		if slices.Contains(want, n.Name) || os.Getenv("NETS") == "" {
			out = append(out, n)
		}
	}
	return out
}

func pickManagers() (out []plan.Manager) {
	want := strings.Split(os.Getenv("MGRS"), ",")
	for _, m := range All() {
		if slices.Contains(want, m.Info().Name) || os.Getenv("MGRS") == "" {
			out = append(out, m)
		}
	}
	return out
}
