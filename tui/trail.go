package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// trail remembers the views that led to the one in front, so that esc goes back through them.
//
// Esc ends what was begun in the view in front, one thing at a time: the search, the selection, the mark, the
// zoom. Then it returns to the previous view. Enter on a category sets a search and jumps to what it finds;
// esc undoes both at once. A search that was typed in an earlier view still applies in this one, so it ends
// first.
type trail struct {
	past   []visit // the oldest first
	here   visit   // the state when the current view was shown
	before visit   // the state at the last key or click
}

// visit is a view and its state that esc can undo.
type visit struct {
	view     leaf.ID
	device   *timeline.Device
	query    string
	selected timeline.AllocID
	hasMark  bool
	window   timeline.Window
	jumped   bool // what led here set the query
}

// mostVisits bounds the trail; older views are forgotten.
const mostVisits = 32

// visited returns what there is now.
func visited(m *model) visit {
	s := &m.state
	return visit{view: m.tabs.front, device: s.Device, query: s.QueryText, selected: s.Selected,
		hasMark: s.HasMark, window: s.Window}
}

// show brings a view to the front, from which esc returns; it reports whether there is such a view.
func (m *model) show(id leaf.ID) bool {
	from := m.tabs.front
	if !m.tabs.show(id) {
		return false
	}
	if id == from {
		return true
	}
	m.toast.leave()
	t := &m.trail
	last := t.before
	last.view = from
	if t.past = append(t.past, last); len(t.past) > mostVisits {
		t.past = t.past[1:]
	}
	t.here = visited(m)
	t.here.jumped = t.here.query != last.query
	return true
}

// restartTrail forgets all views but the one in front.
func restartTrail(m *model) { m.trail = trail{here: visited(m), before: visited(m)} }

// undo is one thing that esc can undo.
type undo uint8

const (
	nothing undo = iota
	theSearch
	theSelection
	theMark
	theZoom
	theView
)

// undoable returns what esc would undo now.
func undoable(m *model) undo {
	s, here, root := &m.state, &m.trail.here, len(m.trail.past) == 0
	switch timed := root || !timeless(m.tabs.view(), s); {
	case s.Device != nil && s.QueryText != "" && (root || !here.jumped || s.QueryText != here.query):
		return theSearch
	case s.Device != nil && s.Selected != timeline.NoAlloc &&
		(root || selects(here.view) && s.Selected != here.selected):
		return theSelection
	case s.Device != nil && timed && s.HasMark && (root || !here.hasMark):
		return theMark
	case s.Device != nil && timed && m.cursor.zoomed() && (root || s.Window != here.window):
		return theZoom
	case !root:
		return theView
	}
	return nothing
}

// selects reports whether a view marks a selected block without a list of rows. In a list there is always a
// selected row, so there is nothing to undo.
func selects(id leaf.ID) bool { return id == leaf.Timeline || id == leaf.Segments }

// back takes one thing back.
func (m *model) back() tea.Cmd {
	switch undoable(m) {
	case theSearch:
		m.filter.clear()
	case theSelection:
		m.cursor.choose(timeline.NoAlloc)
	case theMark:
		m.cursor.HasMark = false
	case theZoom:
		m.cursor.wholeWindow()
	case theView:
		return goBack(m)
	}
	return m.changed()
}

// goBack shows the view before, with the search and the selection that it had.
func goBack(m *model) tea.Cmd {
	t, s := &m.trail, &m.state
	last := t.past[len(t.past)-1]
	t.past = t.past[:len(t.past)-1]
	var found tea.Cmd
	if m.tabs.show(last.view) && last.device == s.Device {
		m.cursor.choose(last.selected)
		if last.query != s.QueryText {
			found, _ = m.filter.set(last.query, s.Cursor) // it was valid then
		}
	}
	t.here = visited(m)
	if n := len(t.past); n > 0 {
		t.here.jumped = t.here.query != "" && t.here.query != t.past[n-1].query
	}
	return tea.Batch(found, m.changed())
}
