// Package tracepage is the view of the recording itself: where it came from, what it can answer, how far its
// figures can be trusted, and what was lost.
package tracepage

import (
	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// View shows a page about the trace in view. It implements leaf.View.
type View struct {
	keys keyMap
	of   pageKey
	page *page
	top  int // first visible row of the page's body
	body canvas.Rect
	rows int // rows of the body at the width it was drawn last
}

type pageKey struct {
	tl *timeline.Timeline
	u  timeline.Units
}

type keyMap struct{ scroll, page, ends key.Binding }

// New returns the view.
func New() leaf.View {
	bind := func(help, desc string, keys ...string) key.Binding {
		return key.NewBinding(key.WithKeys(keys...), key.WithHelp(help, desc))
	}
	return &View{keys: keyMap{
		scroll: bind("↑↓", "scroll", "up", "k", "down", "j"),
		page:   bind("pgup/pgdn", "page", "pgup", "ctrl+u", "pgdown", "ctrl+d"),
		ends:   bind("g/G", "top, bottom", "g", "home", "G", "end"),
	}}
}

// ID implements leaf.View.
func (v *View) ID() leaf.ID { return leaf.Trace }

// Name implements leaf.View.
func (v *View) Name() string { return "Trace" }

// Available implements leaf.View.
func (v *View) Available(s *leaf.State) (bool, string) {
	if s.Timeline == nil {
		return false, "No recording is open."
	}
	return true, ""
}

// Update implements leaf.View.
func (v *View) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case leaf.ChangedMsg:
		v.read(s)
	case tea.KeyPressMsg:
		v.key(msg)
	case tea.MouseWheelMsg:
		if v.body.Contains(msg.X, msg.Y) {
			switch msg.Button {
			case tea.MouseWheelUp:
				v.scrollTo(v.top - 3)
			case tea.MouseWheelDown:
				v.scrollTo(v.top + 3)
			}
		}
	}
	return nil
}

// read makes the page where another recording came into view. It costs as much as the page is long, not the
// recording: long tables are cut, with their length said.
func (v *View) read(s *leaf.State) {
	want := pageKey{s.Timeline, s.Units}
	if s.Timeline == nil || v.page != nil && v.of == want {
		return
	}
	if v.of.tl != want.tl {
		v.top = 0
	}
	v.of, v.page = want, newPage(s)
}

func (v *View) key(msg tea.KeyPressMsg) {
	k, page := msg.String(), max(v.body.H-1, 1)
	switch {
	case key.Matches(msg, v.keys.scroll):
		if k == "up" || k == "k" {
			v.scrollTo(v.top - 1)
		} else {
			v.scrollTo(v.top + 1)
		}
	case key.Matches(msg, v.keys.page):
		if k == "pgup" || k == "ctrl+u" {
			page = -page
		}
		v.scrollTo(v.top + page)
	case key.Matches(msg, v.keys.ends):
		if k == "g" || k == "home" {
			v.scrollTo(0)
		} else {
			v.scrollTo(v.rows)
		}
	}
}

func (v *View) scrollTo(top int) { v.top = max(min(top, v.rows-v.body.H), 0) }

// Bindings implements leaf.View.
func (v *View) Bindings(*leaf.State) []key.Binding {
	if v.rows <= v.body.H {
		return nil
	}
	return []key.Binding{v.keys.scroll, v.keys.page, v.keys.ends}
}

// Status implements leaf.View.
func (v *View) Status(s *leaf.State) string {
	if s.Timeline == nil {
		return ""
	}
	return s.Timeline.Trace.Source.Path
}

// Copy implements leaf.Copier.
func (v *View) Copy(s *leaf.State) (text, what string) {
	if s.Timeline == nil {
		return "", ""
	}
	return s.Timeline.Trace.Source.Path, "the path"
}
