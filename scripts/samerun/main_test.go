package main

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// program makes a recording of steps (alloc or free, offset, size) in one segment of 1 MiB at a base.
func program(base uint64, lines ...[3]uint64) *recording {
	b := traces.NewBuilder()
	device := b.Device(traces.DeviceGPU, 0)
	b.Event(traces.Event{Action: traces.SegmentAlloc, Addr: base, Size: 1 << 20, Device: device})
	for _, l := range lines {
		e := traces.Event{Addr: base + l[1], Size: int64(l[2]), Device: device}
		if l[0] == alloc {
			e.Action = traces.Alloc
			b.Event(e)
			continue
		}
		e.Action = traces.FreeRequested
		b.Event(e)
		e.Action = traces.FreeCompleted
		b.Event(e)
	}
	b.T.Final.Known = true
	b.T.Final.Segments = []traces.Segment{{Address: base, TotalSize: 1 << 20, Device: device}}
	return read(b.Finish())
}

const (
	alloc = 0
	free  = 1
)

func TestARunAtOtherAddressesIsTheSameRun(t *testing.T) {
	lines := [][3]uint64{{alloc, 0, 100}, {alloc, 512, 2000}, {free, 0, 100}, {free, 512, 2000}}
	c := compare(program(1<<40, lines...), program(7<<30, lines...))
	if !c.same() || c.differ != 0 || c.inPlace != 2 {
		t.Errorf("%+v", c)
	}
	if want := int64(512 + 2048); c.a.allocated != want || c.b.allocated != want {
		t.Errorf("peaks of %d and %d bytes, want %d", c.a.allocated, c.b.allocated, want)
	}
	if c.a.reserved != 1<<20 {
		t.Errorf("%d bytes reserved, want one segment", c.a.reserved)
	}
}

func TestDifferencesAreReported(t *testing.T) {
	one := program(1<<40, [3]uint64{alloc, 0, 512}, [3]uint64{alloc, 512, 512}, [3]uint64{free, 0, 512},
		[3]uint64{free, 512, 512})
	for _, test := range []struct {
		what  string
		other *recording
		same  bool
		says  string
	}{
		{"another order within a run of frees",
			program(1<<40, [3]uint64{alloc, 0, 512}, [3]uint64{alloc, 512, 512},
				[3]uint64{free, 512, 512}, [3]uint64{free, 0, 512}), true, "order within runs of frees"},
		{"another size", program(1<<40, [3]uint64{alloc, 0, 512}, [3]uint64{alloc, 512, 600},
			[3]uint64{free, 0, 512}, [3]uint64{free, 512, 600}), false,
			"from event 2 on: alloc of 512 bytes and alloc of 600 bytes"},
		{"a run that ends sooner", program(1<<40, [3]uint64{alloc, 0, 512}), false, "and the end"},
		{"a free of another block", program(1<<40, [3]uint64{alloc, 0, 512}, [3]uint64{alloc, 512, 512},
			[3]uint64{free, 512, 512}), false, "events differ"},
		{"another place", program(1<<40, [3]uint64{alloc, 0, 512}, [3]uint64{alloc, 1024, 512},
			[3]uint64{free, 0, 512}, [3]uint64{free, 1024, 512}), true, "same place      1 of 2"},
	} {
		c := compare(one, test.other)
		var out strings.Builder
		c.print(&out)
		if c.same() != test.same || !strings.Contains(out.String(), test.says) {
			t.Errorf("%s: same %v, says\n%s", test.what, c.same(), out.String())
		}
	}
}

func TestSamerunAsksForTwoFiles(t *testing.T) {
	if _, err := run(t.Context(), []string{"one"}, &strings.Builder{}); err == nil {
		t.Error("one file was enough")
	}
	if _, err := run(t.Context(), []string{"none", "none"}, &strings.Builder{}); err == nil {
		t.Error("a file that does not exist was read")
	}
}

func TestThePeakCountsSegmentsThatWereGivenBack(t *testing.T) {
	b := traces.NewBuilder()
	device := b.Device(traces.DeviceGPU, 0)
	b.Event(traces.Event{Action: traces.SegmentAlloc, Addr: 1 << 30, Size: 3 << 20, Device: device})
	b.Event(traces.Event{Action: traces.SegmentFree, Addr: 1 << 30, Size: 3 << 20, Device: device})
	b.T.Final.Known = true
	b.T.Final.Segments = []traces.Segment{{Address: 1 << 40, TotalSize: 1 << 20, Device: device}}
	if r := read(b.Finish()); r.reserved != 4<<20 {
		t.Errorf("%d bytes reserved at the peak, want those of both segments", r.reserved)
	}
}
