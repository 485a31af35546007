package timeline_test

import (
	"context"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"testing"
)

func BenchmarkAutopsyOfAMillionEvents(b *testing.B) {
	tl, err := timeline.Build(context.Background(), timelinetest.Unmarked(1_000_000), nil)
	if err != nil {
		b.Fatal(err)
	}
	d := tl.Main()
	for b.Loop() {
		if _, err := d.Autopsy(context.Background(), timeline.IEC); err != nil {
			b.Fatal(err)
		}
	}
}
