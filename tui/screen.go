package tui

import (
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// The smallest terminal that the views are drawn in.
const (
	minWidth  = 60
	minHeight = 16
)

// screen is the terminal: its size, its colours, the cells, and where the parts of a frame lie on it.
type screen struct {
	width, height int
	layout        layout
	canvas        *canvas.Canvas
	profile       canvas.Profile
	pressed       leaf.ID // the view in which a mouse button last went down, 0 for none
}

func newScreen(w, h int, ascii bool) screen {
	s := screen{width: w, height: h, profile: canvas.TrueColor,
		canvas: canvas.New(w, h, canvas.TrueColor, ascii)}
	s.arrange(false)
	return s
}

// resize takes the terminal's size; arrange follows.
func (s *screen) resize(w, h int) {
	s.width, s.height = w, h
	s.canvas.Resize(w, h)
}

// arrange places the parts of a frame, with a line of warning or without.
func (s *screen) arrange(banner bool) { s.layout = layoutFor(s.width, s.height, banner) }

// setProfile takes the colours that the terminal knows.
func (s *screen) setProfile(p canvas.Profile) {
	s.profile = p
	s.canvas.SetProfile(p)
}

func (s *screen) hasColors() bool { return s.profile != canvas.NoColor }

// columns is roughly how many columns the charts have: one press of an arrow moves by one of them.
func (s *screen) columns() int64 { return int64(max(s.layout.body.W-12, 20)) }

// layout is where the parts of a frame lie. Everything that draws or handles clicks uses it.
type layout struct {
	tooSmall bool
	tabs     canvas.Rect // the top line: name, views, what is open
	source   canvas.Rect // what is open, or a blank row: below the tabs if it does not fit beside them
	banner   canvas.Rect // one line of warning, of height 0 without one
	body     canvas.Rect // the view in front
	status   canvas.Rect // what is under the cursor
	hints    canvas.Rect // keys that work now
}

// layoutFor places the parts in a terminal of w by h cells.
func layoutFor(w, h int, banner bool) layout {
	if w < minWidth || h < minHeight {
		return layout{tooSmall: true, body: canvas.Rect{W: w, H: h}}
	}
	var l layout
	rest := canvas.Rect{W: w, H: h}
	l.tabs, rest = rest.CutTop(1)
	if h >= 20 {
		l.source, rest = rest.CutTop(1)
	}
	if h >= 30 {
		_, rest = rest.CutTop(1)
	}
	if banner {
		l.banner, rest = rest.CutTop(1)
	}
	rest, l.hints = rest.CutBottom(1)
	rest, l.status = rest.CutBottom(1)
	l.body = rest
	return l
}
