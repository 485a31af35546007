package autopsy_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
)

func BenchmarkAutopsyOfAMillionEvents(b *testing.B) {
	tl, err := timeline.Build(context.Background(), timelinetest.Unmarked(1_000_000), nil)
	if err != nil {
		b.Fatal(err)
	}
	d := tl.Main()
	for b.Loop() {
		if _, err := autopsy.Of(context.Background(), d, timeline.IEC); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAutopsyOfAMillionEventsThatEndOutOfMemory(b *testing.B) {
	tr := timelinetest.Unmarked(1_000_000)
	last := tr.Events.Len() - 1
	tr.Events.Action[last], tr.Events.Size[last] = traces.OOM, 1<<30
	for b.Loop() {
		b.StopTimer() // parts and sites are found once a timeline
		tl, err := timeline.Build(context.Background(), tr, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := autopsy.Of(context.Background(), tl.Main(), timeline.IEC); err != nil {
			b.Fatal(err)
		}
	}
}
