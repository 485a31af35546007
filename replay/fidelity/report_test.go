package fidelity

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
)

func TestTheSentenceSaysWhatWasProved(t *testing.T) {
	for _, c := range []struct {
		r    Report
		want string
	}{
		{
			Report{Allocations: 3, SamePlace: 3, SegmentEvents: 2, SameSegments: 2, EmulatedSegmentEvents: 2,
				PeakReserved: 4 << 20, EmulatedPeakReserved: 4 << 20, FromEmpty: true},
			"The emulated allocator put all 3 allocations where PyTorch did, with the same 2 segment " +
				"events; reserved peaks at 4.00 MiB in both.",
		},
		{
			Report{Allocations: 100_000, SamePlace: 99_999, PeakReserved: 4 << 20,
				EmulatedPeakReserved: 5 << 20, Restored: 7, Rests: 2,
				First: &Divergence{At: 5, Recorded: "a", Emulated: "b", Why: "c"}},
			"The emulated allocator put >99.9 % of 100000 allocations where PyTorch did, neither asked the " +
				"driver for anything; reserved peaks at " +
				"4.00 MiB, emulated 5.00 MiB (+25.00 %); it began with 7 blocks rebuilt from the final " +
				"state, 2 of them with an inferred size. First difference at event 5: " +
				"recorded a, emulated b: c.",
		},
		{
			Report{Allocations: 4, SamePlace: 1, SegmentEvents: 1, EmulatedSegmentEvents: 3, SameSegments: 1,
				FromEmpty: true},
			"The emulated allocator put 25.0 % of 4 allocations where PyTorch did, with 33.3 % of 3 " +
				"segment events the same; reserved peaks at 0 B in both.",
		},
	} {
		if got := c.r.Sentence(timeline.IEC); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	for _, c := range []struct {
		r    Report
		want string
	}{
		{
			Report{Allocations: 6488, SamePlace: 6488, PeakReserved: 4 << 20, EmulatedPeakReserved: 4 << 20},
			"100 % of 6,488 allocations placed as recorded; peak reserved 4.00 MiB, as recorded",
		},
		{
			Report{Allocations: 4, SamePlace: 1, SegmentEvents: 1, EmulatedSegmentEvents: 3, SameSegments: 1,
				PeakReserved: 4 << 20, EmulatedPeakReserved: 5 << 20, First: &Divergence{At: 5, Why: "c"}},
			"25.0 % of 4 allocations placed as recorded, 33.3 % of 3 segment events the same; peak " +
				"reserved 5.00 MiB, recorded 4.00 MiB; " +
				"first difference at event 5: c",
		},
	} {
		if got := c.r.Summary(timeline.IEC); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if r := (&Refusal{Reason: NoSegments, Text: "why"}).Error(); !strings.Contains(r,
		"cannot be replayed: why") {
		t.Error(r)
	}
}
