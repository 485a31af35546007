package steps

import (
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

func TestTheLargestCountsComeInTheirOrder(t *testing.T) {
	for top, want := range map[int][]int{1: {2}, 3: {2, 4, 1}, 9: {2, 4, 1, 3}} {
		if got := largest([]int32{0, 3, 5, 1, 5}, top); !slices.Equal(got, want) {
			t.Errorf("the largest %d: %v, want %v", top, got, want)
		}
	}
}

func TestTheTrendOfALineIsItsExactSlope(t *testing.T) {
	tr := fitTrend([]float64{7, 107, 207, 307, 407})
	if tr.Slope != 100 || tr.Low != 100 || tr.High != 100 || tr.Points != 5 {
		t.Errorf("%+v", tr)
	}
}

// The interval must hold the true slope in 95 % of the cases, within four standard errors for 2000 draws.
func TestTheIntervalHoldsTheTrueSlopeAsOftenAsPromised(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for _, n := range []int{3, 5, 12, 40} {
		held := 0
		for range 2000 {
			y := make([]float64, n)
			for i := range y {
				y[i] = 1e9 + 5e5*float64(i) + 1e6*rng.NormFloat64()
			}
			if tr := fitTrend(y); tr.Low <= 5e5 && 5e5 <= tr.High {
				held++
			}
		}
		if share := float64(held) / 2000; math.Abs(share-0.95) > 4*math.Sqrt(0.95*0.05/2000) {
			t.Errorf("%d points: %.3f of the intervals hold the slope", n, share)
		}
	}
}

func TestAJumpIsNotALeak(t *testing.T) {
	y := []float64{0, 0, 0, 0, 1e8, 1e8, 1e8, 1e8, 1e8, 1e8}
	if tr := fitTrend(y); tr.leaks(y, 1000) {
		t.Errorf("one jump is called a leak: %+v", tr)
	}
	for i := range y {
		y[i] = float64(i/2) * 1e7
	}
	if tr := fitTrend(y); !tr.leaks(y, 1000) {
		t.Errorf("a leak every other step is missed: %+v", tr)
	}
}

func TestThreeStepsThatGrowByTheSameAreALeak(t *testing.T) {
	for last, leaks := range map[float64]bool{2e8: true, 1e8: false} {
		y := []float64{0, 1e8, last}
		if tr := fitTrend(y); tr.leaks(y, 1000) != leaks {
			t.Errorf("%v: leaks %v, %+v", y, !leaks, tr)
		}
	}
}

func TestGrowthBelowNoiseIsNotALeak(t *testing.T) {
	y := []float64{0, 512, 1024, 1536}
	if tr := fitTrend(y); tr.leaks(y, noiseBytes(len(y), 1<<34)) {
		t.Errorf("%+v", tr)
	}
}

func TestTwoPointsAreNoTrend(t *testing.T) {
	if tr := fitTrend([]float64{0, 1e9}); tr.Slope != 0 || tr.Leaking {
		t.Errorf("%+v", tr)
	}
}

// TestGrowthOfStepsThatForgetIsUnseen: where each step lists only what it used, "no leak" would be a claim
// about blocks that nobody followed.
func TestGrowthOfStepsThatForgetIsUnseen(t *testing.T) {
	for name, c := range map[string]struct {
		loss   string
		state  bool
		unseen bool
	}{
		"one window":                           {"", false, false},
		"windows of ops":                       {traces.LossBetweenWindows, false, true},
		"windows of the allocator's history":   {traces.LossBetweenWindows, true, false},
		"a recording that lost something else": {"partial_step", false, false},
	} {
		b := traces.NewBuilder()
		cpu := b.Device(traces.DeviceCPU, 0)
		for i := range int64(20) {
			for k, a := range []traces.Action{traces.Alloc, traces.Free} {
				b.Event(traces.Event{Time: 100*i + int64(k), Addr: 4096, Size: 1 << 20, Action: a,
					Stack:  traces.NoStack,
					Device: cpu})
			}
			b.T.Marks = append(b.T.Marks, traces.Mark{Start: 100 * i, End: 100*i + 100,
				Name: b.String("step"),
				Kind: traces.MarkIteration})
		}
		if c.loss != "" {
			b.Lose(c.loss, traces.DataLoss, 1, "")
		}
		b.T.Final.Known = c.state
		tl, err := timeline.Build(t.Context(), b.Finish(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := Of(tl.Main()).Trend; got.Unseen != c.unseen || got.Leaking {
			t.Errorf("%s: %+v, want unseen %t", name, got, c.unseen)
		}
	}
}
