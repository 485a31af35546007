package report

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

func TestMomentsAreFoundByTheirNames(t *testing.T) {
	b := traces.NewBuilder()
	b.T.Clock.HasTime = true
	dev := b.Device(traces.DeviceGPU, 0)
	for i, size := range []int64{512, 4096, 1024, 512} {
		for _, a := range []traces.Action{traces.Alloc, traces.Free} {
			b.Event(traces.Event{Time: int64(1000 * len(b.T.Events.Time)), Addr: uint64(i+1) << 20,
				Size: size, Device: dev, Action: a})
		}
	}
	tl, err := timeline.Build(t.Context(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := tl.Devices[0]
	for _, c := range []struct {
		at, from, to string
		want         timeline.Moment
		wrong        string
	}{
		{at: "peak", want: 2}, {at: "", want: 2}, {at: "end", want: 7}, {at: "5", want: 5},
		{at: "2500ns", want: 2}, {at: "0s", want: 0}, {at: "7us", want: 7},
		{at: "peak", from: "4", want: 4}, {at: "end", to: "3", want: 2}, {at: "8us", wrong: "outside of"},
		{at: "8", wrong: "has 8 events in 7.00"}, {at: "1", from: "3", wrong: "outside of"},
		{at: "it1", wrong: "no iteration"}, {at: "noon", wrong: "is not peak, end, a time"},
	} {
		at, err := ParseMoment(c.at)
		var got timeline.Moment
		if err == nil {
			from, _ := ParsePosition(c.from)
			to, _ := ParsePosition(c.to)
			span, spanErr := Resolve(d, from, to)
			if spanErr != nil {
				t.Fatal(spanErr)
			}
			got, err = at.In(d, span)
		}
		switch {
		case (err != nil) != (c.wrong != ""), err != nil && !strings.Contains(err.Error(), c.wrong):
			t.Errorf("%+v: %v", c, err)
		case err == nil && got != c.want:
			t.Errorf("%+v: got %d", c, got)
		}
	}
}
