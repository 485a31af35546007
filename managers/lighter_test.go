package managers_test

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/networks/networkstest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/managers/swap"
)

// forEager returns a network's training at a batch size on an A100, for eager PyTorch.
func forEager(t *testing.T, name string, batch int) *plan.Problem {
	t.Helper()
	p := networkstest.Problem(t, name, batch, "a100-40gb")
	p.EagerOnly = true
	return p
}

// TestSwapsBesideSegmentsAreValidAndTakeLessMemory: what segments leave in memory can leave by swaps, and a
// region still finds its input when it runs again.
func TestSwapsBesideSegmentsAreValidAndTakeLessMemory(t *testing.T) {
	batches := map[string]int{"ResNet-50": 64, "GoogLeNet": 128, "VGG-16": 64, "GPT-2 small": 4}
	for name, batch := range batches {
		p := forEager(t, name, batch)
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
	p := forEager(t, "ResNet-50", 64)
	peak, _ := p.PeakLive()
	budget := peak * 22 / 100
	swaps, err := managers.Select("autoswap")
	if err != nil {
		t.Fatal(err)
	}
	both := stepWithin(t, managers.Segments{}, p, budget, 0)
	alone := stepWithin(t, swaps[0], p, budget, 0)
	if both > alone/2 || alone == plantest.Never {
		t.Errorf("a step takes %d ns with segments and swaps, %d with swaps alone", both, alone)
	}
}
