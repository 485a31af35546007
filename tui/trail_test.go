package tui

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// front is the views that esc goes through, the one in front first.
func (d *driver) backThrough() (views string) {
	for range 2 * mostVisits {
		views += string(rune(d.m.tabs.front))
		if undoable(d.m) == nothing {
			return views
		}
		d.press("esc")
	}
	return views
}

func TestEscReturnsToTheViewBefore(t *testing.T) {
	d := open120(t, "2", "5", "6", "1", "8")
	if got := d.backThrough(); got != "816521" {
		t.Errorf("esc goes through %s", got)
	}
}

func TestEscEndsTheSearchThenGoesBack(t *testing.T) {
	d := open120(t, "/")
	d.typeText("forward")
	d.press("enter")
	for _, k := range []string{"2", "3", "4", "5", "6", "8", "0", "1"} {
		d.press(k)
		if row := strings.Split(d.screen(), "\n")[1]; !strings.Contains(row, "forward (") ||
			!strings.Contains(row, "esc clears it") {
			t.Errorf("the header of view %s does not say that a search holds: %q", k, row)
		}
	}
	d.press("esc")
	if d.m.state.QueryText != "" || d.m.tabs.front != leaf.Overview {
		t.Errorf("esc leaves the search %q, in view %c", d.m.state.QueryText, d.m.tabs.front)
	}
	d.press("esc")
	if d.m.tabs.front != leaf.Trace {
		t.Errorf("the next one shows view %c", d.m.tabs.front)
	}
}

// Where a view does not filter, nothing calls what is searched for a filter.
func TestOnlyTheAllocationsFilter(t *testing.T) {
	d := open120(t, "/")
	d.typeText("forward")
	d.press("enter")
	for _, v := range d.m.tabs.views {
		d.press(string(rune(v.ID())))
		if has := strings.Contains(d.screen(), "filter forward"); has != filters(v) {
			t.Errorf("%s says that it filters: %v", v.Name(), has)
		}
	}
}

// What a jump sets, esc takes back together with the jump.
func TestEscTakesAJumpBackWhole(t *testing.T) {
	d := open120(t, "down", "enter")
	s := &d.m.state
	if d.m.tabs.front != leaf.Allocations || s.QueryText == "" {
		t.Fatalf("enter on a category shows view %c, %q", d.m.tabs.front, s.QueryText)
	}
	d.press("esc")
	if d.m.tabs.front != leaf.Overview || s.QueryText != "" {
		t.Errorf("esc shows view %c, %q", d.m.tabs.front, s.QueryText)
	}
	d.press("8", "tab", "down")
	was := s.Selected
	d.press("enter")
	if d.m.tabs.front != leaf.Peak {
		t.Fatalf("enter on a holder shows view %c", d.m.tabs.front)
	}
	d.press("esc")
	if d.m.tabs.front != leaf.OOM || s.Selected != was {
		t.Errorf("esc shows view %c, block %d is selected, %d was", d.m.tabs.front, s.Selected, was)
	}
}

// What was begun in the view in front ends before esc leaves it.
func TestEscEndsWhatWasBegunHereFirst(t *testing.T) {
	d := open120(t, "8", "2", "up", "c", "+")
	s := &d.m.state
	for i, ended := range []func() bool{
		func() bool { return s.Selected == timeline.NoAlloc },
		func() bool { return !s.HasMark },
		func() bool { return s.Window == s.Device.Full(s.Window.Axis) },
	} {
		if d.press("esc"); !ended() || d.m.tabs.front != leaf.Timeline {
			t.Errorf("esc %d: view %c, %+v", i, d.m.tabs.front, s.Place)
		}
	}
	if d.press("esc"); d.m.tabs.front != leaf.OOM {
		t.Errorf("at last it shows view %c", d.m.tabs.front)
	}
}

func TestEscLeavesTheIcicleBeforeTheView(t *testing.T) {
	d := open120(t, "3", "i", "down", "enter")
	d.wants("esc zoom out")
	d.press("esc")
	if d.m.tabs.front != leaf.Peak {
		t.Fatal("esc leaves the view while a part of the icicle is shown")
	}
	d.press("esc")
	if hints := d.screen(); d.m.tabs.front != leaf.Peak || !strings.Contains(hints, "i icicle") {
		t.Errorf("esc does not leave the icicle:\n%s", hints)
	}
	if d.press("esc"); d.m.tabs.front != leaf.Overview {
		t.Errorf("then it shows view %c", d.m.tabs.front)
	}
}

func TestTheTrailIsBounded(t *testing.T) {
	d := open120(t)
	for range mostVisits {
		d.press("2", "3")
	}
	if n := len(d.m.trail.past); n != mostVisits {
		t.Errorf("%d views are remembered", n)
	}
	if slices.Contains([]leaf.ID{0}, d.m.trail.past[0].view) {
		t.Error("a view without a name is remembered")
	}
}
