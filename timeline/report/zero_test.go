package report

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// TestAllTimesCountFromTheFilesFirstEvent checks that the sentence about a device that begins later, the
// peak's time and the moment of --from use one clock.
func TestAllTimesCountFromTheFilesFirstEvent(t *testing.T) {
	b := traces.NewBuilder()
	cpu, gpu := b.Device(traces.DeviceCPU, 0), b.Device(traces.DeviceGPU, 0)
	alloc := func(d traces.DeviceID, at int64, addr uint64) {
		b.Event(traces.Event{Time: at, Addr: addr, Size: 1 << 20, Stack: traces.NoStack, Device: d,
			Action: traces.Alloc})
	}
	alloc(cpu, 100, 1<<20)
	alloc(gpu, 5_000_000_100, 1<<20)
	alloc(gpu, 7_000_000_100, 2<<20)
	tl, err := timeline.Build(t.Context(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStats(t.Context(), tl, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := s.Devices[1]
	if d.PeakTime == nil || *d.PeakTime != 7_000_000_000 ||
		!strings.Contains(d.Headline, "7.00 s into the recording") {
		t.Errorf("the peak is at %v, and the sentence says: %s", d.PeakTime, d.Headline)
	}
	from, err := ParsePosition("6s")
	if err != nil {
		t.Fatal(err)
	}
	if span, err := Resolve(tl.Devices[1], from, Position{}); err != nil || span.First != 1 {
		t.Errorf("--from 6s begins at event %d: %v", span.First, err)
	}
}
