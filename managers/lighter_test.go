package managers_test

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/managers/swap"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// onA100 returns a network for eager PyTorch at its smallest batch.
func onA100(t *testing.T, name string) *plan.Problem {
	t.Helper()
	n, err := networks.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := hardware.ByName("a100-40gb")
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.Problem(n.Batches[0], hw, networks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.EagerOnly = true
	return p
}

// TestSwapsBesideSegmentsAreValidAndTakeLessMemory: what segments leave in memory can leave by swaps, and a
// region still finds its input when it runs again.
func TestSwapsBesideSegmentsAreValidAndTakeLessMemory(t *testing.T) {
	for _, name := range []string{"ResNet-50", "GoogLeNet", "VGG-16", "GPT-2 small"} {
		p := onA100(t, name)
		cuts := recompute.NewSegments(p)
		counts := cuts.Counts()
		k := counts[len(counts)/2]
		d, err := cuts.Cut(k)
		if err != nil {
			t.Fatal(err)
		}
		x, err := managers.Eager(t.Context(), p, &plan.Plan{Absences: d.Absences, Reruns: d.Reruns})
		if err != nil || x == nil {
			t.Fatalf("%s: %v, %v", name, x, err)
		}
		live, _ := x.PeakLive()
		swaps, err := swap.Beside(t.Context(), p, x, live*9/10)
		if err != nil || len(swaps) == 0 {
			t.Fatalf("%s: %d swaps beside %d segments: %v", name, len(swaps), k, err)
		}
		both, err := managers.Eager(t.Context(), p,
			&plan.Plan{Absences: slices.Concat(x.Absences, swaps), Reruns: x.Reruns})
		if err != nil || both == nil {
			t.Fatalf("%s: %v, %v", name, both, err)
		}
		if err := plan.Validate(p, both); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		less, _ := both.PeakLive()
		if out, _ := both.Moved(); less >= live || out == 0 || len(both.Reruns) < len(x.Reruns)/2 {
			t.Errorf("%s: %d bytes with swaps and %d without; %d bytes leave, %d reruns of %d", name, less,
				live, out, len(both.Reruns), len(x.Reruns))
		}
	}
}

// TestRegionsAndSwapsTogetherBeatSwapsAlone: in 22 % of the memory of ResNet-50, where no segments fit by
// themselves, a step with segments and swaps takes less than half as long as with AutoSwap.
func TestRegionsAndSwapsTogetherBeatSwapsAlone(t *testing.T) {
	p := onA100(t, "ResNet-50")
	peak, _ := p.PeakLive()
	r := plan.Request{Budget: peak * 22 / 100, Seed: 1, Evaluator: sim.Simulator{}}
	step := func(pl *plan.Plan, err error) int64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Fatal(err)
		}
		m, err := sim.Run(t.Context(), p, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Footprint > r.Budget {
			t.Fatalf("%s: %d bytes in a budget of %d", pl.Manager, m.Footprint, r.Budget)
		}
		return m.StepTime
	}
	swaps, err := managers.Select("autoswap")
	if err != nil {
		t.Fatal(err)
	}
	both := step(managers.Segments(t.Context(), p, r))
	alone := step(swaps[0].Plan(t.Context(), p, r))
	if both > alone/2 {
		t.Errorf("a step takes %d ns with segments and swaps, %d with swaps alone", both, alone)
	}
}
