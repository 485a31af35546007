package steps

import (
	"math"
	"math/rand"
	"testing"
)

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
