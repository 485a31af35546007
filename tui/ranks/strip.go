package ranks

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// strip draws all ranks at once, one cell each, coloured by how far it is above the median of the ranks that
// do the same. If there is too little room, a cell stands for several ranks and shows the one furthest from
// the median.
type strip struct {
	time  bool   // colours show times, not memory
	rows  string // the axis whose places are the rows; "" for ranks in their order
	asked bool   // the user chose the rows
	cells []cell // as drawn last, in cells of the view
}

// cell is a cell of the strip.
type cell struct {
	at    canvas.Rect
	ranks []int
}

// byNode makes a row of each machine.
const byNode = "node"

const stripLabel = 14

// nextFigure shows the other figure.
func (p *strip) nextFigure() { p.time = !p.time }

func (p *strip) otherFigure() string {
	if p.time {
		return "memory"
	}
	return "time"
}

// rowChoices are what the rows of the strip can be.
func rowChoices(g *runs.Group) []string {
	list := []string{""}
	var axes []string
	for i := range g.Ranks {
		for _, a := range g.Ranks[i].Axes {
			if a.Of > 1 && !slices.Contains(axes, a.Name) {
				axes = append(axes, a.Name)
			}
		}
	}
	known := []string{traces.Pipeline, traces.Expert, traces.Data, traces.Context, traces.Tensor}
	place := func(name string) int {
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	slices.SortStableFunc(axes, func(a, b string) int { return cmp.Compare(place(a), place(b)) })
	list = append(list, axes...)
	for i := range g.Ranks {
		if g.Ranks[i].Host != g.Ranks[0].Host {
			return append(list, byNode)
		}
	}
	return list
}

// nextRows shows the next choice of rows.
func (p *strip) nextRows(g *runs.Group) {
	list := rowChoices(g)
	p.rows, p.asked = list[(slices.Index(list, p.by(g))+1)%len(list)], true
}

// by is what the rows are: what the user chose, or else the stages of a pipeline if there are some.
func (p *strip) by(g *runs.Group) string {
	list := rowChoices(g)
	switch {
	case p.asked && slices.Contains(list, p.rows):
		return p.rows
	case len(list) > 1 && list[1] == traces.Pipeline:
		return traces.Pipeline
	}
	return ""
}

// row is what stands in one row of the strip, or in some that follow each other.
type row struct {
	label string
	ranks []int
}

// rowsOf divides the ranks into rows.
func (p *strip) rowsOf(g *runs.Group) []row {
	by := p.by(g)
	if by == "" {
		all := make([]int, len(g.Ranks))
		for i := range all {
			all[i] = i
		}
		return []row{{ranks: all}}
	}
	index := map[string]int{}
	var rows []row
	for i := range g.Ranks {
		m := &g.Ranks[i]
		label := m.Host
		if by != byNode {
			label = fmt.Sprintf("%s %v", by, m.Axis(by))
		}
		k, known := index[label]
		if !known {
			k = len(rows)
			index[label] = k
			rows = append(rows, row{label: label})
		}
		rows[k].ranks = append(rows[k].ranks, i)
	}
	if by != byNode {
		at := func(r row) int64 { return g.Ranks[r.ranks[0]].Axis(by).Or(math.MaxInt64) }
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(at(a), at(b)) })
	}
	return rows
}

// maxCell is the widest cell, and namedCell one that has room for a rank's number.
const (
	maxCell   = 8
	namedCell = 6
)

// fit says how wide a cell is and how many ranks it stands for, so that all rows fit in w by h cells. lines
// is how many lines that takes.
func fit(rows []row, w, h int) (wide, each, lines int) {
	need := func(wide, each int) int {
		per, lines := max(w/wide, 1), 0
		for _, r := range rows {
			cells := (len(r.ranks) + each - 1) / each
			lines += (cells + per - 1) / per
		}
		return lines
	}
	for wide = maxCell; wide > 1; wide-- {
		if n := need(wide, 1); n <= h {
			return wide, 1, n
		}
	}
	for each = 1; each < 1<<20; each++ {
		if n := need(1, each); n <= h || n == len(rows) {
			return 1, each, n
		}
	}
	return 1, each, h
}

