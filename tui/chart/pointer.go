package chart

import (
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Pointer handles the mouse in a chart: a click moves the cursor, the wheel zooms at the pointer (with shift
// it pans), a drag pans. A press is a click only once it ends where it began.
type Pointer struct {
	down, moved bool
	clicked     bool // the last message ended a click
	fromX       int
	window      timeline.Window
}

// Clicked reports whether the last message ended a click in the chart.
func (p *Pointer) Clicked() bool { return p.clicked }

// Update handles a mouse message in the view's coordinates; handled is false if it is not for the chart.
func (p *Pointer) Update(s *leaf.State, f *Frame, msg tea.Msg) (cmd tea.Cmd, handled bool) {
	p.clicked = false
	if f.Device == nil || f.Device != s.Device || f.Area.W == 0 {
		return nil, false
	}
	full := s.Device.Full(s.Window.Axis)
	switch msg := msg.(type) {
	case tea.MouseClickMsg:
		p.down = false // the release may have gone to another view
		if !f.Area.Contains(msg.X, msg.Y) || msg.Button != tea.MouseLeft {
			return nil, false
		}
		p.down, p.moved, p.fromX, p.window = true, false, msg.X, s.Window
		return nil, true
	case tea.MouseReleaseMsg:
		p.clicked = p.down && !p.moved && f.Area.Contains(msg.X, msg.Y)
		if p.down = false; p.clicked {
			return leaf.Send(leaf.CursorMsg{To: f.moment(p.fromX - f.Area.X)}), true
		}
	case tea.MouseMotionMsg:
		if !p.down || msg.Button != tea.MouseLeft {
			return nil, false
		}
		p.moved = p.moved || msg.X != p.fromX
		by := int64(float64(p.fromX-msg.X) / float64(f.Area.W) * float64(leaf.Span(p.window)))
		return leaf.Send(leaf.WindowMsg{Window: leaf.Pan(p.window, full, by)}), true
	case tea.MouseWheelMsg:
		if msg.X < f.Area.X || !f.Area.Contains(msg.X, msg.Y) {
			return nil, false
		}
		about := f.Position(msg.X - f.Area.X)
		w := s.Window
		step := max(leaf.Span(w)/8, 1)
		switch {
		case msg.Button == tea.MouseWheelLeft, msg.Button == tea.MouseWheelUp &&
			msg.Mod.Contains(tea.ModShift):
			w = leaf.Pan(w, full, -step)
		case msg.Button == tea.MouseWheelRight, msg.Button == tea.MouseWheelDown &&
			msg.Mod.Contains(tea.ModShift):
			w = leaf.Pan(w, full, step)
		case msg.Button == tea.MouseWheelUp:
			w = leaf.Zoom(w, full, about, 3, 4)
		case msg.Button == tea.MouseWheelDown:
			w = leaf.Zoom(w, full, about, 4, 3)
		default:
			return nil, false
		}
		return leaf.Send(leaf.WindowMsg{Window: w}), true
	}
	return nil, false
}
