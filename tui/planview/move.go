package planview

import (
	"sort"

	bkey "charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// mover is the View's half that moves the cursor, the window and the selection.
type mover struct{ *View }

func (v mover) onKey(msg tea.KeyPressMsg) tea.Cmd {
	sc := v.current()
	if sc == nil {
		return nil
	}
	k := &v.keys
	column := max((v.to-v.from)/int64(max(v.layout.plots0().W, 20)), 1)
	switch {
	case bkey.Matches(msg, k.move):
		if msg.String() == "left" || msg.String() == "h" {
			column = -column
		}
		return v.moveTo(v.cursor + column)
	case bkey.Matches(msg, k.op):
		i := sort.Search(len(sc.started), func(i int) bool { return sc.started[i] > v.cursor })
		if msg.String() == "," {
			i = sort.Search(len(sc.started), func(i int) bool { return sc.started[i] >= v.cursor }) - 1
		}
		if i >= 0 && i < len(sc.started) {
			return v.moveTo(sc.started[i])
		}
	case bkey.Matches(msg, k.tab):
		v.front = (v.front + 1) % len(v.panes)
		v.list()
	case bkey.Matches(msg, k.zoom):
		if msg.String() == "-" || msg.String() == "_" {
			return v.zoom(v.cursor, 2, 1)
		}
		return v.zoom(v.cursor, 1, 2)
	case bkey.Matches(msg, k.whole):
		v.from, v.to = 0, v.span()
		return v.rasters()
	case bkey.Matches(msg, k.peak):
		return v.moveTo(sc.peakAt)
	case bkey.Matches(msg, k.stall):
		return v.nextStall(sc)
	default:
		v.onTable(msg)
	}
	return nil
}

func (v mover) onTable(msg tea.Msg) {
	if act := v.table.Update(msg); act.Kind == table.Moved && act.Row >= 0 && act.Row < len(v.states) {
		v.selected = v.states[act.Row].buffer
	}
}

// nextStall moves to the next moment at which compute waits for a copy, wrapping around after the last one.
func (v mover) nextStall(sc *scene) tea.Cmd {
	best := int64(-1)
	for pass := range 2 {
		for i := range sc.stalls {
			if t := sc.stalls[i].from; (t > v.cursor || pass == 1) && (best < 0 || t < best) {
				best = t
			}
		}
		if best >= 0 {
			return v.moveTo(best)
		}
	}
	return leaf.Send(leaf.ToastMsg{Text: sc.plan.Name + " never waits for a copy"})
}

// moveTo moves the cursor, and the window with it if the cursor would leave it.
func (v mover) moveTo(t int64) tea.Cmd {
	v.cursor = min(max(t, 0), v.span()-1)
	w := leaf.Show(v.window(), v.full(), v.cursor)
	v.from, v.to = w.From, w.To
	v.list()
	return v.rasters()
}

func (v mover) window() timeline.Window {
	return timeline.Window{From: v.from, To: v.to}
}

func (v mover) full() timeline.Window {
	return timeline.Window{To: v.span()}
}

func (v mover) zoom(about, num, den int64) tea.Cmd {
	w := leaf.Zoom(v.window(), v.full(), about, num, den)
	v.from, v.to = w.From, w.To
	return v.rasters()
}

// onMouse does what charts do elsewhere: a click moves the cursor, a drag pans, the wheel zooms.
func (v mover) onMouse(msg tea.MouseMsg) tea.Cmd {
	m := msg.Mouse()
	switch msg.(type) {
	case tea.MouseReleaseMsg:
		v.drag.down = false
	case tea.MouseMotionMsg:
		if v.drag.down && m.Button == tea.MouseLeft {
			return v.dragTo(m.X)
		}
	}
	for i, p := range v.panes {
		inLanes, inPlot := p.lanes.Contains(m.X, m.Y), p.plot.Contains(m.X, m.Y)
		if !inLanes && !inPlot || !v.begun || p.plot.W == 0 {
			continue
		}
		t := v.from + int64(float64(m.X-p.plot.X)/float64(p.plot.W)*float64(v.to-v.from))
		switch msg.(type) {
		case tea.MouseWheelMsg:
			return v.onWheel(m, t)
		case tea.MouseClickMsg:
			if m.Button != tea.MouseLeft {
				return nil
			}
			v.front = i
			v.pick(p, m.X-p.plot.X, m.Y-p.plot.Y, inPlot)
			cmd := v.moveTo(t)
			v.drag = drag{down: true, fromX: m.X, width: p.plot.W, window: v.window()}
			return cmd
		}
		return nil
	}
	v.onTable(msg)
	return nil
}

// dragTo pans so that the moment under the pointer stays under it.
func (v mover) dragTo(x int) tea.Cmd {
	by := int64(float64(v.drag.fromX-x) / float64(v.drag.width) * float64(leaf.Span(v.drag.window)))
	w := leaf.Pan(v.drag.window, v.full(), by)
	v.from, v.to = w.From, w.To
	return v.rasters()
}

func (v mover) onWheel(m tea.Mouse, t int64) tea.Cmd {
	step := max((v.to-v.from)/8, 1)
	w := v.window()
	switch {
	case m.Button == tea.MouseWheelLeft, m.Button == tea.MouseWheelUp && m.Mod.Contains(tea.ModShift):
		w = leaf.Pan(w, v.full(), -step)
	case m.Button == tea.MouseWheelRight, m.Button == tea.MouseWheelDown && m.Mod.Contains(tea.ModShift):
		w = leaf.Pan(w, v.full(), step)
	case m.Button == tea.MouseWheelUp:
		return v.zoom(t, 3, 4)
	case m.Button == tea.MouseWheelDown:
		return v.zoom(t, 4, 3)
	}
	v.from, v.to = w.From, w.To
	return v.rasters()
}

// pick selects the buffer that is drawn in a cell of a map.
func (v mover) pick(p *pane, x, y int, inPlot bool) {
	_, r, ok := p.raster.Value()
	if !inPlot || !ok || x >= r.w || 2*y+1 >= 2*r.h {
		return
	}
	_, sc, _ := p.scene.Value()
	for _, row := range []int{2*y + 1, 2 * y} {
		if i := r.points[row*r.w+x]; i >= 0 && int(i) < len(sc.boxes) {
			v.selected = sc.boxes[i].buffer
			v.listed = listing{} // the table goes to it
			return
		}
	}
}
