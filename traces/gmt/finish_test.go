package gmt

import (
	"bytes"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// TestAFinalStateIsKeptOnlyWhole: as many segments and blocks as announced must be there, and segments must
// refer to blocks that are there.
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

// Any writer can write a row that names an op which does not exist. It then names none.
func TestAnOpThatTheFileLacksIsNone(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, traces.Source{}, traces.Process{}, traces.Clock{})
	if err != nil {
		t.Fatal(err)
	}
	w.Device(traces.Device{Kind: traces.DeviceGPU})
	w.Op(traces.Op{Parent: 2, Stack: traces.NoStack})
	w.Op(traces.Op{Parent: 0, Stack: traces.NoStack})
	for _, op := range []traces.OpID{1, 2, 9} {
		w.Access(traces.Access{Op: op})
	}
	if err := w.Close(traces.State{}); err != nil {
		t.Fatal(err)
	}
	got, err := read(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got.Ops[0].Parent != traces.NoOp || got.Ops[1].Parent != 0 {
		t.Errorf("parents %d and %d", got.Ops[0].Parent, got.Ops[1].Parent)
	}
	for i, want := range []traces.OpID{1, traces.NoOp, traces.NoOp} {
		if got.Accesses[i].Op != want {
			t.Errorf("access %d is by op %d, not %d", i, got.Accesses[i].Op, want)
		}
	}
}

// A file that unpacks to too much is read up to the chunk that is too much, which costs no other rows.
func TestReadingStopsBeforeWhatIsTooLarge(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, traces.Source{}, traces.Process{}, traces.Clock{})
	if err != nil {
		t.Fatal(err)
	}
	w.Device(traces.Device{Kind: traces.DeviceGPU})
	for i := range 4 * maxRows {
		w.Event(traces.Event{Time: int64(i + 1), Stack: traces.NoStack, Action: traces.Alloc})
	}
	if err := w.Close(traces.State{}); err != nil {
		t.Fatal(err)
	}
	d, err := newDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r, l := newReader(&decoder{data: b.Bytes(), zstd: d}), scan(b.Bytes())
	r.budget = 2*maxRows*rowBytes + 4096 // two chunks of events and the definitions
	if err := r.read(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	got := r.finish(l)
	if n := got.Events.Len(); len(r.failures) != 1 || n != 2*maxRows || got.Events.Time[0] != 1 ||
		got.Events.Time[n-1] != int64(n) {
		t.Errorf("%d failures, %d events", len(r.failures), n)
	}
}
