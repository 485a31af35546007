package batch_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/networks"
)

func TestAScaleTellsWhatItsRecordingsTell(t *testing.T) {
	fused := networks.Options{FusedAttention: true}
	point := func(n, seq int) batch.Point { return recording(t, "gpt2-small", n, seq, fused) }
	for _, c := range []struct {
		name     string
		points   []batch.Point
		inferred bool
		at       [][2]int // at which its sizes are those of a recording made there
		refused  [][2]int
	}{
		{"one", []batch.Point{point(2, 128)}, true, [][2]int{{2, 128}, {2, 0}},
			[][2]int{{2, 256}, {0, 128}}},
		{"two batches", []batch.Point{point(2, 128), point(4, 128)}, false,
			[][2]int{{1, 128}, {3, 0}, {16, 128}}, [][2]int{{2, 256}}},
		{"two lengths", []batch.Point{point(2, 128), point(2, 256)}, true,
			[][2]int{{2, 64}, {2, 512}, {2, 0}}, [][2]int{{2, -1}}},
		{"three", []batch.Point{point(2, 128), point(4, 128), point(2, 256)}, false,
			[][2]int{{1, 64}, {8, 512}, {3, 0}}, nil},
	} {
		s, err := batch.Scaling(c.points...)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if s.Inferred() != c.inferred {
			t.Errorf("%s: inferred %v", c.name, s.Inferred())
		}
		for _, at := range c.at {
			got, err := s.At(at[0], at[1])
			if err != nil {
				t.Errorf("%s at %v: %v", c.name, at, err)
				continue
			}
			if at[1] == 0 {
				at[1] = 128
			}
			if err := sameSizes(got, point(at[0], at[1]).Problem); err != nil {
				t.Errorf("%s at %v: %v", c.name, at, err)
			}
		}
		for _, at := range c.refused {
			if p, err := s.At(at[0], at[1]); err == nil {
				t.Errorf("%s at %v gives %s", c.name, at, p.Name)
			}
		}
	}
	if _, err := batch.Scaling(point(2, 128), point(4, 256)); err == nil ||
		!strings.Contains(err.Error(), "keep one of the two the same") {
		t.Errorf("recordings that differ in both: %v", err)
	}
	if _, err := batch.Scaling(); err == nil {
		t.Error("no recordings make a scale")
	}
}

func TestTwoLengthsKeepParametersAtAnyBatch(t *testing.T) {
	fused := networks.Options{FusedAttention: true}
	s, err := batch.Scaling(recording(t, "gpt2-small", 2, 128, fused),
		recording(t, "gpt2-small", 2, 256, fused))
	if err != nil {
		t.Fatal(err)
	}
	peak := func(n, seq int) int64 {
		p, err := s.At(n, seq)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
		live, _ := p.PeakLive()
		return live
	}
	real := func(n, seq int) int64 {
		live, _ := recording(t, "gpt2-small", n, seq, fused).Problem.PeakLive()
		return live
	}
	for _, at := range [][2]int{{4, 512}, {8, 256}, {1, 1024}} {
		if got, want := peak(at[0], at[1]), real(at[0], at[1]); got < want*9/10 || got > want*11/10 {
			t.Errorf("at %v the peak is %d, recorded there it is %d", at, got, want)
		}
	}
}