// joined joins rows that follow each other until h lines are enough. Ranks that have the same place in their
// rows stand beside each other then.
func joined(rows []row, h int) []row {
	if h < 1 || len(rows) <= h {
		return rows
	}
	var out []row
	for list := range slices.Chunk(rows, (len(rows)+h-1)/h) {
		r := row{label: list[0].label}
		if last := list[len(list)-1].label; last != r.label {
			r.label += "–" + last[strings.LastIndexByte(last, ' ')+1:]
		}
		for at := 0; ; at++ {
			before := len(r.ranks)
			for _, x := range list {
				if at < len(x.ranks) {
					r.ranks = append(r.ranks, x.ranks[at])
				}
			}
			if len(r.ranks) == before {
				break
			}
		}
		out = append(out, r)
	}
	return out
}

// height is how many lines the strip takes with its head, given the room of the view.
func (p *strip) height(g *runs.Group, w, room int) int {
	most := max(room*2/5, 2)
	_, _, lines := fit(joined(p.rowsOf(g), most-1), w-stripLabel, most-1)
	return min(lines+1, most)
}

// value is the figure of a rank that the colours show, and usual that of its class.
func (p *strip) value(g *runs.Group, i int) (value, usual maybe.Int) {
	m, c := &g.Ranks[i], &g.Classes[g.Class[i]]
	if p.time {
		return m.Usual.Alone(), c.Alone
	}
	return m.Usual.Bytes, c.Bytes
}

// off is by which share a rank's figure is off the median of its class.
func (p *strip) off(g *runs.Group, i int) (share float64, known bool) {
	v, usual := p.value(g, i)
	a, ok := v.Value()
	b, too := usual.Value()
	if !ok || !too || b <= 0 {
		return 0, false
	}
	return float64(a-b) / float64(b), true
}

// leastScale is the share that the ends of the colour scale stand for at least: less is noise.
const leastScale = 0.05

// scale is the share that the ends of the colour scale stand for.
func (p *strip) scale(g *runs.Group) float64 {
	most := leastScale
	for i := range g.Ranks {
		if x, ok := p.off(g, i); ok && g.Ranks[i].GoesOn() {
			most = max(most, math.Abs(x))
		}
	}
	return min(most, 1)
}

// draw draws the strip. chosen is the rank under the cursor, -1 for none.
func (p *strip) draw(s *leaf.State, c *canvas.Canvas, at canvas.Rect, g *runs.Group, chosen int,
	marks map[int]bool) {
	p.cells = p.cells[:0]
	if at.H < 2 || at.W < stripLabel+8 {
		return
	}
	scale := p.scale(g)
	rows := joined(p.rowsOf(g), at.H-1)
	wide, each, _ := fit(rows, at.W-stripLabel, at.H-1)
	p.drawHead(s, c, at, g, scale, each)
	per := max((at.W-stripLabel)/wide, 1)
	y := at.Y + 1
	for _, r := range rows {
		for from := 0; from < len(r.ranks) && y < at.Y+at.H; from += per * each {
			to := min(from+per*each, len(r.ranks))
			label := r.label
			switch {
			case label == "" && wide >= namedCell && each == 1 && from == 0:
				label = "ranks"
			case wide >= namedCell && each == 1 && from > 0:
				label = ""
			case label == "" || from > 0:
				label = "  " + g.Ranks[r.ranks[from]].Name()
			}
			if here := chosen >= 0 && slices.Contains(r.ranks[from:to], chosen); here {
				c.TextMax(at.X, y, stripLabel-1, s.Theme.Accent, label)
			} else {
				c.TextMax(at.X, y, stripLabel-1, s.Theme.Dim, label)
			}
			x := at.X + stripLabel
			for i := from; i < to; i += each {
				p.cells = append(p.cells, cell{canvas.Rect{X: x, Y: y, W: wide, H: 1},
					r.ranks[i:min(i+each, to)]})
				x += wide
			}
			y++
		}
	}
	for _, x := range p.cells {
		p.drawCell(s.Theme, c, x, g, scale, chosen, marks)
	}
}

