package gmt

import (
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// TestAFinalStateIsKeptOnlyWhole: what the announcing row says must be there, and segments must have blocks
// that are there.
func TestAFinalStateIsKeptOnlyWhole(t *testing.T) {
	segment := func(first, end int32) traces.Segment {
		return traces.Segment{FirstBlock: first, EndBlock: end}
	}
	state := func(blocks int, segments ...traces.Segment) traces.State {
		return traces.State{Segments: segments, Blocks: make([]traces.Block, blocks)}
	}
	for name, c := range map[string]struct {
		announced        bool
		segments, blocks int64
		have             traces.State
		kept             bool
	}{
		"as announced":           {true, 1, 2, state(2, segment(0, 2)), true},
		"a segment is missing":   {true, 2, 2, state(2, segment(0, 2)), false},
		"a block is missing":     {true, 1, 3, state(2, segment(0, 2)), false},
		"before the first block": {true, 1, 2, state(2, segment(-1, 2)), false},
		"behind the last block":  {true, 1, 2, state(2, segment(0, 3)), false},
		"ends before it begins":  {true, 1, 2, state(2, segment(2, 1)), false},
		"segments unannounced":   {false, 0, 0, state(0, segment(0, 0)), false},
		"blocks unannounced":     {false, 0, 0, state(1), false},
		"none":                   {false, 0, 0, traces.State{}, true},
	} {
		r := &reader{t: &traces.Trace{Final: c.have}, hasFinal: c.announced,
			final: row{ref: 1, size: c.segments, value: c.blocks}}
		r.checkState(true)
		s := r.t.Final
		if kept := len(r.t.Losses) == 0; kept != c.kept {
			t.Errorf("%s: kept is %v, want %v: %+v", name, kept, c.kept, r.t.Losses)
		}
		if !c.kept && (s.Known || len(s.Segments) > 0 || len(s.Blocks) > 0) {
			t.Errorf("%s: %+v is left", name, s)
		}
		if c.kept && s.Known != c.announced {
			t.Errorf("%s: known is %v", name, s.Known)
		}
	}
}
