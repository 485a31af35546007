package live

import (
	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Draw implements leaf.View.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	_, body := c.Bounds().CutTop(leaf.Sentence(s, c, v.look.sentence(s.Units)))
	body = body.Inset(1, 0)
	if len(v.look.Steps) == 0 {
		v.drawEarly(s, c, body)
		return
	}
	if len(v.look.Ranks) > 0 {
		body = v.cutRanks(s, c, body)
	}
	rows := min(max(body.H*2/5, 5), mostPlot)
	if v.ranks.focus && !v.ranks.listed { // the list needs the room
		rows = 5
	}
	switch {
	case body.H < 10: // the table needs the room
		rows = 0
	case body.H < 12:
		rows = 5
	}
	var plot, side canvas.Rect
	plot, body = body.CutTop(rows)
	if plot.H > 0 {
		selected, _ := v.look.step(v.steps.Selected())
		v.chart.draw(s, c.Sub(plot), &v.look, v.shown.window, selected.Index)
	}
	if body.W >= 96 {
		body, side = body.CutRight(min(body.W*2/5, 52))
		drawSide(s, c.Sub(side.Inset(1, 0)), &v.look, v.shown)
	} else if body.H >= 9 {
		lines := brief(s, &v.look, v.shown, body.W, max(body.H/2, 2))
		body, side = body.CutBottom(len(lines))
		for y, line := range lines {
			c.TextMax(side.X, side.Y+y, side.W, line.style, line.text)
		}
	}
	switch {
	case v.ranks.focus && !v.ranks.listed:
		v.ranks.room = body.H - 1
		v.ranks.draw(s, c, body, &v.look)
	case v.out:
		drawOutput(s, c.Sub(body), v.look.Output)
	default:
		v.steps.draw(s, c, body, &v.look, v.shown.window)
	}
}

// mostPlot is the height beyond which the chart shows no more than the table.
const mostPlot = 16

// roomForRanks is the least height at which the processes are listed beside the steps.
const roomForRanks = 28

// cutRanks draws the processes above the rest and returns the remaining area: a list of some of them if there
// is room, else one line.
func (v *View) cutRanks(s *leaf.State, c *canvas.Canvas, body canvas.Rect) canvas.Rect {
	p := &v.ranks
	var top canvas.Rect
	if p.listed = body.H >= roomForRanks; p.listed {
		p.room = min(len(v.look.Ranks), max(body.H/4, 8))
		top, body = body.CutTop(p.room + 1)
		p.draw(s, c, top, &v.look)
		_, body = body.CutTop(1)
		return body
	}
	top, body = body.CutTop(1)
	p.drawStrip(s.Theme, c.Sub(top), 0, &v.look)
	return body
}

// drawEarly is the view before the first step: which job is watched, and the notices so far.
func (v *View) drawEarly(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	sub := c.Sub(at)
	y := 0
	if len(v.look.Facts) > 0 {
		block := facts(s, sub, v.look.Facts)
		sub.Print(0, 0, block)
		y = lipgloss.Height(block)
	}
	y = drawNotices(s, sub, v.look.Notices, y+1)
	if v.look.Output != nil && sub.Height()-y > 3 {
		drawOutput(s, sub.Sub(canvas.Rect{Y: y + 1, W: sub.Width(), H: sub.Height() - y - 1}), v.look.Output)
	}
}

// drawOutput draws the end of the job's output.
func drawOutput(s *leaf.State, c *canvas.Canvas, lines []string) {
	leaf.Rule(s, c, 0, 0, c.Width(), "Output")
	room := c.Height() - 1
	lines = lines[max(len(lines)-room, 0):]
	for i, l := range lines {
		c.TextMax(0, 1+i, c.Width(), s.Theme.Text, l)
	}
	if len(lines) == 0 {
		c.Text(0, 1, s.Theme.Faint, "nothing yet")
	}
}
