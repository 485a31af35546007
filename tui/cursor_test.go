package tui

import (
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

func cursorOn(d *timeline.Device) *cursor {
	c := &cursor{Place: &leaf.Place{}}
	c.open(d)
	return c
}

func TestTheCursorStaysInTheRecording(t *testing.T) {
	d := training(t, "runs/a.gmt", 0).Main()
	c := cursorOn(d)
	if c.Cursor != d.Totals.PeakAt || c.zoomed() || c.Selected != timeline.NoAlloc {
		t.Errorf("opens at %+v", *c.Place)
	}
	last := timeline.Moment(d.Len() - 1)
	for name, walk := range map[string]func() string{
		"on": func() string { return c.move(1, 100) }, "an event on": func() string { return c.step(1) },
		"half a window on": func() string {
			return c.page(1)
		}, "to a moment": func() string { return c.moveTo(timeline.Never) },
	} {
		c.toEnd(1)
		if walk(); c.Cursor != last {
			t.Errorf("from the end, %s goes to %d", name, c.Cursor)
		}
	}
	c.toEnd(-1)
	if c.step(-1); c.Cursor != timeline.Start {
		t.Errorf("a step back from the start goes to %d", c.Cursor)
	}
	if c.choose(timeline.AllocID(d.Allocs.Len())); c.Selected != timeline.NoAlloc {
		t.Errorf("block %d is selected, which does not exist", c.Selected)
	}
}

func TestTheWindowGoesWithTheCursor(t *testing.T) {
	c := cursorOn(training(t, "runs/a.gmt", 0).Main())
	for range 6 {
		c.zoom(1, 2)
	}
	for _, which := range []int{-1, 1} {
		c.toEnd(which)
		if at := leaf.Position(c.device, c.Window.Axis, c.Cursor); at < c.Window.From || at > c.Window.To ||
			!c.zoomed() {
			t.Errorf("the cursor at %d is outside the window %v", at, c.Window)
		}
	}
	if c.wholeWindow(); c.zoomed() {
		t.Errorf("the whole window is %v", c.Window)
	}
}

func TestTheCursorStepsThroughIterationsOnceKnown(t *testing.T) {
	d := training(t, "runs/a.gmt", 0).Main()
	c := cursorOn(d)
	if c.hasIterations() {
		t.Error("iterations were used before they were computed")
	}
	list := steps.Of(d).List
	c.analysed = true
	c.toEnd(-1)
	for i := range list {
		if say := c.toIteration(1); say != "" || c.Cursor != list[i].First {
			t.Errorf("iteration %d: at %d, said %q", i, c.Cursor, say)
		}
	}
	if say := c.toIteration(1); say != "this is the last iteration" {
		t.Errorf("after the last one: %q", say)
	}
}

func TestTheCursorGoesToTheMarkAndBack(t *testing.T) {
	c := cursorOn(training(t, "runs/a.gmt", 0).Main())
	marked := c.Cursor
	c.mark()
	c.toEnd(-1)
	if c.toMark(); c.Cursor != marked {
		t.Errorf("the mark is at %d, not %d", c.Cursor, marked)
	}
	if c.toMark(); c.Cursor != timeline.Start {
		t.Errorf("back is %d", c.Cursor)
	}
}

func TestSteppingThroughMatchesWrapsAround(t *testing.T) {
	d := training(t, "runs/a.gmt", 0).Main()
	f := filter{Filter: &leaf.Filter{}, device: d}
	if _, err := f.set("size>banana", 0); err == nil || f.QueryText != "" {
		t.Errorf("the filter %q is applied", f.QueryText)
	}
	find, err := f.set("cat:activation", 0)
	if err != nil {
		t.Fatal(err)
	}
	to, say := f.next(timeline.NoAlloc, 1)
	if to != timeline.NoAlloc || say.Text != "still searching: try again in a moment" {
		t.Errorf("before an answer: %d, %q", to, say.Text)
	}
	msg := find().(foundMsg)
	f.take(foundMsg{text: "cat:gradient", device: d, blocks: []timeline.AllocID{7}})
	if _, ok := f.count("cat:activation"); ok {
		t.Error("the answer to another filter was used")
	}
	f.take(msg)
	first, _ := f.next(timeline.NoAlloc, 1)
	at := first
	for i := range msg.blocks {
		if at != msg.blocks[i] {
			t.Errorf("match %d is %d, not %d", i, at, msg.blocks[i])
		}
		at, _ = f.next(at, 1)
	}
	if back, _ := f.next(at, -1); at != first || back != msg.blocks[len(msg.blocks)-1] {
		t.Errorf("after the last match comes %d, before the first %d", at, back)
	}
}

func TestASearchThatFailsSaysWhy(t *testing.T) {
	d := training(t, "runs/a.gmt", 0).Main()
	f := filter{Filter: &leaf.Filter{}, device: d}
	if _, err := f.set("cat:activation", 0); err != nil {
		t.Fatal(err)
	}
	f.take(foundMsg{text: f.QueryText, device: d, err: errDamaged})
	to, say := f.next(timeline.NoAlloc, 1)
	if to != timeline.NoAlloc || say.Text != errDamaged.Error() || !say.Error {
		t.Errorf("n goes to %d and says %q", to, say.Text)
	}
	if n, ok := f.count(f.QueryText); ok {
		t.Errorf("the search line counts %s blocks", n)
	}
}
