package figure

import (
	"bytes"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/gmemtop/gmemtop/timeline"
)

// A profile read back by pprof's own package adds up to the timeline: what is in use to the peak, what was
// allocated to all blocks that began in the span.
func TestAProfileAddsUpToThePeak(t *testing.T) {
	d := run(t, 50, "x")
	var b bytes.Buffer
	if err := Pprof(t.Context(), &b, d, Options{}); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Error(err)
	}
	sum := make([]int64, len(p.SampleType))
	for _, s := range p.Sample {
		for i, v := range s.Value {
			sum[i] += v
		}
		frames := s.Location
		if first, last := frames[0].Line[0], frames[len(frames)-1].Line[0]; last.Function.Name != "main" ||
			last.Function.Filename != "train;ing.py" || first.Line == 0 {
			t.Errorf("from %v to %v, want the innermost frame first and main last", first, last)
		}
	}
	var blocks, bytesBegun int64
	for i := range d.Allocs.Len() {
		if d.Allocs.Start[i] > timeline.Start {
			blocks, bytesBegun = blocks+1, bytesBegun+d.Allocs.Rounded[i]
		}
	}
	want := []int64{blocks, bytesBegun, int64(len(d.LiveAt(d.Totals.PeakAt, nil))), d.Totals.PeakAllocated}
	for i, w := range want {
		if sum[i] != w {
			t.Errorf("%s: %d, want %d", p.SampleType[i].Type, sum[i], w)
		}
	}
	if p.DefaultSampleType != "inuse_space" || len(p.Sample) < 2 || p.Sample[0].Label["category"] == nil {
		t.Errorf("shown first: %q; %d samples, the first with %v", p.DefaultSampleType, len(p.Sample),
			p.Sample[0].Label)
	}
}
