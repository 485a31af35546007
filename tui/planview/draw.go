package planview

import (
	"fmt"
	"image/color"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/chart"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// axisWidth is the room for labels to the left of lanes and maps.
const axisWidth = 8

// layout is where the parts lie: for each plan a title, lanes and a map, then one time axis, and the list at
// the cursor.
type layout struct {
	titles, lanes, plots []canvas.Rect
	axis, list           canvas.Rect
}

func (l *layout) plots0() canvas.Rect {
	if len(l.plots) == 0 {
		return canvas.Rect{}
	}
	return l.plots[0]
}

// laneCount is how many lanes each plan has: compute and, if any plan copies, one per direction.
func (v *View) laneCount() int {
	for _, s := range v.scenes() {
		if len(s.out)+len(s.in) > 0 {
			return 3
		}
	}
	return 1
}

// place lays the parts out in w by h cells.
func (v *View) place(w, h int) layout {
	var l layout
	n := len(v.panes)
	body := canvas.Rect{X: 1, W: max(w-2, 0), H: h}
	if v.scenes() == nil {
		return layout{plots: make([]canvas.Rect, n), titles: make([]canvas.Rect, n),
			lanes: make([]canvas.Rect, n)}
	}
	head := min(2, h/6)
	if h > 20 {
		head++
	}
	_, body = body.CutTop(head)
	listRows := 0
	if room := body.H - n*(v.laneCount()+6); room > 4 {
		listRows = min(max(room/2, 5), body.H*2/5, 14)
	}
	body, l.list = body.CutBottom(listRows)
	if listRows > 0 {
		_, l.list = l.list.CutTop(1)
	}
	body, l.axis = body.CutBottom(1)
	for i := range n {
		var part, title, lanes canvas.Rect
		part, body = body.CutTop(body.H / (n - i))
		if i+1 < n && part.H > 12 {
			part, _ = part.CutBottom(1)
		}
		title, part = part.CutTop(1)
		lanes, part = part.CutTop(min(v.laneCount(), max(part.H-2, 0)))
		_, lanes = lanes.CutLeft(axisWidth)
		_, part = part.CutLeft(axisWidth)
		l.titles, l.lanes, l.plots = append(l.titles, title), append(l.lanes, lanes), append(l.plots, part)
	}
	_, l.axis = l.axis.CutLeft(axisWidth)
	return l
}

// Draw draws the plans.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	v.w, v.h = c.Size()
	v.layout = v.place(v.w, v.h)
	list := v.scenes()
	if list == nil {
		for _, p := range v.panes {
			if err := p.scene.Err(); err != nil {
				leaf.Empty(s, c, "This plan cannot be shown", err.Error(), "")
				return
			}
		}
		leaf.Working(s, c, "laying the plan out on its clock")
		return
	}
	if name, rest, ok := strings.Cut(painter{v}.headline(s), ": "); ok && v.h >= 6 {
		x := 1 + c.Text(1, 0, s.Theme.Strong, name+":")
		room := c.Width() - x - 2
		if canvas.Width(rest) > room { // the last things that the plan does are left out whole
			if end := strings.LastIndex(canvas.Truncate(rest, room-2), ", "); end > 0 {
				rest = rest[:end] + ", …"
			}
		}
		c.TextMax(x+1, 0, room, s.Theme.Text, rest)
	}
	if v.h >= 12 {
		c.TextMax(1, 1, c.Width()-2, s.Theme.Dim, painter{v}.atCursor(s))
	}
	for i, p := range v.panes {
		p.lanes, p.plot = v.layout.lanes[i], v.layout.plots[i]
		painter{v}.drawTitle(s, c, v.layout.titles[i], i)
		painter{v}.drawPane(s, c, p, list[i])
	}
	painter{v}.drawAxis(s, c)
	if l := v.layout.list; l.H > 0 { // in the row between the clock and the list
		painter{v}.drawLegend(s, c, canvas.Rect{X: l.X, Y: l.Y - 1, W: l.W, H: 1})
	}
	painter{v}.drawList(s, c, list[v.front])
}

// painter is the View's drawing half.
type painter struct{ *View }

