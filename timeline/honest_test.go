package timeline_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// fullGPU is a GPU with one segment that one block fills, and what else the test records.
func fullGPU(t *testing.T, more func(b *traces.Builder, d traces.DeviceID)) *timeline.Device {
	t.Helper()
	b := traces.NewBuilder()
	d := b.Device(traces.DeviceGPU, 0)
	add := func(a traces.Action, addr uint64, size int64) {
		b.Event(traces.Event{Time: int64(b.T.Events.Len()), Action: a, Addr: addr, Size: size,
			Stack: traces.NoStack, Device: d})
	}
	add(traces.SegmentAlloc, 0x1000000, 1<<30)
	add(traces.Alloc, 0x1000000, 1<<30)
	if more != nil {
		more(b, d)
	}
	b.T.Final = traces.State{
		Known: true,
		Segments: []traces.Segment{{Address: 0x1000000, TotalSize: 1 << 30, AllocatedSize: 1 << 30,
			ActiveSize: 1 << 30, Wanted: 1 << 30,
			EndBlock: 1, Device: d, Stack: traces.NoStack}},
		Blocks: []traces.Block{{Address: 0x1000000, Size: 1 << 30, Requested: maybe.Known(1 << 30),
			State: traces.BlockAllocated, Count: 1, Stack: traces.NoStack}},
	}
	tl, err := timeline.Build(context.Background(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Devices[0]
}

func TestLossesInTheSourceMakeFiguresInexact(t *testing.T) {
	if d := fullGPU(t, nil); d.Totals.Exactness != timeline.Exact || !d.Totals.Complete {
		t.Fatalf("a whole recording is %s (%s)", d.Totals.Exactness, d.Totals.Reason)
	}
	d := fullGPU(t, func(b *traces.Builder, _ traces.DeviceID) {
		b.Lose("chunk_damaged", traces.DataLoss, 1, "a chunk is missing")
	})
	if d.Totals.Exactness != timeline.Inferred || d.Totals.Complete ||
		!strings.Contains(d.Totals.Reason, "chunk damaged") {
		t.Errorf("a damaged recording is %s (%s), complete %v", d.Totals.Exactness, d.Totals.Reason,
			d.Totals.Complete)
	}
}

// If the recorder noted that the process died of an out-of-memory, no text denies it.
func TestADeathByOutOfMemoryIsReportedWithoutTheFailedRequest(t *testing.T) {
	for _, died := range []bool{false, true} {
		d := fullGPU(t, func(b *traces.Builder, _ traces.DeviceID) {
			if died {
				b.Lose(traces.LossOutOfMemory, traces.Info, 1,
					"the process died of an allocation that failed")
			}
		})
		a, err := autopsy.Of(context.Background(), d, timeline.IEC)
		if err != nil {
			t.Fatal(err)
		}
		if says := strings.HasPrefix(a.Sentence,
			"The process ran out of memory and died, and the allocation that failed is not "+
				"in"); says != died {
			t.Errorf("died %v: %q", died, a.Sentence)
		}
		if strings.Contains(a.Sentence, "No out-of-memory") == died {
			t.Errorf("died %v: %q", died, a.Sentence)
		}
	}
}

func oomOf(t *testing.T, free int64) *autopsy.Result {
	t.Helper()
	d := fullGPU(t, func(b *traces.Builder, d traces.DeviceID) {
		b.Event(traces.Event{Time: 9, Action: traces.OOM, Addr: uint64(free), Size: 1 << 29,
			Stack: traces.NoStack, Device: d})
	})
	a, err := autopsy.Of(context.Background(), d, timeline.IEC)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestARefusalWithMemoryToSpareIsALimitAndNoLeverClaimsToHelp(t *testing.T) {
	a := oomOf(t, 60<<30)
	if strings.Contains(a.Sentence, "the device is full") || !strings.Contains(a.Sentence, "limit") {
		t.Errorf("the sentence is %q", a.Sentence)
	}
	for _, l := range a.Levers {
		if l.Fits == autopsy.Fits {
			t.Errorf("%s claims that the request would have fit under a limit that the trace does not record",
				l.Name)
		}
	}
}

func TestUnknownFreeBytesAreNotReportedAsZero(t *testing.T) {
	if a := oomOf(t, -1); a.Free.IsKnown() {
		t.Errorf("free bytes are %v, want unknown", a.Free)
	}
}
