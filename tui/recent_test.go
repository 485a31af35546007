package tui

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
)

// What was chosen in the palette comes first the next time, the newest on top; views are left out, since they
// come next anyway.
func TestThePaletteBeginsWithWhatWasChosenLast(t *testing.T) {
	d := open120(t)
	choose := func(text string) {
		d.press(":")
		d.typeText(text)
		d.press("enter")
	}
	choose("next theme")
	choose("units")
	choose("timeline")
	d.press(":")
	text := d.screen()
	if strings.Count(text, "Recent") != 1 {
		t.Fatalf("no recent commands:\n%s", text)
	}
	before := strings.Index(text, "Recent")
	for _, title := range []string{"units: GiB", "next theme", "Overview"} {
		at := strings.Index(text[before:], title)
		if at < 0 {
			t.Fatalf("%q is missing or too early:\n%s", title, text)
		}
		before += at
	}
	d.press("enter") // the newest again
	if d.m.state.Units != timeline.Raw || len(d.m.recent.chosen) != 2 {
		t.Errorf("units %v, recent %+v", d.m.state.Units, d.m.recent.chosen)
	}
}
