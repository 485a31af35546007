package crew

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/replay/live"
)

// When a training ends before its plan is on, what gmemtop was doing is what it did before the end.
func TestWhatWasDoneLastIsKnownAfterTheEnd(t *testing.T) {
	for _, c := range []struct {
		name  string
		news  []live.News
		said  []string
		ever  bool
		stage live.Stage
	}{
		{"ends early", []live.News{{Stage: live.Planning}, {Stage: live.Over}}, nil, false, live.Planning},
		{"is on", []live.News{{Stage: live.On}, {Stage: live.On}, {Stage: live.Over}}, []string{"on"}, true,
			live.On},
		{"gives up", []live.News{{Stage: live.On}, {Stage: live.Describing, Ended: "stale"},
			{Stage: live.Planning, Ended: "stale"}}, []string{"on", "joint ended: stale"}, true,
			live.Planning},
	} {
		var so far
		var said []string
		for _, n := range c.news {
			said = append(said, so.hears(n, "joint", "on")...)
		}
		if so.ever != c.ever || so.stage != c.stage || len(said) != len(c.said) ||
			!slices.Equal(said[:min(1, len(said))], c.said[:min(1, len(said))]) {
			t.Errorf("%s: said %q, %+v", c.name, said, so)
		}
	}
}

// A training that was too short says how long it has to be.
func TestATrainingThatWasTooShortIsToldWhatItNeeds(t *testing.T) {
	for _, c := range []struct {
		name          string
		last          live.News
		times         bool
		steps, timing int
	}{
		{"captured on a GPU", live.News{Stage: live.Describing, Try: 1, Tries: 5}, false, 25, 0},
		{"captured on a CPU", live.News{Stage: live.Describing, Try: 1, Tries: 5, Usual: 1e8}, true, 92, 75},
		{"steps of seconds", live.News{Stage: live.Describing, Try: 1, Tries: 5, Usual: 2e9}, true, 30, 15},
		{"timed", live.News{Stage: live.Describing, Timed: 5, Time: 25, Usual: 1e8}, true, 84, 75},
		{"timed for long", live.News{Stage: live.Describing, Timed: 65, Time: 75, Usual: 1e8}, true, 12, 75},
		{"watched", live.News{Stage: live.Describing, Watched: 10, Watch: 40}, false, 53, 0},
		{"planned", live.News{Stage: live.Planning}, false, 23, 0},
		{"timed without", live.News{Stage: live.MeasuringWithout}, false, 23, 0},
	} {
		if steps, timing := c.last.Rest(c.times); steps != c.steps || timing != c.timing {
			t.Errorf("%s: %d more steps, and %d time costs; want %d and %d", c.name, steps, timing, c.steps,
				c.timing)
		}
	}
}
