package tui

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// row returns the number of the screen's first line that contains text, -1 for none.
func (d *driver) row(text string) int {
	for y, line := range strings.Split(d.screen(), "\n") {
		if strings.Contains(line, text) {
			return y
		}
	}
	return -1
}

// The wheel does in Peak what it does in every other table.
func TestTheWheelScrollsPeakAndChoosesNothing(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(sample(t, "gpt-cpu")), View: leaf.Peak}, 80, 24)
	d.press("tab", "tab", "down") // by stack
	before, chosen := d.screen(), d.m.state.Selected
	y := d.row("blocks share") + 3
	for range 3 {
		d.send(tea.MouseWheelMsg{X: 20, Y: y, Button: tea.MouseWheelDown})
	}
	if d.screen() == before {
		t.Fatalf("the wheel does not scroll:\n%s", before)
	}
	if d.m.state.Selected != chosen {
		t.Error("the wheel chose another row")
	}
	for range 3 {
		d.send(tea.MouseWheelMsg{X: 20, Y: y, Button: tea.MouseWheelUp})
	}
	if d.screen() != before {
		t.Errorf("down and up again shows\n%s\ninstead of\n%s", d.screen(), before)
	}
}

// The mouse does in a plan what it does in every other chart.
func TestADragPansInsideAPlan(t *testing.T) {
	planner := &network{answers: map[string]*replay.Comparison{}}
	opts := Options{Loader: loaderOf(planner.timeline(t)), View: leaf.Managers, Planner: planner}
	d := start(t, opts, 120, 40)
	d.press("enter", "+", "+")
	y := -1 // the axis
	for i, line := range strings.Split(d.screen(), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "GiB ") {
			y = i
		}
	}
	line := func(y int) string { return strings.Split(d.screen(), "\n")[y] }
	d.send(tea.MouseClickMsg{X: 60, Y: y - 5, Button: tea.MouseLeft})
	axis, moment := line(y), line(d.row("joint holds"))
	d.send(tea.MouseMotionMsg{X: 40, Y: y - 5, Button: tea.MouseLeft})
	if line(y) == axis {
		t.Errorf("a drag does not pan:\n%s", d.screen())
	}
	if now := line(d.row("joint holds")); now != moment {
		t.Errorf("a drag moves the cursor from %s to %s", moment, now)
	}
	d.send(tea.MouseMotionMsg{X: 60, Y: y - 5, Button: tea.MouseLeft})
	if line(y) != axis {
		t.Errorf("dragged there and back, the axis is\n%s\ninstead of\n%s", line(y), axis)
	}
	d.send(tea.MouseReleaseMsg{X: 60, Y: y - 5, Button: tea.MouseLeft})
	d.send(tea.MouseMotionMsg{X: 20, Y: y - 5, Button: tea.MouseLeft})
	if line(y) != axis {
		t.Error("the mouse pans after the button is up")
	}
}

// The wheel zooms at the mouse and leaves the cursor where it is. What is drawn at the edge is not at the
// cursor then.
func TestTimelineSaysThatTheCursorIsNotInView(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(sample(t, "gpt-cpu")), View: leaf.Timeline}, 120, 40)
	d.press("p")
	d.wants(" blocks hold 1.03 GiB at the peak; the largest", "Largest here")
	for range 8 {
		d.send(tea.MouseWheelMsg{X: 10, Y: 15, Button: tea.MouseWheelUp})
	}
	d.wants("1.03 GiB are allocated at the peak, which is not in view: p goes there.")
	if strings.Contains(d.screen(), "Largest here") {
		t.Errorf("blocks of another moment are listed as the cursor's:\n%s", d.screen())
	}
	d.press("p")
	d.wants(" blocks hold 1.03 GiB at the peak; the largest", "Largest here")
}

// A click in Overview's table selects a category, as in every other table, and only the next one opens it.
func TestAClickInOverviewSelectsAndTheNextOpens(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(sample(t, "gpt-cpu"))}, 80, 24)
	d.click("optimizer_state")
	if d.m.tabs.front != leaf.Overview {
		t.Fatalf("one click on a category shows view %c", d.m.tabs.front)
	}
	d.click("optimizer_state")
	if d.m.tabs.front != leaf.Allocations || !strings.Contains(d.m.state.QueryText, "cat:optimizer_state") {
		t.Errorf("a second click shows view %c with the filter %q", d.m.tabs.front, d.m.state.QueryText)
	}
}

// A button that goes up in another view, or outside the window, leaves no chart stuck to the mouse.
func TestALostReleaseDoesNotPanLater(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(sample(t, "gpt-cpu")), View: leaf.Timeline}, 80, 24)
	d.press("+", "+")
	plot, below := d.row("┊")+1, d.row("Largest here")+2
	d.send(tea.MouseClickMsg{X: 40, Y: plot, Button: tea.MouseLeft})
	d.press("3")
	d.send(tea.MouseReleaseMsg{X: 40, Y: plot, Button: tea.MouseLeft})
	d.press("2")
	window := d.m.state.Window
	d.send(tea.MouseClickMsg{X: 12, Y: below, Button: tea.MouseLeft})
	d.send(tea.MouseMotionMsg{X: 50, Y: plot, Button: tea.MouseLeft})
	if d.m.state.Window != window {
		t.Errorf("a drag that began in the list pans from %v to %v", window, d.m.state.Window)
	}
}

// A click on a category in the legend brings its blocks out, and another click all of them again. In the
// timeline, the list beside the chart then has its blocks alone.
func TestAClickOnTheLegendBringsACategoryOut(t *testing.T) {
	for _, view := range []leaf.ID{leaf.Timeline, leaf.Segments} {
		d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0)), View: view,
			Color: "never"}, 120, 40)
		d.press("p")
		before := d.screen()
		cells := func(cat timeline.Category) int {
			return strings.Count(d.screen(), string(d.m.state.Theme.Fill(cat).Mono))
		}
		activations, weights := cells(timeline.Activation), cells(timeline.Parameter)
		if activations < 20 || weights < 20 {
			t.Fatalf("view %c: %d cells of activations and %d of parameters:\n%s",
				view, activations, weights, before)
		}
		d.clickLast("activation")
		if cells(timeline.Activation) < activations*9/10 || cells(timeline.Parameter) > weights/4 {
			t.Errorf("view %c: of %d cells of activations and %d of parameters %d and %d are drawn:\n%s",
				view, activations, weights, cells(timeline.Activation), cells(timeline.Parameter), d.screen())
		}
		if view == leaf.Timeline {
			d.wants("Largest of activation here")
		}
		d.clickLast("activation")
		if d.screen() != before {
			t.Errorf("view %c: clicked twice, the screen is\n%s\ninstead of\n%s", view, d.screen(), before)
		}
	}
}

// clickLast clicks the last occurrence of text.
func (d *driver) clickLast(text string) {
	d.t.Helper()
	lines := strings.Split(d.screen(), "\n")
	for y := len(lines) - 3; y >= 0; y-- {
		if at := strings.LastIndex(lines[y], text); at >= 0 {
			x := ansi.StringWidth(lines[y][:at])
			d.send(tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft})
			return
		}
	}
	d.t.Fatalf("there is no %q in\n%s", text, d.screen())
}
