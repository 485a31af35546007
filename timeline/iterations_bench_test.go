package timeline_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

func TestIterationsOfAMillionEventsAreAllFoundAlthoughFreesMove(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: it builds a million events")
	}
	d := timelinetest.Built(t, timelinetest.Unmarked(1_000_000))
	it := d.Iterations()
	odd, blocks := 0, 0
	for _, x := range it.List {
		if x.Odd {
			odd++
		}
		blocks += x.Blocks
	}
	// 457 allocations a step: 48*7 + 1 + 120; ten more in every fortieth.
	if it.Source != timeline.FromPeriodicity || blocks != d.Allocs.Len() {
		t.Fatalf("%v: %d allocations of %d are in iterations", it.Source, blocks, d.Allocs.Len())
	}
	steps := len(it.List)
	if want := (steps + 19) / 40; odd != want {
		t.Errorf("%d odd iterations of %d, want %d", odd, steps, want)
	}
	if it.Steady != 0 || it.Differs != 20 || it.Trend.Leaking {
		t.Errorf("steady from %d, differs at %d, trend %+v", it.Steady, it.Differs, it.Trend)
	}
}

func BenchmarkIterationsOfAMillionEvents(b *testing.B) {
	tl, err := timeline.Build(context.Background(), timelinetest.Unmarked(1_000_000), nil)
	if err != nil {
		b.Fatal(err)
	}
	d := tl.Main()
	b.ReportAllocs()
	b.ReportMetric(float64(d.Len()), "events")
	for b.Loop() {
		if it := d.FindIterations(); it.Source != timeline.FromPeriodicity {
			b.Fatal(it.Source)
		}
	}
}

func BenchmarkPhasesOfAMillionEvents(b *testing.B) {
	tl, err := timeline.Build(context.Background(), timelinetest.Unmarked(1_000_000), nil)
	if err != nil {
		b.Fatal(err)
	}
	d := tl.Main()
	for b.Loop() {
		d.FindPhases()
	}
}
