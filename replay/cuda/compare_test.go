//go:build cuda && linux && cgo

package cuda

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay"
)

// TestCompareShowsMeasurementsNextToTheSimulator hands the device to compare as its users do: several
// managers at once, each plan on both targets.
func TestCompareShowsMeasurementsNextToTheSimulator(t *testing.T) {
	target := device(t, 1<<30, nil)
	p := plantest.Chain(8, 16<<10, 30_000)
	chosen, err := managers.Select("caching,direct,smartpool,vdnn-all,checkmate*,capuchin,joint")
	if err != nil {
		t.Fatal(err)
	}
	peak, _ := p.PeakLive()
	floor := p.MustReside().Total()
	c, err := replay.Compare(context.Background(), p, chosen,
		replay.Options{Budget: floor + (peak-floor)*7/10, Work: 40, Parallel: 3,
			Targets: []replay.Target{replay.Simulated{}, target}})
	if err != nil {
		t.Fatal(err)
	}
	simulated, measured := map[string]replay.Result{}, 0
	for _, r := range c.Results {
		if r.Target == "sim" {
			simulated[r.Info.Name] = r
		}
	}
	for _, r := range c.Results {
		s := simulated[r.Info.Name]
		if r.Target != "cuda:0" {
			continue
		}
		if r.Available != s.Available || r.Measurement.Footprint != s.Measurement.Footprint ||
			r.Fits != s.Fits {
			t.Errorf("%s: measured %t, %d bytes, fits %t (%s); simulated %t, %d, %t", r.Info.Name,
				r.Available, r.Measurement.Footprint, r.Fits, r.Reason, s.Available, s.Measurement.Footprint,
				s.Fits)
		}
		if r.Available {
			measured++
		}
	}
	if measured < 6 {
		t.Errorf("%d managers were measured", measured)
	}
}
