package oom

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/chart"
	"github.com/gmemtop/gmemtop/tui/icicle"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// wide is the width from which the levers stand beside the holders.
const wide = 140

// Sizes of what fills the rows left below the levers and the holders on a wide screen.
const (
	leastRest = 8  // rows that are worth a chart with its title and axis
	mostRest  = 20 // a chart does not say more in more rows
)

// rest draws what happened up to the moment of the autopsy: how memory rose, and which calls led to the
// blocks that were held.
type rest struct {
	usage  chart.Usage
	calls  leaf.Query[held, *sites.Node]
	icicle icicle.Chart
}

// held is a device at a moment.
type held struct {
	device *timeline.Device
	moment timeline.Moment
}

// ask asks for what a screen of this size shows of the autopsy.
func (r *rest) ask(s *leaf.State, a *autopsy.Result) tea.Cmd {
	if s.Width < wide || a == nil {
		return nil
	}
	d, at := s.Device, a.At
	calls := r.calls.Ask(held{d, at}, func(context.Context) (*sites.Node, error) {
		return sites.Icicle(d, at, sites.ByStack), nil
	})
	if !hasRise(d, at) {
		return calls
	}
	return tea.Batch(calls, r.usage.Ask(upTo(s, at), s.Width/2))
}

// take takes an answer to ask, and reports whether msg was one.
func (r *rest) take(msg tea.Msg) bool {
	if r.calls.Take(msg) {
		_, root, _ := r.calls.Value()
		r.icicle.SetRoot(root)
		return true
	}
	return r.usage.Take(msg)
}

// hasRise reports whether a recording shows how memory came to a moment.
func hasRise(d *timeline.Device, at timeline.Moment) bool { return d.Len() > 1 && at > timeline.Start }

// upTo is the state with a window from the recording's beginning to a moment, which the cursor is on.
func upTo(s *leaf.State, at timeline.Moment) *leaf.State {
	to := *s
	to.Window = s.Device.Full(s.Window.Axis)
	to.Window.To = max(leaf.Position(s.Device, to.Window.Axis, at), to.Window.From) + 1
	to.Cursor, to.HasMark = at, false
	return &to
}

// draw draws across the screen, with how memory rose at the left, if the recording shows that.
func (r *rest) draw(s *leaf.State, c *canvas.Canvas, at canvas.Rect, a *autopsy.Result) {
	if hasRise(s.Device, a.At) {
		left, right := columns(at)
		r.drawRise(s, c.Sub(left), a)
		at = right
	}
	r.drawCalls(s, c.Sub(at), a)
}

// drawOne draws the more telling of the two charts in one column.
func (r *rest) drawOne(s *leaf.State, c *canvas.Canvas, at canvas.Rect, a *autopsy.Result) {
	if hasRise(s.Device, a.At) {
		r.drawRise(s, c.Sub(at), a)
	} else {
		r.drawCalls(s, c.Sub(at), a)
	}
}

// columns divides a wide screen.
func columns(at canvas.Rect) (left, right canvas.Rect) {
	left, right = at.CutLeft(at.W/2 - 1)
	_, right = right.CutLeft(2)
	return left, right
}

// drawRise draws the memory up to the moment, by category.
func (r *rest) drawRise(s *leaf.State, c *canvas.Canvas, a *autopsy.Result) {
	w, h := c.Size()
	to := upTo(s, a.At)
	title := "Memory up to the peak"
	if a.OOM {
		title = "Memory up to the failure"
	}
	leaf.Rule(s, c, 0, 0, w, title)
	const axis = 6
	f := &chart.Frame{Device: s.Device, Area: canvas.Rect{X: axis, Y: 2, W: w - axis, H: h - 5},
		Window: to.Window, High: r.usage.High(to, w-axis)}
	f.YAxis(to, c)
	r.usage.Draw(to, c, f)
	f.Landmarks(to, c, 1, h-3)
	r.drawLegend(s, c.Sub(canvas.Rect{X: axis, Y: h - 1, W: w - axis, H: 1}))
	c.Zone(c.Bounds(), leaf.ShowMsg{View: leaf.Timeline})
}

// drawLegend names the categories that the chart shows, as many as fit.
func (r *rest) drawLegend(s *leaf.State, c *canvas.Canvas) {
	x := 0
	for cat, bytes := range r.usage.Shown(s) {
		cat := timeline.Category(cat)
		if bytes == 0 || x+3+len(cat.String()) > c.Width() {
			continue
		}
		x += c.Text(x, 0, s.Theme.Category(cat), s.Theme.Glyph(cat)) + 1
		x += c.Text(x, 0, s.Theme.Dim, cat.String()) + 2
	}
}

// drawCalls draws the calls that led to the blocks that were held.
func (r *rest) drawCalls(s *leaf.State, c *canvas.Canvas, a *autopsy.Result) {
	k, root, ok := r.calls.Value()
	if !ok || k != (held{s.Device, a.At}) || len(root.Children) == 0 {
		return
	}
	w, h := c.Size()
	leaf.Rule(s, c, 0, 0, w, "By caller: each box is as wide as what it holds")
	r.icicle.Draw(s, c.Sub(canvas.Rect{Y: 1, W: w, H: h - 1}))
}
