//go:build cuda && linux && cgo

package cuda

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// TestEveryManagersPlanKeepsEveryByteAndHoldsWhatItSays runs all managers on small problems: verification
// clean, footprint as planned, copies as planned, and for online allocators what the simulator found.
func TestEveryManagersPlanKeepsEveryByteAndHoldsWhatItSays(t *testing.T) {
	target := device(t, 1<<30, nil)
	plans := map[string]int{}
	for _, p := range []*plan.Problem{plantest.Chain(8, 16<<10, 30_000), plantest.Chain(3, 1<<20, 200_000)} {
		p.Align = 512
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
		floor, peak := p.MustReside().Total(), int64(0)
		peak, _ = p.PeakLive()
		for _, m := range managers.All() {
			name := m.Info().Name
			r := plan.Request{Budget: floor + (peak-floor)*6/10, Seed: 1, Work: 40,
				Evaluator: sim.Simulator{}}
			if name == "checkmate" {
				r.Work = 0 // it has no plan until it has solved its problem
			}
			pl, err := m.Plan(context.Background(), p, r)
			if errors.As(err, new(*plan.Unavailable)) || errors.As(err, new(*plan.TooSmall)) {
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			lib.Order(uint64(len(plans)) % 7)
			got, err := target.Run(context.Background(), p, pl, plan.RunOptions{Cap: r.Budget})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			want, err := sim.Run(context.Background(), p, pl, sim.Options{Cap: r.Budget})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			plans[name]++
			if got.Footprint != want.Footprint || got.SwappedOut != want.SwappedOut ||
				got.SwappedIn != want.SwappedIn || got.Reserved != want.Reserved {
				t.Errorf("%s: %d bytes held (%d uncapped), %d out, %d in; simulated %d (%d), %d, %d", name,
					got.Footprint, got.Reserved, got.SwappedOut, got.SwappedIn, want.Footprint, want.Reserved,
					want.SwappedOut, want.SwappedIn)
			}
			if got.StepTime <= 0 || got.StepP95 < got.StepTime || (got.PinnedPeak < want.PinnedPeak) {
				t.Errorf("%s: step time %d, p95 %d, pinned %d and %d simulated", name, got.StepTime,
					got.StepP95, got.PinnedPeak, want.PinnedPeak)
			}
		}
	}
	for _, m := range managers.All() {
		name := m.Info().Name
		if name == "zero-offload" { // these problems have no optimizer state
			continue
		}
		if plans[name] == 0 && !strings.Contains(name, "ilp") {
			t.Errorf("no plan by %s was carried out", name)
		}
	}
}
