package live

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// chart is a column for each step.
type chart struct {
	whole bool // show all steps, not only the last ones
}

// columnMsg is a click on a step's column.
type columnMsg struct{ step int64 }

// edge is how thick the upper edge of the chart is, in eighths of a row.
const edge = 4

// recent is how many steps the chart shows unless all are asked for.
const recent = 400

// draw draws the steps' bytes, each column the maximum of its steps, and marks below them which steps were
// captured whole.
func (x *chart) draw(s *leaf.State, c *canvas.Canvas, l *Look, shown, selected int64) {
	th := s.Theme
	steps := l.Steps
	if !x.whole && len(steps) > recent {
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
		top = max(top, steps[i].Bytes.Or(0))
	}
	if top <= 0 {
		leaf.Working(s, c, "no figures of memory yet")
		return
	}
	unit, text := s.Units.Column(top)
	c.Text(0, 0, th.Dim, fmt.Sprintf("%*s", left-2, unit))
	title := l.Figure + " of each " + l.rowName()
	if len(steps) < len(l.Steps) {
		title += ", the last " + leaf.Count(int64(len(steps))) + " of " + leaf.Count(int64(len(l.Steps)))
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
	for _, i := range l.Report.Spikes {
		if i < len(l.Steps) {
			spikes[l.Steps[i].Index] = true
		}
	}
	plain, bad := th.Plain(), th.Plain()
	bad.Color, bad.Mono, bad.ASCII = th.Bad.FG, '!', '!'
	carried := th.Plain()
	carried.Color, carried.Mono, carried.ASCII = th.Faint.FG, '░', ':'
	before := int64(0)
	for col := range columns {
		from, to := column(col)
		high, fill, captured, here := int64(0), plain, int64(-1), false
		odd := false
		for i := from; i < to; i++ {
			st := &steps[i]
			high = max(high, st.Bytes.Or(0))
			if spikes[st.Index] || st.OOMs > 0 {
				fill, odd = bad, true
			}
			if win, ok := l.windowOf(st.Index); ok {
				captured = win.ID
				c.Zone(canvas.Rect{X: area.X + col, Y: area.Y + area.H, W: 1, H: 1}, OpenMsg{win})
			}
			here = here || st.Index == selected
		}
		if to > from {
			at := canvas.Rect{X: area.X + col, Y: area.Y, W: 1, H: area.H}
			c.Zone(at, columnMsg{steps[highest(steps, from, to)].Index})
		}
		if high > 0 {
			before = high
		} else { // not every step has the figure: repeat the last one until the next
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
		c.Column(area.X+col, area.Y, area.H, slabs, nil)
		if col%wide > 0 { // it is marked already
			continue
		}
		switch {
		case captured >= 0 && captured == shown:
			c.Text(area.X+col, area.Y+area.H, th.Accent, "▲")
		case captured >= 0:
			c.Text(area.X+col, area.Y+area.H, th.Good, "●")
		case here:
			c.Text(area.X+col, area.Y+area.H, th.Dim, "'")
		}
	}
	first, last := steps[0].Index, steps[len(steps)-1].Index
	y := area.Y + area.H + 1
	c.Text(area.X, y, th.Dim, l.rowName()+" "+leaf.Count(first))
	end := area.X + columns
	if text := leaf.Count(last); end-area.X > len(text)+8+len(l.rowName())+len(leaf.Count(first)) {
		c.TextRight(end, y, th.Dim, text)
	}
}

// highest returns which of the steps [from, to) holds most; its column shows that one.
func highest(steps []Step, from, to int) int {
	best := from
	for i := from; i < to; i++ {
		if steps[i].Bytes.Or(0) > steps[best].Bytes.Or(0) {
			best = i
		}
	}
	return best
}
