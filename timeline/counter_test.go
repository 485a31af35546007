package timeline_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
)

// Where the final state is unknown, the source's own counter tells what was in use at the start: a recording
// begins empty if it says so, and with what it says otherwise.
func TestTheSourcesCounterGivesTheStart(t *testing.T) {
	for _, c := range []struct {
		first int64 // the counter after the first allocation, which has 100 bytes
		start int64
		empty bool
	}{{100, 0, true}, {350, 250, false}} {
		b := traces.NewBuilder()
		dev := b.Device(traces.DeviceGPU, 0)
		for _, e := range []traces.Event{
			{Time: 10, Action: traces.Alloc, Addr: 4096, Size: 100},
			{Time: 20, Action: traces.FreeCompleted, Addr: 4096, Size: 100},
		} {
			e.Device, e.Stack = dev, traces.NoStack
			b.Event(e)
		}
		b.T.Counters = []traces.Counter{{
			Name: b.String(traces.CounterAllocated), Device: dev,
			Time: []int64{10, 20}, Value: []int64{c.first, c.first - 100}, Event: []int32{0, 1},
		}}
		tl, err := timeline.Build(context.Background(), b.Finish(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := tl.Main().Totals; got.StartAllocated != c.start || got.BeginsEmpty != c.empty {
			t.Errorf("a counter of %d bytes: begins with %d bytes, empty %t, want %d and %t", c.first,
				got.StartAllocated, got.BeginsEmpty, c.start, c.empty)
		}
	}
}

func TestARangeThatEndsBeforeItBeginsIsEmpty(t *testing.T) {
	d := timelinetest.Text(t, "alloc 0x1000 512\nalloc 0x2000 512\nalloc 0x3000 512\n").Main()
	want := timeline.Column{Min: 1024, Max: 1024, Last: 1024, First: 2, End: 2, MaxAt: 1}
	for _, end := range []timeline.Moment{timeline.Start, 0, 1, 2} {
		if got := d.Allocated.Range(2, end); got != want {
			t.Errorf("[2, %d) has %+v, not %+v", end, got, want)
		}
	}
}

// A range that begins just behind a whole node of an upper level has nothing of what lies before it.
func TestARangeHasNothingOfTheNodeBeforeIt(t *testing.T) {
	values := make([]int64, 20_000)
	values[10] = 100
	s := timeline.NewSeries(0, nil, values)
	for _, first := range []timeline.Moment{12, 63, 64, 65, 128, 4096} {
		if got := s.Range(first, 20_000); got.Max != 0 {
			t.Errorf("[%d, 20000) has %+v", first, got)
		}
	}
}

// A counter's sample names its event by the row of the whole trace, a moment counts the device's own events.
func TestACounterOfTheSecondDevice(t *testing.T) {
	b := traces.NewBuilder()
	first, second := b.Device(traces.DeviceGPU, 0), b.Device(traces.DeviceGPU, 1)
	for i, dev := range []traces.DeviceID{first, first, first, second, second} {
		b.Event(traces.Event{Time: int64(10 * i), Action: traces.Alloc, Addr: uint64(4096 * (i + 1)),
			Size: 512, Device: dev, Stack: traces.NoStack})
	}
	b.T.Counters = []traces.Counter{{
		Name: b.String(traces.CounterReserved), Device: second,
		Time: []int64{30, 40}, Value: []int64{1000, 3000}, Event: []int32{3, 4},
	}}
	tl, err := timeline.Build(context.Background(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := tl.Devices[1]; d.Reserved.At(0) != 1000 || d.Reserved.At(1) != 3000 {
		t.Errorf("reserved %d and %d, want 1000 and 3000", d.Reserved.At(0), d.Reserved.At(1))
	}
}
