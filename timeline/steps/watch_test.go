package steps_test

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func repeated(n int, v int64) []maybe.Int { return slices.Repeat([]maybe.Int{maybe.Known(v)}, n) }

func TestASteadyJobHasNothingToReport(t *testing.T) {
	r := steps.Watch(repeated(100, 2<<30), repeated(100, 40e6), 0, 0)
	if r.Bytes != 2<<30 || r.Duration != 40e6 || r.Trend.Leaking || len(r.Spikes)+len(r.Slow) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestAStepThatStandsOutIsFound(t *testing.T) {
	bytes, took := repeated(100, 2<<30), repeated(100, 40e6)
	bytes[60], took[70] = maybe.Known(3<<30), maybe.Known(100e6)
	r := steps.Watch(bytes, took, 0, 0)
	if !slices.Equal(r.Spikes, []int{60}) || !slices.Equal(r.Slow, []int{70}) || r.Top != 60 ||
		r.Trend.Leaking {
		t.Errorf("%+v", r)
	}
}

func TestGrowthFromStepToStepIsALeakAndWarmingUpIsNot(t *testing.T) {
	leak := repeated(100, 1<<30)
	for i := range leak {
		leak[i] = maybe.Known(1<<30 + int64(i)<<20)
	}
	if r := steps.Watch(leak, repeated(100, 1), 0, 0); !r.Trend.Leaking || r.Trend.Slope != 1<<20 ||
		len(r.Spikes) > 0 {
		t.Errorf("%+v", r)
	}
	warm := repeated(100, 1<<30)
	warm[0], warm[1] = maybe.Known(1<<28), maybe.Known(1<<29)
	if r := steps.Watch(warm, repeated(100, 1), 0, 0); r.Trend.Leaking {
		t.Errorf("%+v", r.Trend)
	}
}

func TestOnlyTheLastStepsCountAndUnknownOnesDoNot(t *testing.T) {
	bytes := append(repeated(1000, 9<<30), repeated(steps.Watched, 1<<30)...)
	bytes[1200] = maybe.Int{}
	r := steps.Watch(bytes, repeated(len(bytes), 1), 0, 0)
	if r.From != 1000 || r.Bytes != 1<<30 || bytes[r.Top] != maybe.Known(1<<30) {
		t.Errorf("%+v", r)
	}
	if r := steps.Watch(nil, nil, 0, 0); r.Top != -1 || r.Duration != 0 {
		t.Errorf("%+v", r)
	}
}

func TestGrowthIsPerStepEvenIfSomeStepsAreUnknown(t *testing.T) {
	bytes := make([]maybe.Int, 300)
	for i := 0; i < len(bytes); i += 3 {
		bytes[i] = maybe.Known(1<<30 + int64(i)<<18)
	}
	r := steps.Watch(bytes, repeated(len(bytes), 1), 0, 0)
	if !r.Trend.Leaking || int64(r.Trend.Slope+0.5) != 1<<18 {
		t.Errorf("256 KiB a step are reported as %+v", r.Trend)
	}
	if r := steps.Watch(bytes, repeated(len(bytes), 1), 1<<30, 0); r.Trend.Leaking {
		t.Error("growth below the noise is reported as a leak")
	}
}

func TestAStepIsSlowOnlyBeyondTheUsualVariation(t *testing.T) {
	took := repeated(100, 40e6)
	for i := range took { // from 20 to 60 ms
		took[i] = maybe.Known(int64(20e6 + i%5*10e6))
	}
	took[70], took[80] = maybe.Known(100e6), maybe.Known(200e6)
	if r := steps.Watch(repeated(100, 1<<30), took, 0, 0); !slices.Equal(r.Slow, []int{80}) {
		t.Errorf("slow: %v", r.Slow)
	}
}

// A step stands out by more than a fiftieth of the median where all others are equal, and by more than six
// times their deviation (1.48 times 10 MiB here) where they vary.
func TestAStepStandsOutOnlyBeyondTheUsualVariation(t *testing.T) {
	const mib = 1 << 20
	equal, varied := repeated(101, 1000*mib), repeated(101, 1000*mib)
	for i := range varied {
		varied[i] = maybe.Known(int64(990+i%3*10) * mib)
	}
	for _, c := range []struct {
		name  string
		usual []maybe.Int
		bytes int64
		found bool
	}{
		{"at a fiftieth", equal, 1020 * mib, false}, {"above a fiftieth", equal, 1021 * mib, true},
		{"within six deviations", varied, 1088 * mib, false},
		{"beyond six deviations", varied, 1090 * mib, true},
	} {
		bytes := slices.Clone(c.usual)
		bytes[60] = maybe.Known(c.bytes)
		r := steps.Watch(bytes, repeated(len(bytes), 1), 0, 0)
		if found := slices.Equal(r.Spikes, []int{60}); found != c.found || !found && len(r.Spikes) > 0 {
			t.Errorf("%s: %v", c.name, r.Spikes)
		}
	}
}

// Rounding and bookkeeping may leave 512 bytes a step behind, or a ten-thousandth of all held bytes.
func TestALeakIsMoreThanBookkeeping(t *testing.T) {
	for _, c := range []struct {
		steps, held, more int64
		leaks             bool
	}{
		{100, 1 << 20, 400, false}, {100, 1 << 20, 600, true}, // 512 bytes a step
		{100, 1 << 30, 1000, false}, {100, 1 << 30, 1200, true}, // a ten-thousandth of 1 GiB in 99 steps
		{7, 1 << 20, 1 << 20, false}, {8, 1 << 20, 1 << 20, true}, // from eight steps on
	} {
		bytes := repeated(int(c.steps), c.held)
		for i := range bytes {
			bytes[i] = maybe.Known(c.held + int64(i)*c.more)
		}
		if r := steps.Watch(bytes, repeated(len(bytes), 1), 0, 0); r.Trend.Leaking != c.leaks {
			t.Errorf("%+v: %+v", c, r.Trend)
		}
	}
}
