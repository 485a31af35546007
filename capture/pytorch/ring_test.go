package pytorch

import (
	"encoding/binary"
	"math"
	"reflect"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

const (
	testSlots = 4
	testBytes = (3 + allColumns) * 8
	testEpoch = 1000
)

// aRing is what an agent leaves in memory, as the test writes it.
type aRing []byte

func newRing(sent int64) aRing {
	b := make(aRing, ringHead+testSlots*testBytes)
	copy(b, ringMagic)
	for at, v := range map[int]int64{8: ringVersion, ringAtSlots: testSlots, ringAtBytes: testBytes,
		ringAtEpoch: testEpoch, ringAtSent: sent} {
		b.set(at, v)
	}
	return b
}

func (b aRing) set(at int, v int64) { binary.NativeEndian.PutUint64(b[at:], uint64(v)) }

// at is where word of the slot of step index is.
func (b aRing) at(index int64, word int) int {
	return ringHead + int(index%testSlots)*testBytes + 8*word
}

// write writes a row between its numbers.
func (b aRing) write(index int64, figures ...int64) {
	words := append([]int64{index + 1, int64(len(figures))}, figures...)
	for i, v := range append(words, index+1) {
		b.set(b.at(index, i), v)
	}
}

// count writes a step that was only counted.
func (b aRing) count(index int64) { b.write(index, 10*index, 10*index+9, 3, 2, 1) }

// whole writes a step with all its figures.
func (b aRing) whole(index int64) {
	row := RowOf(capture.Step{Index: index, Start: testEpoch + 10*index, End: testEpoch + 10*index + 9,
		Parameters: maybe.Known(77 + index), RSS: maybe.Known(5)})
	b.write(index, row[:]...)
}

// TestTheRestIsReadFromTheRing: all steps after the last one that was received, and those alone. What is not
// there or not complete is counted.
func TestTheRestIsReadFromTheRing(t *testing.T) {
	for _, c := range []struct {
		what  string
		sent  int64
		last  int64 // the step received last, -1 for none
		write func(b aRing)
		want  []int64
		lost  int64
		stale bool
	}{
		{what: "an empty ring", last: -1},
		{what: "all received", last: 1, write: func(b aRing) { b.count(0); b.count(1) }},
		{what: "two not received", last: 0, want: []int64{1, 2},
			write: func(b aRing) { b.whole(0); b.count(1); b.count(2) }},
		{what: "none received by this viewer, one by another", sent: 1, last: -1, want: []int64{1},
			write: func(b aRing) { b.count(0); b.count(1) }},
		{what: "a ring that went round", last: 4, want: []int64{5, 6},
			write: func(b aRing) { b.count(3); b.count(4); b.count(5); b.count(6) }},
		{what: "a ring that was too small", last: 1, want: []int64{5, 6, 7, 8}, lost: 3,
			write: func(b aRing) { b.count(5); b.count(6); b.count(7); b.count(8) }},
		{what: "killed in the first words of the first step", last: -1, lost: 1,
			write: func(b aRing) { b.set(b.at(0, 0), 1) }},
		{what: "killed before the last word", last: 0, want: []int64{1}, lost: 1,
			write: func(b aRing) { b.count(0); b.count(1); b.count(2); b.set(b.at(2, 7), 0) }},
		{what: "killed while an old row was overwritten", last: 4, want: []int64{5}, lost: 1,
			write: func(b aRing) { b.count(3); b.count(4); b.count(5); b.count(2); b.set(b.at(6, 0), 7) }},
		{what: "killed when an old row was cleared", last: 4, want: []int64{5}, lost: 1,
			write: func(b aRing) { b.count(3); b.count(4); b.count(5) }},
		{what: "a step that ends before it begins", last: 0, want: []int64{2}, lost: 1,
			write: func(b aRing) { b.count(0); b.write(1, 20, 10, 0, 0, 0); b.count(2) }},
		{what: "a ring that was made after the first step", last: -1, sent: 1, want: []int64{1, 2},
			write: func(b aRing) {
				b.count(1)
				b.count(2)
				copy(b[ringHead:], b[ringHead+testBytes:])
				clear(b[b.at(2, 0):b.at(3, 0)])
			}},
		{what: "a row longer than its slot", last: -1, want: []int64{0}, lost: 1,
			write: func(b aRing) { b.count(0); b.count(1); b.set(b.at(1, 1), 500) }},
		{what: "a ring that was given up", last: 9, stale: true,
			write: func(b aRing) { b.count(5); b.count(6) }},
	} {
		b := newRing(c.sent)
		if c.write != nil {
			c.write(b)
		}
		r, err := ringOf(b)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		var last *capture.Step
		if c.last >= 0 {
			last = &capture.Step{Index: c.last, Parameters: maybe.Known(70)}
		}
		steps, lost, stale := r.after(last)
		var got []int64
		for _, x := range steps {
			got = append(got, x.Index)
		}
		if !reflect.DeepEqual(got, c.want) || lost != c.lost || stale != c.stale {
			t.Errorf("%s: steps %v, %d lost, stale: %t; want %v, %d, %t", c.what, got, lost, stale, c.want,
				c.lost, c.stale)
		}
	}
}

// TestARowOfTheRingIsAStep: with the times of the wire, and with what the optimizers held in the step before,
// if it was only counted.
func TestARowOfTheRingIsAStep(t *testing.T) {
	b := newRing(0)
	b.count(0)
	b.whole(1)
	b.count(2)
	r, err := ringOf(b)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, _ := r.after(nil)
	if len(steps) != 3 {
		t.Fatalf("%d steps", len(steps))
	}
	want := capture.Step{Index: 2, Start: testEpoch + 20, End: testEpoch + 29, Forward: maybe.Known(4),
		Backward: maybe.Known(3), Optimizer: maybe.Known(2), Cost: 1, Parameters: maybe.Known(78)}
	if steps[2] != want {
		t.Errorf("%+v\nwant %+v", steps[2], want)
	}
	if steps[0].Parameters.IsKnown() || steps[1].RSS != maybe.Known(5) {
		t.Errorf("%+v", steps[:2])
	}
}

func TestWhatIsNoRingIsRefused(t *testing.T) {
	good := newRing(0)
	for what, change := range map[string]func(b aRing) aRing{
		"nothing":            func(aRing) aRing { return nil },
		"another file":       func(b aRing) aRing { b[0] = 'G'; return b },
		"a later version":    func(b aRing) aRing { b.set(8, 2); return b },
		"a file that is cut": func(b aRing) aRing { return b[:len(b)-1] },
		"no slots":           func(b aRing) aRing { b.set(ringAtSlots, 0); return b },
		"endless slots":      func(b aRing) aRing { b.set(ringAtSlots, math.MaxInt64); return b },
		"slots of nothing":   func(b aRing) aRing { b.set(ringAtBytes, 0); return b },
		"slots below zero":   func(b aRing) aRing { b.set(ringAtBytes, -8); return b },
		"odd slots":          func(b aRing) aRing { b.set(ringAtBytes, 25); return b },
		"huge slots":         func(b aRing) aRing { b.set(ringAtBytes, maxRingSlot+8); return b },
	} {
		if _, err := ringOf(change(append(aRing(nil), good...))); err == nil {
			t.Errorf("%s is taken for a ring", what)
		}
	}
}

// FuzzRing: whatever bytes a process leaves, the steps that are read from them are in order, each comes after
// the last one that was received, and there are no more than slots.
func FuzzRing(f *testing.F) {
	b := newRing(1)
	b.count(0)
	b.whole(1)
	b.count(2)
	f.Add([]byte(b), int64(-1))
	f.Add([]byte(b), int64(1))
	b.set(b.at(2, 1), math.MaxInt64)
	b.set(b.at(3, 0), math.MaxInt64)
	f.Add([]byte(b), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, at int64) {
		r, err := ringOf(b)
		if err != nil {
			return
		}
		var last *capture.Step
		before := r.sent - 1
		if at >= 0 && at < math.MaxInt64 {
			last, before = &capture.Step{Index: at}, at
		}
		steps, lost, _ := r.after(last)
		if len(steps) > len(r.slots) || lost < 0 {
			t.Fatalf("%d steps of %d slots, %d lost", len(steps), len(r.slots), lost)
		}
		for _, x := range steps {
			if x.Index <= before || x.End < x.Start {
				t.Fatalf("step %+v after step %d", x, before)
			}
			before = x.Index
		}
	})
}
