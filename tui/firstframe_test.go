package tui

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// A key that is offered only where something had no room is in the first frame that shows the view.
func TestTheFirstFrameOffersWhatDependsOnRoom(t *testing.T) {
	tl := viewtest.Training{Iterations: 3, Layers: 8, OOM: true, Pools: true}.Timeline(t)
	d := start(t, Options{Loader: loaderOf(tl), View: leaf.Timeline}, 80, 20)
	d.press("8")
	first := slices.IndexFunc(d.frames, func(f string) bool { return strings.Contains(f, "would help") })
	if first < 0 || !strings.Contains(d.frames[first], "W why") {
		t.Errorf("W is not offered in frame %d of:\n%s", first, strings.Join(d.frames, "\n"))
	}
}
