package autopsy_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
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
