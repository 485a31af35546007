package timeline_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// An access whose op is unknown decides nothing: the next one with an op names the block.
func TestAnAccessWithoutAnOpGivesNoOrigin(t *testing.T) {
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	b.Event(traces.Event{Time: 10, Action: traces.Alloc, Addr: 4096, Size: 512, Device: dev,
		Stack: traces.NoStack})
	b.T.Ops = []traces.Op{{Start: 12, Duration: 1, Name: b.String("aten::mm"), Phase: traces.PhaseForward,
		Stack: traces.NoStack, Parent: traces.NoOp}}
	b.T.Accesses = []traces.Access{
		{Time: 11, Event: 1, Addr: 4096, Op: traces.NoOp, Mode: traces.Write, Device: dev},
		{Time: 12, Event: 1, Addr: 4096, Op: 0, Mode: traces.Write, Device: dev},
	}
	tl, err := timeline.Build(context.Background(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := tl.Main().Origin(0)
	if s == traces.NoStack {
		t.Fatal("the block has no origin")
	}
	fn, _, _ := tl.Places().FrameText(tl.Places().Stacks.At(s)[0])
	if fn != "aten::mm" {
		t.Errorf("the block is from %q", fn)
	}
}
