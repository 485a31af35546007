package traces

import (
	"slices"
	"testing"
)

func TestEventsOfOneDeviceAreContiguousAndKeepTheirOrder(t *testing.T) {
	b := NewBuilder()
	gpu0, gpu1 := b.Device(DeviceGPU, 0), b.Device(DeviceGPU, 1)
	for i := range 10 {
		d := gpu0
		if i%2 == 0 {
			d = gpu1
		}
		b.Event(Event{Time: int64(i), Addr: uint64(i), Size: 1, Stack: NoStack, Device: d, Action: Alloc})
	}
	tr := b.Finish()
	for _, c := range []struct {
		device DeviceID
		want   []int64
	}{{gpu0, []int64{1, 3, 5, 7, 9}}, {gpu1, []int64{0, 2, 4, 6, 8}}} {
		first, end := tr.DeviceEvents(c.device)
		if got := tr.Events.Time[first:end]; !slices.Equal(got, c.want) {
			t.Errorf("device %d has events at %v, want %v", c.device, got, c.want)
		}
	}
}

func TestAnAccessStaysBeforeTheNextEventOfItsDevice(t *testing.T) {
	b := NewBuilder()
	gpu0, gpu1 := b.Device(DeviceGPU, 0), b.Device(DeviceGPU, 1)
	add := func(d DeviceID, addr uint64) {
		b.Event(Event{Addr: addr, Size: 1, Stack: NoStack, Device: d, Action: Alloc})
	}
	access := func(d DeviceID, addr uint64) {
		b.T.Accesses = append(b.T.Accesses,
			Access{Addr: addr, Op: NoOp, Device: d, Event: int32(b.T.Events.Len())})
	}
	add(gpu1, 100)
	access(gpu1, 100) // after gpu1's first event
	add(gpu0, 1)
	access(gpu0, 1) // after gpu0's first event, before its second
	add(gpu1, 101)
	access(gpu0, 2) // still before gpu0's second
	add(gpu0, 2)
	access(gpu1, 101) // at the end of gpu1
	tr := b.Finish()
	// Now gpu0: rows 0,1 (addresses 1, 2); gpu1: rows 2,3 (100, 101).
	want := []int32{3, 1, 1, 4}
	for i, a := range tr.Accesses {
		if a.Event != want[i] {
			t.Errorf("access %d stands before event %d, want %d", i, a.Event, want[i])
		}
	}
}

func TestEqualStacksAreOneStack(t *testing.T) {
	b := NewBuilder()
	f := b.Frame(Frame{File: b.String("train.py"), Func: b.String("step"), Line: 3})
	g := b.Frame(Frame{File: b.String("train.py"), Func: b.String("main"), Line: 9})
	if first, again := b.Stack([]FrameID{f, g}), b.Stack([]FrameID{f, g}); first != again {
		t.Error("equal stacks have two ids")
	}
	if b.Stack([]FrameID{f, g}) == b.Stack([]FrameID{g, f}) {
		t.Error("stacks of another order share an id")
	}
	if b.Stack(nil) != NoStack {
		t.Error("an empty stack is not NoStack")
	}
}

func TestDetailColumnAppearsWithItsFirstDetail(t *testing.T) {
	b := NewBuilder()
	d := b.Device(DeviceGPU, 0)
	b.Event(Event{Stack: NoStack, Device: d, Action: Alloc})
	if b.T.Events.Detail != nil {
		t.Fatal("there is a detail column without details")
	}
	id := b.Detail(Detail{UserMetadata: b.String("kv cache"), ForwardStack: NoStack})
	b.Event(Event{Stack: NoStack, Device: d, Action: Alloc, Detail: id})
	tr := b.Finish()
	if got := tr.Text(tr.DetailOf(1).UserMetadata); got != "kv cache" {
		t.Errorf("event 1 has the note %q", got)
	}
	if tr.DetailOf(0).UserMetadata != 0 {
		t.Error("event 0 has a note")
	}
}

func TestAClockThatStepsBackIsCountedAndKeepsOrder(t *testing.T) {
	b := NewBuilder()
	d := b.Device(DeviceGPU, 0)
	for _, at := range []int64{5, 3, 4} {
		b.Event(Event{Time: at, Stack: NoStack, Device: d, Action: Alloc})
	}
	tr := b.Finish()
	if len(tr.Losses) != 1 || tr.Losses[0].Name != "clock_steps_back" || tr.Losses[0].Count != 1 {
		t.Errorf("losses are %+v", tr.Losses)
	}
	if !slices.Equal(tr.Events.Time, []int64{5, 3, 4}) {
		t.Errorf("order changed to %v", tr.Events.Time)
	}
}

func TestActionNamesArePyTorchsAndParseBack(t *testing.T) {
	for a := Alloc; a < actionCount; a++ {
		if ParseAction(a.String()) != a {
			t.Errorf("%s does not parse back", a)
		}
	}
	if ParseAction("workspace_snapshot") != ActionUnknown {
		t.Error("an unknown action was taken for a known one")
	}
}
