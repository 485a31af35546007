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
