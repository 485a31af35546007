package crew

import (
	"reflect"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Of two ranks that differ in everything the training's figures are the fuller one's memory with what belongs
// to it, the slower one's time with its spread, the most of what each does beside that, and all pinned
// memory.
func TestAMeasurementOfRanksTakesTheFullestAndTheSlowest(t *testing.T) {
	fuller := plan.Measurement{Target: "live", Footprint: 20, PeakLive: 19, Reserved: 18, Process: 30,
		ProcessBefore: 40, StepTime: 1, StepP95: 9, KeepAllBefore: 5, KeepAllAfter: 1, SwappedOut: 7,
		RecomputeTime: 2, Work: 3, WorkAfter: 8, CopyTime: 4,
		PinnedPeak: 100, Verified: true, Plan: &plan.Plan{}, Notes: []string{"a"}}
	slower := plan.Measurement{Target: "live", Footprint: 10, PeakLive: 25, Reserved: 26, Process: 20,
		ProcessBefore: 90, StepTime: 2, StepP95: 3, KeepAllBefore: 4, KeepAllAfter: 6, SwappedIn: 8,
		RecomputeTime: 9, Work: 2, WorkBefore: 5, Elapsed: 11,
		PinnedPeak: 11, Notes: []string{"b"}}
	want := plan.Measurement{Target: "live", Footprint: 20, PeakLive: 19, Reserved: 18, Process: 30,
		ProcessBefore: 40, StepTime: 2, StepP95: 3, KeepAllBefore: 5, KeepAllAfter: 6, SwappedOut: 7,
		SwappedIn: 8, RecomputeTime: 9, Work: 3, WorkBefore: 5, WorkAfter: 8, CopyTime: 4,
		Elapsed: 11, PinnedPeak: 111}
	for _, all := range [][]plan.Measurement{{fuller, slower}, {slower, fuller}} {
		if got := merged(all); !reflect.DeepEqual(got, want) {
			t.Errorf("merged:\n%+v\nwant\n%+v", got, want)
		}
	}
}
