package live

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// Draw implements leaf.View.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	_, body := c.Bounds().CutTop(leaf.Sentence(s, c, v.sentence(s)))
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
		v.drawChart(s, c.Sub(plot))
	}
	if body.W >= 96 {
		body, side = body.CutRight(min(body.W*2/5, 52))
		v.drawSide(s, c.Sub(side.Inset(1, 0)))
	} else if body.H >= 9 {
		lines := v.brief(s, body.W, max(body.H/2, 2))
		body, side = body.CutBottom(len(lines))
		for y, line := range lines {
			c.TextMax(side.X, side.Y+y, side.W, line.style, line.text)
		}
	}
	switch {
	case v.ranks.focus && !v.ranks.listed:
		v.ranks.room = body.H - 1
		v.drawRanks(s, c, body)
	case v.out:
		v.drawOutput(s, c.Sub(body))
	default:
		v.drawSteps(s, c, body)
	}
}

// mostPlot is the height from which on more says nothing that the table does not.
const mostPlot = 16

// roomForRanks is the height from which on the processes are listed beside the steps.
const roomForRanks = 28

// cutRanks draws the processes above the rest and returns what is left: a list of some of them where there is
// room, else one line.
func (v *View) cutRanks(s *leaf.State, c *canvas.Canvas, body canvas.Rect) canvas.Rect {
	p := &v.ranks
	var top canvas.Rect
	if p.listed = body.H >= roomForRanks; p.listed {
		p.room = min(len(v.look.Ranks), max(body.H/4, 8))
		top, body = body.CutTop(p.room + 1)
		v.drawRanks(s, c, top)
		_, body = body.CutTop(1)
		return body
	}
	top, body = body.CutTop(1)
	v.drawStrip(s, c.Sub(top), 0)
	return body
}

// drawEarly is the view before the first step: who is watched, and what was said so far.
func (v *View) drawEarly(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	sub := c.Sub(at)
	y := 0
	if len(v.look.Facts) > 0 {
		facts := v.facts(s, sub)
		sub.Print(0, 0, facts)
		y = lipgloss.Height(facts)
	}
	y = v.drawNotices(s, sub, y+1)
	if v.look.Output != nil && sub.Height()-y > 3 {
		v.drawOutput(s, sub.Sub(canvas.Rect{Y: y + 1, W: sub.Width(), H: sub.Height() - y - 1}))
	}
}

// edge is how thick the upper edge of the chart is, in eighths of a row.
const edge = 4

// recent is how many steps the chart shows unless all are asked for.
const recent = 400

// drawChart draws the steps' bytes, a column the maximum of the steps that it stands for, and under it which
// were captured whole.
func (v *View) drawChart(s *leaf.State, c *canvas.Canvas) {
	th := s.Theme
	steps := v.look.Steps
	if !v.whole && len(steps) > recent {
		steps = steps[len(steps)-recent:]
	}
	w, h := c.Size()
	const left = 8
	area := canvas.Rect{X: left, Y: 1, W: w - left - 1, H: h - 3}
	if area.W < 8 || area.H < 2 {
		return
	}
	var top int64
	for i := range steps {
		top = max(top, steps[i].Bytes)
	}
	if top <= 0 {
		leaf.Working(s, c, "no figures of memory yet")
		return
	}
	unit, text := s.Units.Column(top)
	c.Text(0, 0, th.Dim, fmt.Sprintf("%*s", left-2, unit))
	title := v.look.Figure + " of each " + v.look.RowName()
	if len(steps) < len(v.look.Steps) {
		title += fmt.Sprintf(", the last %s of %s", leaf.Count(int64(len(steps))), leaf.Count(int64(len(v.look.Steps))))
	}
	c.TextMax(left, 0, area.W, th.Dim, title)
	marks := []int64{top, top / 2, 0}
	if area.H < 3 {
		marks = []int64{top, 0}
	}
	for _, mark := range marks {
		y := area.Y + area.H - 1 - int(float64(mark)/float64(top)*float64(area.H-1)+0.5)
		c.TextRight(left-1, y, th.Dim, strings.TrimSpace(text(mark)))
		c.Fill(canvas.Rect{X: area.X, Y: y, W: area.W, H: 1}, '·', th.Faint)
	}
	wide := min(max(area.W/len(steps), 1), 4) // cells of a step
	columns := min(area.W, len(steps)*wide)
	column := func(x int) (from, to int) { // of steps
		if len(steps) <= area.W {
			return x / wide, x/wide + 1
		}
		return x * len(steps) / area.W, (x + 1) * len(steps) / area.W
	}
	spikes := map[int64]bool{}
	for _, i := range v.look.Report.Spikes {
		if i < len(v.look.Steps) {
			spikes[v.look.Steps[i].Index] = true
		}
	}
	plain, bad := th.Plain(), th.Plain()
	bad.Color, bad.Mono, bad.ASCII = th.Bad.FG, '!', '!'
	selected, _ := v.step(v.steps.Selected())
	carried := th.Plain()
	carried.Color, carried.Mono, carried.ASCII = th.Faint.FG, '░', ':'
	before := int64(0)
	for x := range columns {
		from, to := column(x)
		high, fill, captured, here := int64(0), plain, int64(-1), false
		odd := false
		for i := from; i < to; i++ {
			st := &steps[i]
			high = max(high, st.Bytes)
			if spikes[st.Index] || st.OOMs > 0 {
				fill, odd = bad, true
			}
			if win, ok := v.windowOf(st.Index); ok {
				captured = win.ID
				c.Zone(canvas.Rect{X: area.X + x, Y: area.Y + area.H, W: 1, H: 1}, OpenMsg{win})
			}
			here = here || st.Index == selected.Index
		}
		if to > from {
			c.Zone(canvas.Rect{X: area.X + x, Y: area.Y, W: 1, H: area.H}, columnMsg{steps[highest(steps, from, to)].Index})
		}
		if high > 0 {
			before = high
		} else { // the figure is not taken at every step: until the next one it is what it was
			if high = before; !odd {
				fill = carried
			}
		}
		n := int(float64(high) / float64(top) * float64(8*area.H))
		if high > 0 {
			n = max(n, 1)
		}
		slabs := []canvas.Slab{{Top: n, Fill: fill}}
		if fill == plain { // its edge is what moves
			slabs = []canvas.Slab{{Top: n - edge, Fill: th.Muted()}, {Top: n, Fill: fill}}
		}
		c.Column(area.X+x, area.Y, area.H, slabs, nil)
		if x%wide > 0 { // its mark stands already
			continue
		}
		switch {
		case captured >= 0 && captured == v.shown:
			c.Text(area.X+x, area.Y+area.H, th.Accent, "▲")
		case captured >= 0:
			c.Text(area.X+x, area.Y+area.H, th.Good, "●")
		case here:
			c.Text(area.X+x, area.Y+area.H, th.Dim, "'")
		}
	}
	first, last := steps[0].Index, steps[len(steps)-1].Index
	y := area.Y + area.H + 1
	c.Text(area.X, y, th.Dim, v.look.RowName()+" "+leaf.Count(first))
	end := area.X + columns
	if text := leaf.Count(last); end-area.X > len(text)+8+len(v.look.RowName())+len(leaf.Count(first)) {
		c.TextRight(end, y, th.Dim, text)
	}
}

