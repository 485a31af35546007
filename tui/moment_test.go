package tui

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// A recording of one moment has no time, and no view speaks as if it had.
func TestOneMomentIsNotSpokenOfAsIfItHadTime(t *testing.T) {
	taken := momentOf(newMaker()) // with an event, that it was taken
	taken.b.Event(traces.Event{Time: 5, Stack: traces.NoStack, Device: taken.dev, Action: traces.Snapshot})
	for name, tl := range map[string]*timeline.Timeline{
		"snapshot": moment(t), "taken": taken.build(t), "jax": opened(t, "memory.prof", jax),
	} {
		for _, size := range sizes {
			d := start(t, Options{Loader: loaderOf(tl)}, size[0], size[1])
			for _, v := range d.m.tabs.views {
				d.press(string(rune(v.ID())))
				text := d.screen()
				lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
				for _, word := range []string{
					"peak ", "throughout", "before the first", "1 event", "0 events", "middle of the run",
					"clock", "At at ",
				} {
					if v.ID() != leaf.Ranks && v.ID() != leaf.Managers && v.ID() != leaf.Diff &&
						strings.Contains(text, word) {
						t.Errorf("%s, %s says %q:\n%s", name, v.Name(), word, text)
					}
				}
				for _, hint := range []string{"p peak", "+− zoom", "c compare", "[ ] iteration"} {
					if strings.Contains(lines[len(lines)-1], hint) {
						t.Errorf("%s, %s offers %q", name, v.Name(), hint)
					}
				}
			}
			d.press("3", "enter") // the blocks of the largest holder
			if text := d.screen(); !strings.Contains(text, "alive at this moment") {
				t.Errorf("%s, a filter made by Peak:\n%s", name, text)
			}
		}
	}
}

// The palette begins with where one goes and ends with how gmemtop looks; exports are in between.
func TestThePaletteBeginsWithTheViews(t *testing.T) {
	d := open120(t)
	d.press(":")
	before := -1
	for _, title := range []string{"Overview", "what holds it", "search blocks", "mark this moment"} {
		at := strings.Index(d.screen(), title)
		if at <= before {
			t.Errorf("%q is at %d, what comes before it at %d:\n%s", title, at, before, d.screen())
		}
		before = at
	}
	if strings.Contains(d.screen(), "screen as text") {
		t.Errorf("exports are on the first page:\n%s", d.screen())
	}
	d.typeText("screen as text")
	d.wants("this screen as text")
}

// A click on a box of the calls selects the largest block below it, and the panel beside them shows it.
func TestAClickOnACallOfAMomentShowsABlock(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(weights(t))}, 120, 40)
	const call = "mlp model.py:57"
	if n := strings.Count(d.screen(), call); n != 1 { // in its box: the largest block is another one
		t.Fatalf("%d times %q:\n%s", n, call, d.screen())
	}
	d.click(call)
	if text := d.screen(); strings.Count(text, call) != 2 || !strings.Contains(text, "Selected ─") {
		t.Errorf("the block is not shown:\n%s", text)
	}
}
