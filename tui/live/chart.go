package live

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// chart is a column for each step.
type chart struct {
	whole bool // show all steps, including those that are only summed up, and not only the last ones
}

// columnMsg is a click on a step's column.
type columnMsg struct{ step int64 }

// edge is how thick the upper edge of the chart is, in eighths of a row.
const edge = 4

// scale is the width of the scale of bytes, in cells.
const scale = 8

// beyond marks what is held besides tensors.
const beyond = '░'

// recent is how many steps the chart shows unless all are asked for.
const recent = 400

// columns is what a chart draws: its steps, from left to right.
type columns struct {
	spans []Span
	ends  []int // of each span, how many steps it and those before it have
	steps []Step
	all   int // how many steps these are
	area  canvas.Rect
	top   int64 // bytes at the upper end of the scale
	wide  int   // cells per step, if each has room
	count int   // columns in use
}

// early is how many steps are in spans.
func (p *columns) early() int { return p.all - len(p.steps) }

// column summarises the steps under one cell of the width.
type column struct {
	bytes    int64 // of the fullest step, or 0 if none has the figure
	solid    int64 // the part of bytes that is drawn in full: tensors' where it is known
	above    int64 // what the allocator reserved, 0 if that is no more than bytes
	fullest  int64 // the index of that step
	odd      bool  // a spike or an out-of-memory is among them
	captured int64 // the ID of the window that captured the last of them, or -1
	window   OpenMsg
	selected bool
}

// draw draws the steps' bytes, each column the maximum of its steps, and marks below them which steps were
// captured whole.
func (x *chart) draw(s *leaf.State, c *canvas.Canvas, l *Look, shown, selected int64) {
	w, h := c.Size()
	area := canvas.Rect{X: scale, Y: 1, W: w - scale - 1, H: h - 3}
	if area.W < 8 || area.H < 2 {
		return
	}
	p := x.columns(l, area)
	if p.top <= 0 {
		leaf.Working(s, c, "no memory figures yet")
		return
	}
	p.drawScale(s, c, l)
	p.drawColumns(s, c, l, shown, selected)
	p.drawSteps(s, c, l)
}

// columns lays out the steps in an area.
func (x *chart) columns(l *Look, area canvas.Rect) *columns {
	p := &columns{steps: l.Steps, spans: l.Rolled, area: area}
	if !x.whole {
		p.steps, p.spans = p.steps[max(len(p.steps)-recent, 0):], nil
	}
	for i := range p.spans {
		p.all += int(p.spans[i].Steps)
		p.ends = append(p.ends, p.all)
		p.top = max(p.top, p.spans[i].Bytes.Or(0))
	}
	p.all += len(p.steps)
	for i := range p.steps {
		p.top = max(p.top, p.steps[i].Bytes.Or(0), p.steps[i].Reserved.Or(0))
	}
	p.wide = min(max(area.W/p.all, 1), 4)
	p.count = min(area.W, p.all*p.wide)
	return p
}

// drawScale draws the title, the scale of bytes and its lines across the chart.
func (p *columns) drawScale(s *leaf.State, c *canvas.Canvas, l *Look) {
	th, area := s.Theme, p.area
	unit, text := s.Units.Column(p.top)
	c.Text(0, 0, th.Dim, fmt.Sprintf("%*s", scale-2, unit))
	title := l.Figure + " of each " + l.rowName()
	known := func(figure func(*Step) maybe.Int) bool {
		return slices.ContainsFunc(p.steps, func(st Step) bool { return figure(&st).IsKnown() })
	}
	switch {
	case known(func(st *Step) maybe.Int { return st.Tensors }):
		title = fmt.Sprintf("tensors after each %s; %c %s", l.rowName(), beyond, l.Figure)
	case known(func(st *Step) maybe.Int { return st.Reserved }):
		title += fmt.Sprintf("; %c reserved", beyond)
	}
	if all := l.seen(); int64(p.all) < all {
		title += ", the last " + leaf.Count(int64(p.all)) + " of " + leaf.Count(all)
	}
	c.TextMax(scale, 0, area.W, th.Dim, title)
	marks := []int64{p.top, p.top / 2, 0}
	if area.H < 3 {
		marks = []int64{p.top, 0}
	}
	for _, mark := range marks {
		y := area.Y + area.H - 1 - int(float64(mark)/float64(p.top)*float64(area.H-1)+0.5)
		c.TextRight(scale-1, y, th.Dim, strings.TrimSpace(text(mark)))
		c.Fill(canvas.Rect{X: area.X, Y: y, W: area.W, H: 1}, '·', th.Faint)
	}
}

