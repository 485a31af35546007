package tui

import "github.com/gmemtop/gmemtop/tui/canvas"

// The smallest terminal that the views are drawn in.
const (
	minWidth  = 60
	minHeight = 16
)

// layout is where the parts of a frame lie. Everything that draws or hits asks it and nothing else.
type layout struct {
	tooSmall bool
	tabs     canvas.Rect // the top line: name, views, what is open
	source   canvas.Rect // what is open, or a blank row: below the tabs where it has no room beside them
	banner   canvas.Rect // one line of warning, of height 0 without one
	body     canvas.Rect // the view in front
	status   canvas.Rect // what is under the cursor
	hints    canvas.Rect // keys that do something now
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
