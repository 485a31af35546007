package tui

import (
	"cmp"
	"slices"

	"charm.land/bubbles/v2/key"

	"github.com/gmemtop/gmemtop/tui/allocations"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/diff"
	"github.com/gmemtop/gmemtop/tui/iterations"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	"github.com/gmemtop/gmemtop/tui/machine"
	"github.com/gmemtop/gmemtop/tui/managers"
	"github.com/gmemtop/gmemtop/tui/oom"
	"github.com/gmemtop/gmemtop/tui/overview"
	"github.com/gmemtop/gmemtop/tui/peak"
	"github.com/gmemtop/gmemtop/tui/ranks"
	"github.com/gmemtop/gmemtop/tui/segments"
	"github.com/gmemtop/gmemtop/tui/timelineview"
	"github.com/gmemtop/gmemtop/tui/tracepage"
)

// tabs are the views, and which of them is in front.
type tabs struct {
	views []leaf.View
	front leaf.ID
	shown leaf.ID // in front at the last call of takeLeft
}

// newTabs makes the views in the order of the tab bar.
func newTabs(p managers.Planner) tabs {
	return tabs{front: leaf.Overview, views: []leaf.View{
		overview.New(), timelineview.New(), peak.New(), segments.New(), iterations.New(), allocations.New(),
		ranks.New(), oom.New(), diff.New(), tracepage.New(), managers.New(p),
	}}
}

// lead puts the views of the machine and of the job first, replacing earlier ones; nil is none.
func (t *tabs) lead(all *machine.View, job *live.View) {
	t.views = slices.DeleteFunc(t.views, func(v leaf.View) bool {
		return v.ID() == leaf.Live || v.ID() == leaf.Machine
	})
	if job != nil {
		t.views = slices.Insert(t.views, 0, leaf.View(job))
	}
	if all != nil {
		t.views = slices.Insert(t.views, 0, leaf.View(all))
	}
}

// of returns a view by its ID, nil if there is none.
func (t *tabs) of(id leaf.ID) leaf.View {
	for _, v := range t.views {
		if v.ID() == id {
			return v
		}
	}
	return nil
}

// view returns the view in front.
func (t *tabs) view() leaf.View { return t.of(t.front) }

// bindings returns the current bindings of the view in front; none while something loads.
func (t *tabs) bindings(s *leaf.State, idle bool) []key.Binding {
	v := t.view()
	if v == nil || !idle {
		return nil
	}
	if ok, _ := v.Available(s); !ok {
		return nil
	}
	return v.Bindings(s)
}

// show brings a view to the front and reports whether it exists.
func (t *tabs) show(id leaf.ID) bool {
	if t.of(id) == nil {
		return false
	}
	t.front = id
	return true
}

// takeLeft returns the view that was in front at the last call, if another is now; nil otherwise.
func (t *tabs) takeLeft() leaf.View {
	if t.shown == t.front {
		return nil
	}
	was := t.of(t.shown)
	t.shown = t.front
	return was
}

// shortNames are the views' names for lines too short for the full ones.
var shortNames = map[leaf.ID]string{
	leaf.Overview:    "Over",
	leaf.Timeline:    "Time",
	leaf.Segments:    "Segs",
	leaf.Iterations:  "Iters",
	leaf.Allocations: "Allocs",
	leaf.Managers:    "Mgrs",
}

// wideTabs is the width from which tabs are two blanks apart.
const wideTabs = 132

// tightNames all fit beside each other in 80 cells.
var tightNames = map[leaf.ID]string{
	leaf.Overview:    "Over",
	leaf.Timeline:    "Time",
	leaf.Segments:    "Segs",
	leaf.Iterations:  "Iter",
	leaf.Allocations: "Alloc",
	leaf.Ranks:       "Rank",
	leaf.Managers:    "Mgrs",
}

// jobNames fit side by side in 80 cells, Live included.
var jobNames = map[leaf.ID]string{
	leaf.Overview:    "Ovr",
	leaf.Timeline:    "Time",
	leaf.Segments:    "Seg",
	leaf.Iterations:  "Iter",
	leaf.Allocations: "Allo",
	leaf.Ranks:       "Rank",
	leaf.Trace:       "Trc",
	leaf.Managers:    "Mgr",
}

// names returns the names of the tabs in w cells: full names, short ones, still shorter ones, names only for
// views that have something to show, or only for the view in front. Down to 80 cells no name depends on which
// view is in front, so that tabs stay where they are.
func (t *tabs) names(s *leaf.State, w int) func(v leaf.View) string {
	whole := func(v leaf.View) string { return v.Name() }
	of := func(names map[leaf.ID]string) func(v leaf.View) string {
		return func(v leaf.View) string { return cmp.Or(names[v.ID()], v.Name()) }
	}
	short, tight, job := of(shortNames), of(tightNames), of(jobNames)
	open := func(v leaf.View) string { // only views with something to show have names
		if ok, _ := v.Available(s); ok || v.ID() == t.front {
			return tight(v)
		}
		return ""
	}
	for _, name := range []func(leaf.View) string{whole, short, tight, job, open} {
		need := 1
		for _, v := range t.views {
			text := name(v)
			need += canvas.Width(text) + 4
			if text == "" {
				need--
			}
			if w < wideTabs {
				need--
			}
		}
		if need <= w {
			return name
		}
	}
	return func(v leaf.View) string {
		if v.ID() == t.front {
			return v.Name()
		}
		return ""
	}
}

// draw draws the tabs into the top line from x on, and returns where they end.
func (t *tabs) draw(s *leaf.State, c *canvas.Canvas, x int) int {
	name := t.names(s, c.Width()-x)
	for _, v := range t.views {
		x += t.drawTab(s, c, x, v, name(v))
	}
	return x
}

// drawTab draws one view's tab and returns its width.
func (t *tabs) drawTab(s *leaf.State, c *canvas.Canvas, x int, v leaf.View, name string) int {
	th := s.Theme
	number, text := th.Dim, th.Text
	if ok, _ := v.Available(s); !ok {
		number, text = th.Faint, th.Faint
	}
	if job, ok := v.(*live.View); ok && job.Grave() {
		number, text = th.Warn, th.Warn
	}
	id := string(rune(v.ID()))
	n := 0
	if v.ID() == t.front {
		n = c.Text(x, 0, th.OnSelected(th.Strong), " "+id+" "+name+" ")
		if c.Width() < wideTabs { // the next tab begins with this blank
			n--
		}
	} else {
		n = 1 + c.Text(x+1, 0, number, id)
		if name != "" {
			n += c.Text(x+n, 0, text, " "+name)
		}
		n++
		if c.Width() < wideTabs {
			n--
		}
	}
	c.Zone(canvas.Rect{X: x, W: n, H: 1}, runMsg{"view " + id})
	return n
}