// highest returns which of the steps [from, to) holds most: the one that a column stands for.
func highest(steps []Step, from, to int) int {
	best := from
	for i := from; i < to; i++ {
		if steps[i].Bytes > steps[best].Bytes {
			best = i
		}
	}
	return best
}

// drawSteps draws the table of steps, the newest first.
func (v *View) drawSteps(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	th := s.Theme
	var top int64
	phases, retries := false, false
	for i := range v.look.Steps {
		st := &v.look.Steps[i]
		top = max(top, st.Bytes)
		phases = phases || st.Forward >= 0 || st.Backward >= 0
		retries = retries || st.Retries+st.OOMs > 0
	}
	unit, text := s.Units.Column(top)
	v.steps.Columns[colStep].Title = v.look.RowName()
	v.steps.Columns[colStep].Width = max(7, len(v.look.RowName()))
	v.steps.Columns[colBytes].Title, v.steps.Columns[colBytes].Unit = short(v.look.Figure), unit
	v.steps.Columns[colBytes].Width = max(10, len(short(v.look.Figure))+len(unit)+1)
	for _, col := range []int{colForward, colBackward, colOptimizer} {
		v.steps.Columns[col].Hidden = !phases
	}
	v.steps.Columns[colRetries].Hidden = !retries
	duration := func(n int64) table.Cell {
		if n < 0 {
			return table.Cell{Text: "–", Style: th.Faint}
		}
		return table.Cell{Text: timeline.Duration(n), Style: th.Dim}
	}
	slow := 2 * v.look.Report.Duration
	v.steps.Draw(c, at, th, func(row, col int) table.Cell {
		st, _ := v.step(row)
		switch col {
		case colStep:
			if st.UnderPlan { // as the plan is marked in Managers
				return table.Cell{Text: "▶ " + leaf.Count(st.Index)}
			}
			return table.Cell{Text: leaf.Count(st.Index)}
		case colWhole:
			w, ok := v.windowOf(st.Index)
			switch {
			case ok && w.ID == v.shown:
				return table.Cell{Lead: "▲", LeadStyle: th.Accent, Text: w.How, Style: th.Accent}
			case ok:
				return table.Cell{Lead: "●", LeadStyle: th.Good, Text: w.How}
			}
			return table.Cell{}
		case colTime:
			cell := duration(st.Duration)
			cell.Style = th.Text
			if slow > 0 && st.Duration > slow {
				cell.Style = th.Warn
			}
			return cell
		case colBytes:
			if st.Bytes < 0 {
				return table.Cell{Text: "–", Style: th.Faint}
			}
			return table.Cell{Text: strings.TrimSpace(text(st.Bytes))}
		case colChange:
			before, ok := v.step(row + 1)
			switch {
			case !ok || st.Bytes < 0 || before.Bytes < 0:
				return table.Cell{Text: "–", Style: th.Faint}
			case st.Bytes == before.Bytes:
				return table.Cell{Text: "0", Style: th.Dim}
			}
			return table.Cell{Text: s.Units.Delta(st.Bytes - before.Bytes)}
		case colForward:
			return duration(st.Forward)
		case colBackward:
			return duration(st.Backward)
		case colOptimizer:
			return duration(st.Optimizer)
		case colRetries:
			if st.OOMs > 0 {
				return table.Cell{Text: "OOM", Style: th.Bad}
			}
			return table.Cell{Text: leaf.Count(st.Retries), Style: th.Dim}
		}
		return duration(st.Cost)
	})
}

// short is the figure's name for the head of a column.
func short(figure string) string {
	if w, _, ok := strings.Cut(figure, " "); ok {
		return w
	}
	return figure
}

// drawOutput draws the end of what the job printed.
func (v *View) drawOutput(s *leaf.State, c *canvas.Canvas) {
	leaf.Rule(s, c, 0, 0, c.Width(), "What it prints")
	lines := v.look.Output
	room := c.Height() - 1
	lines = lines[max(len(lines)-room, 0):]
	for i, l := range lines {
		c.TextMax(0, 1+i, c.Width(), s.Theme.Text, l)
	}
	if len(lines) == 0 {
		c.Text(0, 1, s.Theme.Faint, "nothing yet")
	}
}
