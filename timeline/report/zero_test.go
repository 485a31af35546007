package report

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// TestAllTimesCountFromTheFilesFirstEvent: the sentence about a device that begins later, the peak's time and
// the moment that --from names mean one clock.
func TestAllTimesCountFromTheFilesFirstEvent(t *testing.T) {
	b := traces.NewBuilder()
	cpu, gpu := b.Device(traces.DeviceCPU, 0), b.Device(traces.DeviceGPU, 0)
	b.Event(traces.Event{Time: 100, Addr: 1, Size: 512, Stack: traces.NoStack, Device: cpu, Action: traces.Alloc})
	for i, at := range []int64{5_000_000_100, 7_000_000_100} {
		b.Event(traces.Event{Time: at, Addr: uint64(i+1) << 20, Size: 1 << 20, Stack: traces.NoStack, Device: gpu,
			Action: traces.Alloc})
	}
	tl, err := timeline.Build(t.Context(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStats(t.Context(), tl, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := s.Devices[1]
	if d.PeakTime == nil || *d.PeakTime != 7_000_000_000 || !strings.Contains(d.Headline, "7.00 s into the recording") {
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
