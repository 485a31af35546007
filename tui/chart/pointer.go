package chart

import (
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Pointer handles the mouse in a chart: a click moves the cursor, the wheel zooms at the pointer (with shift
// it pans), a drag pans.
type Pointer struct {
	down   bool
	fromX  int
	window timeline.Window
}

// Update handles a mouse message in the view's coordinates; handled is false if it is not for the chart.
func (p *Pointer) Update(s *leaf.State, f *Frame, msg tea.Msg) (cmd tea.Cmd, handled bool) {
	if f.Device == nil || f.Device != s.Device || f.Area.W == 0 {
		return nil, false
	}
	full := s.Device.Full(s.Window.Axis)
	switch msg := msg.(type) {
	case tea.MouseClickMsg:
		if !f.Area.Contains(msg.X, msg.Y) || msg.Button != tea.MouseLeft {
			return nil, false
		}
		p.down, p.fromX, p.window = true, msg.X, s.Window
		return leaf.Send(leaf.CursorMsg{To: f.moment(msg.X - f.Area.X)}), true
	case tea.MouseReleaseMsg:
		p.down = false
	case tea.MouseMotionMsg:
		if !p.down || msg.Button != tea.MouseLeft {
			return nil, false
		}
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
