// Package tracepage is the view of the recording itself: where it came from, what it can answer, how
// trustworthy its figures are, and what was lost.
package tracepage

import (
	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// view shows a page about the trace in view. It implements leaf.View.
type view struct {
	keys  keyMap
	of    pageKey
	page  *page
	body  canvas.Rect
	laid  layout
	lines []string // of the body, as it is laid out
	view  viewport.Model
}

// layout is what the page's body is laid out for.
type layout struct {
	page    *page
	width   int
	theme   *theme.Theme
	profile canvas.Profile
}

type pageKey struct {
	tl *timeline.Timeline
	u  timeline.Units
}

type keyMap struct{ scroll, page, top, bottom key.Binding }

// New returns the view.
func New() leaf.View {
	bind := func(help, desc string, keys ...string) key.Binding {
		return key.NewBinding(key.WithKeys(keys...), key.WithHelp(help, desc))
	}
	v := &view{view: viewport.New(), keys: keyMap{
		scroll: bind("↑↓", "scroll", "up", "k", "down", "j"),
		page:   bind("pgup/pgdn", "page", "pgup", "ctrl+u", "ctrl+b", "pgdown", "ctrl+d", "ctrl+f"),
		top:    bind("g/G", "top, bottom", "g", "home"), bottom: bind("", "", "G", "end"),
	}}
	v.view.KeyMap = viewport.KeyMap{
		Up: bind("", "", "up", "k"), Down: bind("", "", "down", "j"),
		PageUp:   bind("", "", "pgup", "ctrl+u", "ctrl+b"),
		PageDown: bind("", "", "pgdown", "ctrl+d", "ctrl+f"),
	}
	return v
}

// ID implements leaf.View.
func (v *view) ID() leaf.ID { return leaf.Trace }

// Name implements leaf.View.
func (v *view) Name() string { return "Trace" }

// Timeless implements leaf.Timeless: the page describes the recording as a whole.
func (v *view) Timeless() bool { return true }

// Available implements leaf.View.
func (v *view) Available(s *leaf.State) (bool, string) {
	if s.Timeline == nil {
		return false, "No recording is open."
	}
	return true, ""
}

// Update implements leaf.View.
func (v *view) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case leaf.ChangedMsg:
		v.read(s)
	case tea.KeyPressMsg:
		v.onKey(msg)
	case tea.MouseWheelMsg:
		if v.body.Contains(msg.X, msg.Y) {
			v.view, _ = v.view.Update(msg)
		}
	}
	return nil
}

// read makes the page when another recording comes into view. Its cost depends on the length of the page, not
// of the recording: long tables are cut, with their length stated.
func (v *view) read(s *leaf.State) {
	want := pageKey{s.Timeline, s.Units}
	if s.Timeline == nil || v.page != nil && v.of == want {
		return
	}
	if v.of.tl != want.tl {
		v.view.GotoTop()
	}
	v.of, v.page = want, newPage(s)
}

func (v *view) onKey(msg tea.KeyPressMsg) {
	switch {
	case key.Matches(msg, v.keys.top):
		v.view.GotoTop()
	case key.Matches(msg, v.keys.bottom):
		v.view.GotoBottom()
	default:
		v.view, _ = v.view.Update(msg)
	}
}

// Bindings implements leaf.View.
func (v *view) Bindings(*leaf.State) []key.Binding {
	if v.view.TotalLineCount() <= v.body.H {
		return nil
	}
	return []key.Binding{v.keys.scroll, v.keys.page, v.keys.top}
}

// Status implements leaf.View.
func (v *view) Status(s *leaf.State) string {
	if s.Timeline == nil {
		return ""
	}
	return s.Timeline.Trace.Source.Path
}

// Copy implements leaf.Copier.
func (v *view) Copy(s *leaf.State) (text, what string) {
	if s.Timeline == nil {
		return "", ""
	}
	return s.Timeline.Trace.Source.Path, "the path"
}