// drawColumns draws the bars and the marks below them. A click on a bar selects its fullest step; a click on
// the mark of a captured step opens the capture.
func (p *columns) drawColumns(s *leaf.State, c *canvas.Canvas, l *Look, shown, selected int64) {
	th, area := s.Theme, p.area
	spikes := map[int64]bool{}
	for _, i := range l.Report.Spikes {
		if i < len(l.Steps) {
			spikes[l.Steps[i].Index] = true
		}
	}
	plain, bad, repeated := th.Plain(), th.Plain(), th.Plain()
	bad.Color, bad.Mono, bad.ASCII = th.Bad.FG, '!', '!'
	repeated.Color, repeated.Mono, repeated.ASCII = th.Faint.FG, '░', ':'
	outer := canvas.Fill{Color: th.Fade(th.Faint.FG, 128), Shade: th.Faint.FG, Pattern: beyond, Mono: beyond,
		ASCII: ':'}
	var before column
	for i := range p.count {
		k := p.at(i, l, spikes, selected)
		x, below := area.X+i, area.Y+area.H
		c.Zone(canvas.Rect{X: x, Y: area.Y, W: 1, H: area.H}, columnMsg{k.fullest})
		if k.captured >= 0 {
			c.Zone(canvas.Rect{X: x, Y: below, W: 1, H: 1}, k.window)
		}
		fill := plain
		switch {
		case k.odd:
			fill = bad
		case k.bytes == 0: // not every step has the figure: repeat the last one until the next
			fill = repeated
		}
		if k.bytes > 0 {
			before = k
		}
		n, m := p.eighths(before.solid), p.eighths(max(before.bytes, before.above))
		slabs := []canvas.Slab{{Top: n, Fill: fill}}
		if fill == plain { // its edge is what moves
			slabs = []canvas.Slab{{Top: n - edge, Fill: th.Muted()}, {Top: n, Fill: fill}}
		}
		if m > n {
			slabs = append(slabs, canvas.Slab{Top: m, Fill: outer})
		}
		c.Column(x, area.Y, area.H, slabs, nil)
		if i%p.wide > 0 { // the step has its mark already
			continue
		}
		switch {
		case k.captured >= 0 && k.captured == shown:
			c.Text(x, below, th.Accent, "▲")
		case k.captured >= 0:
			c.Text(x, below, th.Good, "●")
		case k.selected:
			c.Text(x, below, th.Dim, "'")
		}
	}
}

// eighths returns the height of a column of so many bytes, in eighths of a row: at least one, unless there
// are none.
func (p *columns) eighths(bytes int64) int {
	if bytes <= 0 {
		return 0
	}
	return max(int(float64(bytes)/float64(p.top)*float64(8*p.area.H)), 1)
}

// at summarises the steps under the i-th column.
func (p *columns) at(i int, l *Look, spikes map[int64]bool, selected int64) column {
	from, to := p.stepsOf(i)
	k := column{fullest: -1, captured: -1}
	for j := sort.SearchInts(p.ends, from+1); j < len(p.spans) && p.ends[j]-int(p.spans[j].Steps) < to; j++ {
		if b := p.spans[j].Bytes.Or(0); b > k.bytes {
			k.bytes, k.solid = b, min(p.spans[j].Tensors.Or(b), b)
		}
	}
	from, to = max(from-p.early(), 0), to-p.early()
	if from >= to {
		return k
	}
	if full := &p.steps[highest(p.steps, from, to)]; full.Bytes.Or(0) >= k.bytes {
		k.bytes, k.above, k.fullest = max(full.Bytes.Or(0), 0), full.Reserved.Or(0), full.Index
		k.solid = min(full.Tensors.Or(k.bytes), k.bytes)
	}
	for j := from; j < to; j++ {
		step := &p.steps[j]
		k.odd = k.odd || spikes[step.Index] || step.OOMs > 0
		if w, ok := l.windowOf(step.Index); ok {
			k.captured, k.window = w.ID, OpenMsg{w}
		}
		k.selected = k.selected || step.Index == selected
	}
	return k
}

// stepsOf returns which steps [from, to) are under the i-th column, counted from the first span on: at least
// one.
func (p *columns) stepsOf(i int) (from, to int) {
	if p.all <= p.area.W {
		return i / p.wide, i/p.wide + 1
	}
	return i * p.all / p.area.W, (i + 1) * p.all / p.area.W
}

// drawSteps writes the first and the last step's number below the chart.
func (p *columns) drawSteps(s *leaf.State, c *canvas.Canvas, l *Look) {
	th, area := s.Theme, p.area
	first, last := p.steps[0].Index, p.steps[len(p.steps)-1].Index
	if len(p.spans) > 0 {
		first = p.spans[0].First
	}
	y := area.Y + area.H + 1
	c.Text(area.X, y, th.Dim, l.rowName()+" "+leaf.Count(first))
	end := area.X + p.count
	if text := leaf.Count(last); p.count > len(text)+8+len(l.rowName())+len(leaf.Count(first)) {
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