func (v painter) drawTitle(s *leaf.State, c *canvas.Canvas, at canvas.Rect, i int) {
	if at.H == 0 {
		return
	}
	th, p := s.Theme, v.panes[i]
	name := th.Strong
	lead := ""
	if len(v.panes) > 1 && i == v.front {
		name, lead = th.Accent.Strong(), "▸ "
	}
	x := at.X + c.TextMax(at.X, at.Y, at.W, name, lead+p.plan.Name) + 2
	x += c.TextMax(x, at.Y, at.X+at.W-x, th.Text, p.title(s)) + 2
	if len(v.panes) > 1 {
		x += c.TextMax(x, at.Y, at.X+at.W-x-1, th.Dim, p.text) + 1
	}
	if i == len(v.panes)-1 && v.layout.list.H == 0 {
		v.drawLegend(s, c, canvas.Rect{X: x, Y: at.Y, W: at.X + at.W - x, H: 1})
	}
}

func (v painter) drawPane(s *leaf.State, c *canvas.Canvas, p *pane, sc *scene) {
	k, r, ok := p.raster.Value()
	if !ok || p.plot.W <= 0 {
		return
	}
	f := chart.Frame{Area: p.plot, High: v.top()}
	if p.plot.H >= 2 {
		f.YAxis(s, c)
		// the unit stands beside the clock
		c.Fill(canvas.Rect{X: p.plot.X - axisWidth, Y: p.plot.Y - 1, W: axisWidth - 1, H: 1}, ' ',
			s.Theme.Text)
	}
	v.drawLanes(s, c, p, r)
	v.drawMap(s, c, p, sc, k, r)
	v.drawLines(s, c, p, sc, r, f)
	v.drawCursor(s, c, p)
}

// columnOf returns the column of the raster at column x of the plot, -1 for none: the raster may be of an
// older window.
func (v painter) columnOf(r *raster, x, w int) int {
	if r.from == v.from && r.to == v.to && r.w == w {
		return x
	}
	t := float64(v.from) + (float64(x)+0.5)/float64(w)*float64(v.to-v.from)
	col := int((t - float64(r.from)) / float64(max(r.to-r.from, 1)) * float64(r.w))
	if t < float64(r.from) || col >= r.w {
		return -1
	}
	return col
}

// drawLanes draws what compute and the copy engines do: recomputed ops are hatched, waiting is red.
func (v painter) drawLanes(s *leaf.State, c *canvas.Canvas, p *pane, r *raster) {
	th := s.Theme
	run, again, stall := th.Dim, th.Warn, th.Bad
	for row := range p.lanes.H {
		y := p.lanes.Y + row
		c.TextRight(p.lanes.X-1, y, th.Dim, []string{"compute", "out", "in"}[row])
		for x := range p.lanes.W {
			col := v.columnOf(r, x, p.lanes.W)
			if col < 0 {
				continue
			}
			l := &r.lanes[col]
			ch, st := rune(0), run
			switch row {
			case 0:
				switch {
				case l.stall > 0 && l.stall >= l.run/4:
					ch, st = '▒', stall
				case l.again > 0 && l.again >= l.run/2:
					ch, st = '╱', again
				case l.run > 0 || l.again > 0:
					ch = canvas.Eighth(max((int(l.run)+int(l.again))*8/255, 1))
				}
			case 1:
				if l.out > 0 {
					ch, st = canvas.Eighth(max(int(l.out)*8/255, 1)), th.Warn
				}
			case 2:
				if l.in > 0 {
					ch, st = canvas.Eighth(max(int(l.in)*8/255, 1)), th.Good
				}
			}
			if ch != 0 {
				c.Set(p.lanes.X+x, y, ch, c.Style(st))
			}
		}
	}
}

// drawMap draws memory over time, two addresses a cell, or one glyph a cell without colours.
func (v painter) drawMap(s *leaf.State, c *canvas.Canvas, p *pane, sc *scene, k key, r *raster) {
	if r.h == 0 || k.top <= 0 {
		return
	}
	look := v.looks(s, sc)
	for y := range p.plot.H {
		ry := y
		if r.h != p.plot.H {
			ry = y * r.h / p.plot.H
		}
		for x := range p.plot.W {
			col := v.columnOf(r, x, p.plot.W)
			if col < 0 {
				continue
			}
			upper, lower := r.points[2*ry*r.w+col], r.points[(2*ry+1)*r.w+col]
			if upper == nothing && lower == nothing {
				continue
			}
			v.drawCell(s, c, p.plot.X+x, p.plot.Y+y, look, upper, lower)
		}
	}
}

