package figure

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

func TestEveryColourOfTheChartIsInTheLegend(t *testing.T) {
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	now := int64(0)
	emit := func(a traces.Action, addr uint64, size int64, category string) {
		now += 1000
		b.Event(traces.Event{Time: now, Addr: addr, Size: size, Device: dev, Action: a,
			Detail: b.Detail(traces.Detail{Category: b.String(category), ForwardStack: traces.NoStack})})
	}
	emit(traces.Alloc, 1<<30, 10<<20, "parameter")
	emit(traces.Alloc, 2<<30, 1<<20, "temporary")
	emit(traces.Free, 2<<30, 1<<20, "temporary")
	emit(traces.Alloc, 3<<30, 50<<20, "activation")
	emit(traces.Free, 3<<30, 50<<20, "activation")
	tl, err := timeline.Build(t.Context(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChart(t.Context(), tl.Devices[0], 200, Options{})
	if err != nil {
		t.Fatal(err)
	}
	svg := string(c.svg(1200, 640, &light))
	for _, want := range []string{">parameter<", ">activation<", ">temporary<", ">not at the peak<"} {
		if strings.Count(svg, want) != 1 {
			t.Errorf("%d times %s", strings.Count(svg, want), want)
		}
	}
}

// The chart adds up what the allocator gave, a multiple of 512 bytes, and not what was asked for; its footer
// says which of the two.
func TestTheFooterSaysWhichBytesTheColumnsCount(t *testing.T) {
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	b.Event(traces.Event{Time: 1, Addr: 1 << 30, Size: 1000, Device: dev, Action: traces.Alloc})
	b.Event(traces.Event{Time: 2, Addr: 1 << 30, Size: 1000, Device: dev, Action: traces.Free})
	tl, err := timeline.Build(t.Context(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChart(t.Context(), tl.Devices[0], 200, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if sum := c.Columns[c.Peak].By[timeline.Unknown]; sum != 1024 {
		t.Fatalf("the column at the peak counts %d bytes of a block of 1000, rounded to 1024", sum)
	}
	if svg := string(c.svg(1200, 640, &light)); !strings.Contains(svg, "allocated bytes by category") {
		t.Error("the footer does not say that the columns count allocated bytes")
	}
}