// speaker is the rank of a cell that the cell shows: the chosen one, or else the worst.
func (p *strip) speaker(g *runs.Group, x cell, chosen int) int {
	best, weight := x.ranks[0], -1.0
	for _, i := range x.ranks {
		w := 0.0
		if off, ok := p.off(g, i); ok {
			w = math.Abs(off)
		}
		if is := g.Ranks[i].Is; is >= runs.Late {
			w += 10 * float64(is)
		}
		if i == g.First {
			w += 5
		}
		if i == chosen {
			return i
		}
		if w > weight {
			best, weight = i, w
		}
	}
	return best
}

// drawCell draws a cell.
func (p *strip) drawCell(th *theme.Theme, c *canvas.Canvas, x cell, g *runs.Group, scale float64, chosen int,
	marks map[int]bool) {
	i := p.speaker(g, x, chosen)
	m := &g.Ranks[i]
	off, known := p.off(g, i)
	const steps = 1000
	heat := int64(steps / 2 * (1 + max(min(off/scale, 1), -1)))
	style, glyph := th.Heat(max(heat, steps/10), steps)
	contrast, _ := th.Heat(steps, steps)
	if heat > steps/2 {
		contrast, _ = th.Heat(0, steps)
	}
	style.FG = contrast.BG
	fill := glyph
	if !known {
		style, glyph, fill = th.Faint, '·', ' '
	}
	switch {
	case m.Is == runs.Failed:
		style, glyph, fill = th.Bad, '✗', ' '
	case m.Is == runs.Missing || m.Is == runs.Late:
		style, glyph, fill = th.Warn, '?', ' '
	case m.Is == runs.Done:
		style, glyph, fill = th.Dim, '■', ' '
	case i == g.First:
		glyph = '▲'
	case marks[m.ID]:
		glyph = '●'
	}
	if i == chosen {
		style = th.OnSelected(th.Strong)
		if glyph == ' ' {
			glyph = '▸'
		}
	}
	text := []rune(string(glyph))
	if x.at.W >= namedCell && m.Rank.IsKnown() {
		text = []rune(m.Rank.String())
		if glyph != fill {
			text = append([]rune{glyph}, text...)
		}
	}
	from := max((x.at.W-len(text))/2, 0)
	for k := range x.at.W {
		r := fill
		if k >= from && k < from+len(text) {
			r = text[k-from]
		}
		c.Set(x.at.X+k, x.at.Y, r, c.Style(style))
	}
}

// drawHead says what the colours mean.
func (p *strip) drawHead(s *leaf.State, c *canvas.Canvas, at canvas.Rect, g *runs.Group, scale float64,
	each int) {
	what := "memory"
	if p.time {
		what = "time alone"
	}
	than := " against the median"
	if len(g.Classes) > 1 {
		than += " of its stage"
	}
	text := what + than
	if each > 1 {
		text += fmt.Sprintf(", %d ranks a cell", each)
	}
	n := c.TextMax(at.X, at.Y, at.W, s.Theme.Dim, text)
	low, high := fmt.Sprintf("-%.0f %% ", 100*scale), fmt.Sprintf(" +%.0f %%", 100*scale)
	const ramp = 10
	if n+len(low)+len(high)+ramp+2 > at.W {
		return
	}
	x := at.X + at.W - len(low) - len(high) - ramp
	x += c.Text(x, at.Y, s.Theme.Dim, low)
	for i := range int64(ramp) {
		st, glyph := s.Theme.Heat(max(i, 1), ramp-1)
		c.Set(x, at.Y, glyph, c.Style(st))
		x++
	}
	c.Text(x, at.Y, s.Theme.Dim, high)
}

// at returns the rank that the cell at a place of the view shows.
func (p *strip) at(x, y int) (rank int, ok bool) {
	for _, k := range p.cells {
		if k.at.Contains(x, y) {
			return k.ranks[0], true
		}
	}
	return 0, false
}