// looks returns how a point looks; ok is false if it is empty.
func (v painter) looks(s *leaf.State, sc *scene) func(point int32) (canvas.Fill, bool) {
	chosen := s.Theme.Chosen()
	var fills [timeline.NumCategories][4]canvas.Fill
	for cat := range fills {
		for n := range 4 {
			fills[cat][n] = s.Theme.Shade(timeline.Category(cat), n)
		}
	}
	return func(point int32) (canvas.Fill, bool) {
		if cat, ok := category(point); ok {
			return fills[min(cat, timeline.NumCategories-1)][0], true
		}
		if point < 0 || int(point) >= len(sc.boxes) {
			return canvas.Fill{}, false
		}
		b := sc.boxes[point].buffer
		if b == v.selected {
			return chosen, true
		}
		// buffers next to each other in the problem are often adjacent in memory
		return fills[sc.p.Buffers[b].Category][int(b)&3], true
	}
}

func (v painter) drawCell(s *leaf.State, c *canvas.Canvas, x, y int, look func(int32) (canvas.Fill, bool),
	upper, lower int32) {
	a, hasA := look(upper)
	b, hasB := look(lower)
	if s.Theme.Mono || c.ASCII() {
		f := b
		if !hasB {
			f = a
		}
		glyph := f.Mono
		if c.ASCII() {
			glyph = f.ASCII
		}
		c.Set(x, y, glyph, 0)
		return
	}
	switch {
	case hasA && hasB && a.Color == b.Color:
		st := canvas.Style{BG: a.Color}
		ch := a.Pattern
		if ch == 0 || upper != lower {
			ch = ' '
		}
		if ch != ' ' {
			st.FG = a.Shade
		}
		c.Set(x, y, ch, c.Style(st))
	case hasA && hasB:
		c.Set(x, y, '▄', c.Style(canvas.Style{FG: b.Color, BG: a.Color}))
	case hasA:
		c.Set(x, y, '▀', c.Style(canvas.Style{FG: a.Color}))
	default:
		c.Set(x, y, '▄', c.Style(canvas.Style{FG: b.Color}))
	}
}

// drawLines draws the budget and, if addresses are planned, the top of the arena.
func (v painter) drawLines(s *leaf.State, c *canvas.Canvas, p *pane, sc *scene, r *raster, f chart.Frame) {
	if v.budget <= 0 || v.budget > v.top() || p.plot.H < 3 {
		return
	}
	y := p.plot.Y + f.Row(v.budget)
	id := c.Style(s.Theme.Accent)
	for x := range p.plot.W {
		if cell := c.At(p.plot.X+x, y); (cell.Rune == ' ' || cell.Rune == '·') &&
			c.StyleOf(cell.Style).BG == nil {
			c.Set(p.plot.X+x, y, '╌', id)
		}
	}
}

func (v painter) drawCursor(s *leaf.State, c *canvas.Canvas, p *pane) {
	x := int(float64(v.cursor-v.from) / float64(max(v.to-v.from, 1)) * float64(p.plot.W))
	if v.cursor < v.from || x < 0 || x >= p.plot.W {
		return
	}
	for y := p.lanes.Y; y < p.plot.Y+p.plot.H; y++ {
		cell := c.At(p.plot.X+x, y)
		old := c.StyleOf(cell.Style)
		var bg color.Color = old.BG
		if cell.Rune >= '▄' && cell.Rune <= '█' && old.FG != nil && y >= p.plot.Y {
			bg = old.FG
		}
		st := s.Theme.Cursor
		if bg != nil && !s.Theme.Mono {
			st = canvas.Style{FG: s.Theme.Selected.FG, BG: bg}
		}
		c.Set(p.plot.X+x, y, '│', c.Style(st))
	}
}

