package tui

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
)

// rich opens a session in which every action can do something: two files, two devices, a filter, a mark, a
// selected block whose source is here, a zoomed window, the cursor in the middle.
func rich(t *testing.T) *driver {
	t.Helper()
	d := start(t, Options{Editor: "true", Loader: loaderOf(twoDevices(t), training(t, "runs/b.gmt", 64<<20)),
		Planner: &plannertest.Planner{}}, 120, 40)
	d.press("[", "[", "]", "c", ".", ".", ".", ".", "+", "/")
	d.typeText("forward")
	d.press("enter")
	d.press("n")
	return d
}

// footprint is all that a key can change, as text.
func (d *driver) footprint() string {
	s := d.m.state
	s.Theme, s.Version = nil, 0
	return fmt.Sprint(d.m.View().Content, d.quit, d.m.dialogs.Len(), d.m.display.mouse,
		d.m.state.Theme.Name, d.ran,
		s.Cursor, s.Selected, s.Window, s.QueryText, s.HasMark, s.Device == nil)
}

func TestEveryKeyOfTheRootDoesSomething(t *testing.T) {
	for _, a := range newModel(Options{}).actions {
		for _, k := range a.binding.Keys() {
			t.Run(a.name+" "+k, func(t *testing.T) {
				d := rich(t)
				if a.name == "redraw" || a.name == "suspend" {
					before := maps.Clone(d.ran)
					d.press(k)
					if maps.Equal(before, d.ran) {
						t.Errorf("%s sends bubbletea no command", k)
					}
					return
				}
				if a.name == "view 1" {
					d.press("2")
				}
				if !d.m.actions.named(a.name).enabled() {
					t.Fatalf("the key %s does nothing even here", a.name)
				}
				before := d.footprint()
				d.press(k)
				if d.footprint() == before {
					t.Errorf("pressing %s (%s) does nothing", k, a.binding.Help().Desc)
				}
			})
		}
	}
}

// approaches are ways to get to a view: a key that does nothing at the top of a list does something further
// down.
var approaches = [][]string{
	{},
	{"down", "down"},
	{"down", "down", "down", "down", "down", "right"},
	{"tab"},
	{"p", "up", "up"},
	{"up", "v", "v"},
	{"i", "down", "down", "enter"},
	{"down", "down", "g"},
	{"v", "v", "up"},
	{"enter"},
	{"enter", "right", "right", "+", "down", "down"},
	{"d", "enter"},
}

func TestEveryKeyOfAViewDoesSomething(t *testing.T) {
	two := []*timeline.Timeline{training(t, "runs/a.gmt", 0), training(t, "runs/b.gmt", 64<<20)}
	run := nineRanks(t)
	load := func(context.Context, func(string, int64, int64)) (Loaded, error) {
		return Loaded{Timelines: two, Run: run}, nil
	}
	for _, v := range newModel(Options{}).tabs.views {
		height := 40
		if v.ID() == leaf.Trace { // its page has keys only where it is longer than the screen
			height = 20
		}
		seen := map[string]bool{}
		works := map[string]bool{}
		for _, way := range approaches {
			open := func() *driver {
				opts := Options{Loader: load, View: v.ID(), Planner: &plannertest.Planner{}}
				d := start(t, opts, 120, height)
				d.press(way...)
				return d
			}
			if at := open(); at.m.tabs.front != v.ID() || at.own() == nil {
				continue
			}
			for _, b := range open().own() {
				for _, k := range b.Keys() {
					seen[k] = true
					if works[k] || !b.Enabled() {
						continue
					}
					d := open()
					before := d.footprint()
					d.press(k)
					works[k] = d.footprint() != before
				}
			}
		}
		if len(seen) == 0 {
			t.Errorf("no approach opens %s", v.Name())
		}
		for k := range seen {
			if !works[k] {
				t.Errorf("in %s the key %s does nothing", v.Name(), k)
			}
		}
	}
}

// helpRow reports whether a line of the screen has a key with its description behind it. The line in which
// one types begins with ›, and repeats whatever was typed.
func helpRow(screen, key, desc string) bool {
	return slices.ContainsFunc(strings.Split(screen, "\n"), func(line string) bool {
		at := strings.Index(line, " "+desc)
		return at >= 0 && !strings.Contains(line, "›") && strings.Contains(line[:at+1], " "+key+" ")
	})
}

