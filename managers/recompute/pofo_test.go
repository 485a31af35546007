package recompute

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// TestPofoUsesTheLink: on chains whose copies take about as long as their ops pofo is faster than rotor at
// every budget that is short, and never slower.
func TestPofoUsesTheLink(t *testing.T) {
	t.Parallel()
	faster, tried := 0, 0
	for _, opTime := range []int64{300_000, 1_000_000, 3_000_000} {
		p := plantest.Chain(20, 1<<20, opTime)
		peak, _ := p.PeakLive()
		floor := p.MustReside().Total()
		for share := int64(1); share <= 9; share++ {
			budget := floor + (peak-floor)*share/10
			mine, rotors := stepOf(t, pofo{}, p, budget), stepOf(t, Rotor(), p, budget)
			if mine > rotors {
				t.Errorf("ops of %d ns, %d0 %%: pofo takes %d ns, rotor %d", opTime, share, mine, rotors)
			}
			if tried++; mine < rotors {
				faster++
			}
		}
	}
	if t.Logf("faster than rotor at %d of %d budgets", faster, tried); faster < tried*9/10 {
		t.Error("the link is hardly used")
	}
}

// With a link of no use pofo is rotor.
func TestPofoOverASlowLinkIsRotor(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		p := plantest.UnevenLayers(seed, 16).Problem()
		peak, _ := p.PeakLive()
		for share := int64(30); share <= 90; share += 20 {
			budget := peak * share / 100
			if mine, rotors := stepOf(t, pofo{}, p, budget), stepOf(t, Rotor(), p, budget); mine > rotors {
				t.Errorf("seed %d, %d %%: pofo takes %d ns, rotor %d", seed, share, mine, rotors)
			}
		}
	}
}

// The host's memory for copies is a limit, and without copy engines nothing goes to the host.
func TestPofoKeepsToTheHostsMemory(t *testing.T) {
	for _, c := range []struct {
		pinned int64
		none   bool
		most   int64 // bytes on the host
	}{{0, false, 20 << 20}, {3 << 20, false, 3 << 20}, {0, true, 0}} {
		p := plantest.Chain(20, 1<<20, 1_000_000)
		p.Hardware.PinnedBytes, p.Hardware.NoEngines = c.pinned, c.none
		peak, _ := p.PeakLive()
		pl, err := pofo{}.Plan(t.Context(), p, plan.Request{Budget: peak * 4 / 10})
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Error(err)
		}
		if out, _ := pl.Moved(); out > c.most || out == 0 && c.most > 0 {
			t.Errorf("%+v: %d bytes go to the host", c, out)
		}
	}
}
