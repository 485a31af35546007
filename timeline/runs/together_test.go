package runs

import (
	"context"
	"errors"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// rank is a recording of two events, from one time to another.
func rank(epoch, from, to int64) Recording {
	b := traces.NewBuilder()
	d := b.Device(traces.DeviceGPU, 0)
	b.T.Clock.Epoch = epoch
	for _, at := range []int64{from, to - 1} {
		b.Event(traces.Event{Time: at, Device: d, Action: traces.Alloc, Addr: uint64(at), Size: 1,
			Stack: traces.NoStack})
	}
	return Recording{Trace: b.Finish()}
}

func TestRanksWithoutCommonTimeStartAtTheirOwnFirstEvents(t *testing.T) {
	spans, apart := clocks([]Recording{rank(1000, 0, 50), rank(1000, 20, 90)})
	if apart || spans[0] != (span{1000, 1090}) || spans[1] != spans[0] {
		t.Errorf("together: %v, apart %v", spans, apart)
	}
	spans, apart = clocks([]Recording{rank(1000, 0, 50), rank(90000, 0, 70), rank(0, 0, 10)})
	if want := (span{90000, 90070}); !apart || spans[1] != want || spans[0] != (span{1000, 1070}) ||
		spans[2] != (span{0, 70}) {
		t.Errorf("hours apart: %v, apart %v", spans, apart)
	}
}

// A device without events says nothing about when its rank ran, and a clock may step back.
func TestARankRunsFromItsFirstTimeToItsLast(t *testing.T) {
	b := traces.NewBuilder()
	idle, busy := b.Device(traces.DeviceGPU, 0), b.Device(traces.DeviceGPU, 1)
	for _, at := range []int64{70, 40} {
		b.Event(traces.Event{Time: at, Device: busy, Action: traces.Alloc, Addr: uint64(at), Size: 1,
			Stack: traces.NoStack})
	}
	b.Device(traces.DeviceCPU, 0)
	spans, apart := clocks([]Recording{{Trace: b.Finish()}, rank(0, 20, 60)})
	if want := (span{20, 71}); idle == busy || apart || spans[0] != want || spans[1] != want {
		t.Errorf("%v, apart %v, not %v", spans, apart, want)
	}
	if _, apart := clocks([]Recording{rank(0, 0, 50), rank(0, 50, 90)}); !apart {
		t.Error("a rank that begins when another ends was recorded beside it")
	}
	nothing, early := Recording{Trace: traces.NewBuilder().Finish()}, rank(0, 20, 60)
	if spans, apart := clocks([]Recording{nothing, early}); apart || spans[0] != spans[1] ||
		spans[1] != (span{20, 60}) {
		t.Errorf("with an empty recording: %v, apart %v", spans, apart)
	}
}

func TestMembersKeepTheirRanksAndErrorsInARun(t *testing.T) {
	late, cut := rank(90000, 0, 70), errors.New("cut")
	late.Path, late.Rank, late.Err = "b", maybe.Known(1), cut
	early := rank(1000, 0, 50)
	early.Path, early.Rank = "a", maybe.Known(0)
	var told []int64
	run, err := Together(context.Background(), []Recording{early, late}, 8,
		func(done, total int64) { told = append(told, done, total) })
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 4 || told[2] != 1 || told[3] != 2 {
		t.Errorf("progress %v", told)
	}
	if !run.Apart || len(run.Ranks) != 2 {
		t.Fatalf("%+v", run)
	}
	for i, want := range []Recording{early, late} {
		r := run.Ranks[i]
		if r.Path != want.Path || r.Rank != want.Rank || !errors.Is(r.Err, want.Err) || r.From != 0 ||
			r.To != []int64{50, 70}[i] || r.PeakTime != r.To-1 || len(r.Strip) != 8 {
			t.Errorf("rank %d: %+v", i, r)
		}
	}
	run, err = Together(context.Background(), []Recording{rank(1000, 20, 90), rank(1000, 0, 50)}, 8,
		func(done, total int64) {})
	if err != nil || run.Apart {
		t.Fatalf("%v, %+v", err, run)
	}
	for _, r := range run.Ranks { // the run's clock: both blocks are alive at the second event
		if r.PeakTime != r.To-1 || r.To != 1090 && r.To != 1050 {
			t.Errorf("a peak at %d of %d to %d", r.PeakTime, r.From, r.To)
		}
	}
}