func TestEveryBindingIsFoundInHelp(t *testing.T) {
	for _, v := range newModel(Options{}).tabs.views {
		d := rich(t)
		d.press(string(rune(v.ID())))
		type shown struct{ key, desc string }
		var want []shown
		for _, b := range d.own() {
			want = append(want, shown{b.Help().Key, b.Help().Desc})
		}
		for _, a := range d.m.actions {
			e, ok := a.entryBeside(d.own())
			if !ok { // the view's own keys come first
				d.press("?")
				d.typeText(e.Title)
				if helpRow(d.screen(), e.Key, e.Title) {
					t.Errorf("%s: help lists %q (%s), which does something else there", v.Name(),
						e.Title, e.Key)
				}
				d.press("esc")
				continue
			}
			want = append(want, shown{e.Key, e.Title})
		}
		for _, w := range want {
			if w.key == "" || w.desc == "" {
				t.Errorf("%s has a binding without help", v.Name())
				continue
			}
			d.press("?")
			d.typeText(w.desc)
			if !helpRow(d.screen(), w.key, w.desc) {
				t.Errorf("%s: help does not find %q (%s):\n%s", v.Name(), w.desc, w.key, d.screen())
			}
			d.press("esc")
		}
	}
}

func TestHelpDoesWhatItSays(t *testing.T) {
	d := rich(t)
	d.press("?")
	d.typeText("to the peak")
	d.press("enter")
	if d.m.state.Cursor != d.m.state.Device.Totals.PeakAt || d.m.dialogs.Len() != 0 {
		t.Errorf("the cursor is at %d, the peak at %d", d.m.state.Cursor, d.m.state.Device.Totals.PeakAt)
	}
}

// A tab that moves when another is chosen is hard to hit.
func TestTabsStayWhereTheyAre(t *testing.T) {
	for _, w := range []int{80, 100, 120, 160, 200} {
		d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0))}, w, 24)
		at := func(name string) int {
			line, _, _ := strings.Cut(d.screen(), "\n")
			before, _, ok := strings.Cut(line, " "+name)
			if !ok {
				t.Fatalf("at %d columns there is no tab %q: %s", w, name, line)
			}
			return canvas.Width(before)
		}
		want := map[string]int{}
		for _, front := range []string{"1", "3", "6", "0", "m"} {
			d.press(front)
			for _, name := range []string{"2 T", "4 S", "8 OOM", "9 Diff", "m M"} {
				x := at(name)
				if _, known := want[name]; !known {
					want[name] = x
				}
				if x != want[name] {
					t.Errorf("at %d columns with %s in front, %q is at %d and was at %d", w, front, name, x,
						want[name])
				}
			}
		}
	}
}

func TestEveryHintIsClickable(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0))}, 120, 40)
	d.click("enter what holds it")
	if d.m.tabs.front != leaf.Peak {
		t.Errorf("view %c is in front", d.m.tabs.front)
	}
	d.click("4 Segments")
	if d.m.tabs.front != leaf.Segments {
		t.Errorf("view %c is in front", d.m.tabs.front)
	}
	d.click("? help")
	d.wants("type to search")
	d.click("esc")
	if d.m.dialogs.Len() != 0 {
		t.Error("a click on esc does not close help")
	}
	d.press("esc")
	d.click("1 Overview")
	d.click(": more")
	d.wants("What next?")
	d.press("esc")
	d.click("/ search")
	d.wants("search /")
}

func TestOneCursorAndOneSelectionInAllViews(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0))}, 120, 40)
	d.press("2", "up")
	chosen := d.m.state.Selected
	if chosen == timeline.NoAlloc {
		t.Fatal("↑ selects no block in the timeline")
	}
	d.press("6")
	d.wants(strings.TrimPrefix(d.m.state.Device.BlockName(chosen), "block "))
	d.press("1", "g")
	at := d.m.state.Cursor
	for _, k := range []string{"2", "3", "4", "5", "6"} {
		d.press(k)
		if d.m.state.Cursor != at {
			t.Errorf("showing view %s moved the cursor", k)
		}
	}
}

func TestEscUndoesOneThingAtATime(t *testing.T) {
	d := rich(t)
	s := &d.m.state
	for _, left := range []string{"selection", "filter", "mark", "zoom"} {
		had := [4]bool{s.Selected != timeline.NoAlloc, s.QueryText != "", s.HasMark,
			s.Window != s.Device.Full(s.Window.Axis)}
		d.press("esc")
		has := [4]bool{s.Selected != timeline.NoAlloc, s.QueryText != "", s.HasMark,
			s.Window != s.Device.Full(s.Window.Axis)}
		lost := 0
		for i := range had {
			if had[i] && !has[i] {
				lost++
			}
		}
		if lost != 1 {
			t.Errorf("esc on %s undid %d things: %v to %v", left, lost, had, has)
		}
	}
}

func TestEveryViewHintsAtExportAndPaletteAt80Columns(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/a.gmt", 0))}, 80, 24)
	for _, v := range d.m.tabs.views {
		d.press(string(rune(v.ID())))
		lines := strings.Split(strings.TrimRight(d.screen(), "\n"), "\n")
		last := lines[len(lines)-1]
		if !strings.Contains(last, "e export  : more") || !strings.Contains(last, "? help") {
			t.Errorf("%s: %s", v.Name(), last)
		}
	}
}