// drawAxis labels the time axis that the plans share.
func (v painter) drawAxis(s *leaf.State, c *canvas.Canvas) {
	at := v.layout.axis
	if at.H == 0 || at.W < 20 {
		return
	}
	clock := v.scenes()[0].clock
	c.TextRight(at.X-1, at.Y, s.Theme.Dim, chart.Unit(s.Units, v.top()))
	n := max(at.W/18, 1)
	free := -1
	label := func(t int64, text string) {
		x := int(float64(t-v.from) / float64(max(v.to-v.from, 1)) * float64(at.W))
		if x > free && x+canvas.Width(text) <= at.W {
			free = x + c.Text(at.X+x, at.Y, s.Theme.Dim, text)
		}
	}
	if clock {
		times, labels := chart.TimeTicks(v.from, v.to, n)
		for i, t := range times {
			label(t, labels[i])
		}
		return
	}
	for i := range n {
		t := v.from + int64(float64(v.to-v.from)*float64(i)/float64(n))
		label(t, "op "+leaf.Count(t))
	}
}

// drawList draws what is away at the cursor and why, and what is held and for what.
func (v painter) drawList(s *leaf.State, c *canvas.Canvas, sc *scene) {
	at := v.layout.list
	if at.H < 2 {
		return
	}
	th := s.Theme
	v.table.Draw(c, at, th, func(row, col int) table.Cell {
		x := &v.states[row]
		b := &sc.p.Buffers[x.buffer]
		switch col {
		case colBuffer:
			return table.Cell{Lead: th.Glyph(b.Category), LeadStyle: th.Category(b.Category),
				Text: sc.bufferName(x.buffer)}
		case colSize:
			return table.Cell{Text: s.Units.Bytes(x.size)}
		case colState:
			return stateCell(s, x)
		case colWhy:
			return table.Cell{Text: orDash(x.why), Style: th.Dim}
		}
		return table.Cell{Text: orDash(x.until), Style: th.Dim}
	})
}

func stateCell(s *leaf.State, x *state) table.Cell {
	switch {
	case !x.away:
		return table.Cell{Text: "held", Style: s.Theme.Dim}
	case x.moving == leaving:
		return table.Cell{Text: "leaving", Style: s.Theme.Warn}
	case x.moving == arriving:
		return table.Cell{Text: "coming back", Style: s.Theme.Good}
	case x.how == plan.Swap:
		return table.Cell{Text: "on the host", Style: s.Theme.Warn}
	case x.how == plan.Recompute:
		return table.Cell{Text: "dropped", Style: s.Theme.Bad}
	}
	return table.Cell{Text: "discarded", Style: s.Theme.Dim}
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// atCursor says what the plan in front holds at the cursor.
func (v painter) atCursor(s *leaf.State) string {
	sc := v.current()
	if sc == nil || !v.begun {
		return ""
	}
	op := sc.opAt(v.cursor)
	text := sc.plan.Name + " holds " + s.Units.Bytes(sc.heldAt(v.cursor))
	if v.away > 0 {
		text += "; " + s.Units.Bytes(v.away)
		switch host := s.Units.Bytes(v.onHost); {
		case v.onHost == 0:
			text += " is not in memory"
		case host == s.Units.Bytes(v.away):
			text += " is on the host"
		default:
			text += " is not in memory, " + host + " of it on the host"
		}
	}
	text += " · "
	if sc.clock {
		text += timeline.Duration(v.cursor) + ", "
	}
	text += fmt.Sprintf("op %s of %s", leaf.Count(int64(op)+1), leaf.Count(int64(len(sc.p.Ops))))
	if len(sc.p.Ops) > 0 {
		text += " " + sc.opName(op)
	}
	return text
}

// headline says what one plan does, or how two differ.
func (v painter) headline(s *leaf.State) string {
	list := v.scenes()
	if len(list) == 1 {
		return list[0].plan.Name + ": " + v.panes[0].text + "."
	}
	a, b := &list[0].plan.Result, &list[1].plan.Result
	text := fmt.Sprintf("%s against %s: ", list[0].plan.Name, list[1].plan.Name)
	switch d := a.Measurement.Footprint - b.Measurement.Footprint; {
	case d < 0:
		text += s.Units.Bytes(-d) + " less memory"
	case d > 0:
		text += s.Units.Bytes(d) + " more memory"
	default:
		text += "the same memory"
	}
	if list[0].clock && list[1].clock {
		switch d := a.Measurement.StepTime - b.Measurement.StepTime; {
		case d < 0:
			text += ", " + timeline.Duration(-d) + " faster a step"
		case d > 0:
			text += ", " + timeline.Duration(d) + " slower a step"
		default:
			text += ", the same step time"
		}
	}
	return text + "."
}
