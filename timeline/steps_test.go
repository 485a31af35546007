package timeline_test

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
)

func repeated(n int, v int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func TestASteadyJobHasNothingToReport(t *testing.T) {
	r := timeline.WatchSteps(repeated(100, 2<<30), repeated(100, 40e6), 0)
	if r.Bytes != 2<<30 || r.Duration != 40e6 || r.Trend.Leaking || len(r.Spikes)+len(r.Slow) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestAStepThatStandsOutIsFound(t *testing.T) {
	bytes, took := repeated(100, 2<<30), repeated(100, 40e6)
	bytes[60], took[70] = 3<<30, 100e6
	r := timeline.WatchSteps(bytes, took, 0)
	if !slices.Equal(r.Spikes, []int{60}) || !slices.Equal(r.Slow, []int{70}) || r.Top != 60 ||
		r.Trend.Leaking {
		t.Errorf("%+v", r)
	}
}

func TestGrowthFromStepToStepIsALeakAndWarmingUpIsNot(t *testing.T) {
	leak := repeated(100, 1<<30)
	for i := range leak {
		leak[i] += int64(i) << 20
	}
	if r := timeline.WatchSteps(leak, repeated(100, 1), 0); !r.Trend.Leaking || r.Trend.Slope != 1<<20 ||
		len(r.Spikes) > 0 {
		t.Errorf("%+v", r)
	}
	warm := repeated(100, 1<<30)
	warm[0], warm[1] = 1<<28, 1<<29
	if r := timeline.WatchSteps(warm, repeated(100, 1), 0); r.Trend.Leaking {
		t.Errorf("%+v", r.Trend)
	}
}

func TestOnlyTheLastStepsCountAndUnknownOnesDoNot(t *testing.T) {
	bytes := append(repeated(1000, 9<<30), repeated(timeline.WatchedSteps, 1<<30)...)
	bytes[1200] = -1
	r := timeline.WatchSteps(bytes, repeated(len(bytes), 1), 0)
	if r.From != 1000 || r.Bytes != 1<<30 || bytes[r.Top] != 1<<30 {
		t.Errorf("%+v", r)
	}
	if r := timeline.WatchSteps(nil, nil, 0); r.Top != -1 || r.Duration != 0 {
		t.Errorf("%+v", r)
	}
}

func TestGrowthIsToldAStepWhereNotEveryStepIsKnown(t *testing.T) {
	bytes := repeated(300, -1)
	for i := 0; i < len(bytes); i += 3 {
		bytes[i] = 1<<30 + int64(i)<<18
	}
	r := timeline.WatchSteps(bytes, repeated(len(bytes), 1), 0)
	if !r.Trend.Leaking || int64(r.Trend.Slope+0.5) != 1<<18 {
		t.Errorf("256 KiB a step are told as %+v", r.Trend)
	}
	if r := timeline.WatchSteps(bytes, repeated(len(bytes), 1), 1<<30); r.Trend.Leaking {
		t.Error("growth below the noise is told as a leak")
	}
}
