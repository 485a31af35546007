// Package chart draws what all charts of bytes over time share: axes, iterations, phases, the cursor and
// stacked areas, and handles the mouse in them.
//
// A chart's column is the maximum of what it covers, never the mean: a peak one microsecond wide is visible
// at full zoom-out, and the cursor, placed on a column, goes to that maximum. Axes are labelled at round
// numbers in one unit.
package chart

import (
	"sort"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Frame relates the cells of a plot to a window of time and a range of bytes.
type Frame struct {
	Device    *timeline.Device
	Area      canvas.Rect // the plot's cells, without axes
	Window    timeline.Window
	Low, High int64 // bytes at the lower and the upper edge
	// Parts, in order and without overlap, are drawn instead of the phases; nil draws the phases.
	Parts []Stretch
}

// Column returns the column of a position: -1 before the plot, its width after it.
func (f *Frame) Column(pos int64) int { return f.Window.Column(pos, f.Area.W) }

// Position returns the first position of a column, one of the plot.
func (f *Frame) Position(col int) int64 {
	if f.Area.W < 1 {
		return f.Window.From
	}
	return f.Window.Edge(min(max(col, 0), f.Area.W), f.Area.W)
}

// moment returns the moment of a column: that of its maximum or, if nothing happens in it, the last one
// before.
func (f *Frame) moment(col int) timeline.Moment {
	w := timeline.Window{Axis: f.Window.Axis, From: f.Position(col), To: f.Position(col + 1)}
	cols := f.Device.Columns(f.Device.Allocated, w, 1, nil)
	if cols[0].End > cols[0].First {
		return cols[0].MaxAt
	}
	return leaf.MomentAt(f.Device, w.Axis, w.From-1)
}

// Eighths returns the height of bytes above the lower edge in eighths of a cell; anything above zero is at
// least one.
func (f *Frame) Eighths(bytes int64) int {
	span := f.High - f.Low
	if span <= 0 || bytes <= f.Low {
		return 0
	}
	n := int(float64(bytes-f.Low) / float64(span) * float64(f.Area.H*8))
	return min(max(n, 1), f.Area.H*8)
}

// Row returns the row in which bytes lie, counted from the top of the plot.
func (f *Frame) Row(bytes int64) int {
	return f.Area.H - 1 - min(max(f.Eighths(bytes)-1, 0)/8, f.Area.H-1)
}

// Bytes returns the bytes at the middle of a row.
func (f *Frame) Bytes(row int) int64 {
	part := (float64(f.Area.H-row) - 0.5) / float64(max(f.Area.H, 1))
	return f.Low + int64(part*float64(f.High-f.Low))
}

// YAxis draws labelled ticks to the left of the plot, faint gridlines through its empty cells, and the unit
// above.
func (f *Frame) YAxis(s *leaf.State, c *canvas.Canvas) {
	unit, size := unitFor(s.Units, f.High)
	step := niceStep(float64(f.High-f.Low)/size/float64(max(f.Area.H/4, 1)), unit == "B")
	// a low chart has room for few ticks, and 0 alone is no scale
	if span := float64(f.High-f.Low) / size; step > span && span > 0 {
		step = niceStep(span*0.4, unit == "B")
	}
	grid := c.Style(s.Theme.Faint)
	first := true
	last := f.Area.H + 2
	for v := ceilTo(float64(f.Low)/size, step); v*size <= float64(f.High)*1.0001; v += step {
		row := f.Row(int64(v * size))
		if v <= 0 || int64(v*size) <= f.Low {
			row = f.Area.H - 1
		}
		if last-row < 2 {
			continue
		}
		last = row
		text := decimals(v, step)
		c.TextRight(f.Area.X-1, f.Area.Y+row, s.Theme.Dim, text)
		if !first {
			for x := 0; x < f.Area.W; x += 4 {
				c.Set(f.Area.X+x, f.Area.Y+row, '·', grid)
			}
		}
		first = false
	}
	if f.Area.Y > 0 {
		c.TextRight(f.Area.X-1, f.Area.Y-1, s.Theme.Dim, unit)
	}
}

// xAxis draws labels below the plot at row y: time since the recording's first event, or event indices.
func (f *Frame) xAxis(s *leaf.State, c *canvas.Canvas, y int) {
	from, to := f.Window.From, f.Window.To
	unit, size := "", 1.0
	var base int64
	if f.Window.Axis == timeline.AxisTime {
		base = f.Device.Timeline().Zero()
		unit, size = timeUnit(max(to-base, 1))
	}
	span := float64(to-from) / size
	step := niceStep(span/float64(max(f.Area.W/14, 1)), f.Window.Axis == timeline.AxisEvents)
	free := 0
	for v := ceilTo(float64(from-base)/size, step); v <= float64(to-base)/size; v += step {
		x := f.Column(base + int64(v*size))
		if x < 0 || x >= f.Area.W {
			continue
		}
		text := decimals(v, step)
		if f.Window.Axis == timeline.AxisEvents {
			text = leaf.Count(int64(v))
		}
		if free == 0 && unit != "" {
			text += " " + unit
		}
		w := canvas.Width(text)
		at := x - w/2
		if x < w/2+1 {
			at = max(x, 0)
		}
		if at < free || at+w > f.Area.W {
			continue
		}
		c.Text(f.Area.X+at, y, s.Theme.Dim, text)
		free = at + w + 2
	}
}

// iterations draws a thin line at each iteration's start through the plot's empty cells and the iterations'
// names at row y.
func (f *Frame) iterations(s *leaf.State, c *canvas.Canvas, y int) {
	if !s.Analysed {
		return
	}
	list := steps.Of(f.Device).List
	first := leaf.MomentAt(f.Device, f.Window.Axis, f.Window.From)
	i := max(sort.Search(len(list), func(i int) bool { return list[i].First > first })-1, 0)
	j := sort.Search(len(list), func(j int) bool {
		return leaf.Position(f.Device, f.Window.Axis, list[j].First) >= f.Window.To
	})
	every := 1
	for (j-i)/every > f.Area.W/5 {
		every *= 2
	}
	free := 0
	for ; i < j; i += every {
		x := f.Column(leaf.Position(f.Device, f.Window.Axis, list[i].First))
		if x >= 0 {
			f.line(c, x, '┊', s.Theme.Faint)
		}
		x = max(x, 0)
		name := list[i].Name
		end := f.Area.W
		if i+every < len(list) {
			end = min(f.Column(leaf.Position(f.Device, f.Window.Axis, list[i+every].First)), f.Area.W)
		}
		if canvas.Width(name)+2 > end-x {
			name = steps.IterationNumber(name)
		}
		if x < free || canvas.Width(name) >= end-x {
			continue
		}
		st := s.Theme.Dim
		if list[i].Odd {
			st = s.Theme.Warn
		}
		free = x + 2 + c.Text(f.Area.X+x, y, st, name)
	}
}

// line draws a vertical line through the empty cells of a column.
func (f *Frame) line(c *canvas.Canvas, x int, r rune, st canvas.Style) {
	id := c.Style(st)
	for y := range f.Area.H {
		if cell := c.At(f.Area.X+x, f.Area.Y+y); empty(c, cell) {
			c.Set(f.Area.X+x, f.Area.Y+y, r, id)
		}
	}
}

// empty reports whether a cell shows nothing but the grid.
func empty(c *canvas.Canvas, cell canvas.Cell) bool {
	return (cell.Rune == ' ' || cell.Rune == '·' || cell.Rune == '.') && c.StyleOf(cell.Style).BG == nil
}

// phases draws forward, backward and optimizer as a lane of one row, and reports whether it drew anything.
func (f *Frame) phases(s *leaf.State, c *canvas.Canvas, y int) bool {
	if !s.Analysed {
		return false
	}
	if f.Parts != nil {
		f.parts(s, c, y)
		return true
	}
	list := steps.Phases(f.Device)
	from := leaf.MomentAt(f.Device, f.Window.Axis, f.Window.From)
	i := sort.Search(len(list), func(i int) bool { return list[i].Last > from })
	drawn := false
	for n := 0; i < len(list) && n < 4*f.Area.W; i, n = i+1, n+1 {
		p := &list[i]
		x0 := max(f.Column(leaf.Position(f.Device, f.Window.Axis, p.First)), 0)
		if x0 >= f.Area.W {
			break
		}
		x1 := min(f.Column(leaf.Position(f.Device, f.Window.Axis,
			min(p.Last, timeline.Moment(f.Device.Len()-1)))), f.Area.W)
		f.phase(s, c, p, x0, max(x1, x0+1), y)
		drawn = true
	}
	return drawn
}

func (f *Frame) phase(s *leaf.State, c *canvas.Canvas, p *steps.PhaseSpan, x0, x1, y int) {
	part := Stretch{Line: '─', Names: []string{p.Phase.String(), shortPhases[p.Phase]}}
	switch p.Phase {
	case traces.PhaseForward:
		part.Line = '╌'
	case traces.PhaseOptimizer:
		part.Line = '━'
	}
	if p.Inferred {
		for i := range part.Names {
			part.Names[i] = "~" + part.Names[i]
		}
	}
	f.part(s, c, &part, x0, x1, y)
}

// shortPhases are phase names for narrow places.
var shortPhases = [...]string{
	traces.PhaseUnknown: "", traces.PhaseForward: "fwd", traces.PhaseBackward: "bwd",
	traces.PhaseOptimizer: "opt",
}

// cursor draws the time cursor as a line through the plot, over areas in a tone that keeps them visible.
func (f *Frame) cursor(s *leaf.State, c *canvas.Canvas, m timeline.Moment, st canvas.Style) {
	x := f.Column(leaf.Position(f.Device, f.Window.Axis, m))
	if x < 0 || x >= f.Area.W {
		return
	}
	for y := range f.Area.H {
		f.cursorCell(s, c, f.Area.X+x, f.Area.Y+y, st)
	}
}

func (f *Frame) cursorCell(s *leaf.State, c *canvas.Canvas, x, y int, st canvas.Style) {
	cell := c.At(x, y)
	old := c.StyleOf(cell.Style)
	bg := old.BG
	// the upper edge of an area
	if bg == nil && cell.Rune >= '▁' && cell.Rune <= '█' && old.FG != s.Theme.Dim.FG {
		bg = old.FG
	} else if bg != nil && cell.Rune >= '▄' && cell.Rune <= '█' {
		// The lower of two areas fills most of the cell.
		bg = old.FG
	}
	if bg == nil || s.Theme.Mono {
		c.Set(x, y, '│', c.Style(st))
		return
	}
	c.Set(x, y, '│', c.Style(canvas.Style{FG: s.Theme.Selected.FG, BG: bg}))
}

// Landmarks draws what orients in time: iterations and the peak at row labels above the plot, phases at row
// phases below it and the axis in the row after them (without phases in their row), and through the plot the
// cursor and the mark.
func (f *Frame) Landmarks(s *leaf.State, c *canvas.Canvas, labels, phases int) {
	f.iterations(s, c, labels)
	if f.phases(s, c, phases) {
		phases++
	}
	f.xAxis(s, c, phases)
	f.cursor(s, c, s.Cursor, s.Theme.Cursor)
	if s.HasMark {
		f.cursor(s, c, s.Mark, s.Theme.Warn)
		f.pin(c, labels, s.Mark, s.Theme.Warn, "mark")
	}
	t := &f.Device.Totals
	name := "peak "
	if f.Device.Len() < 2 {
		name = ""
	}
	f.pin(c, labels, t.PeakAt, s.Theme.Strong, name+s.Units.Bytes(t.PeakAllocated))
}

// pin writes a label above the plot at a moment's column: ▼ with its text, on whichever side has room.
func (f *Frame) pin(c *canvas.Canvas, y int, m timeline.Moment, st canvas.Style, text string) {
	x := f.Column(leaf.Position(f.Device, f.Window.Axis, m))
	if x < 0 || x >= f.Area.W {
		return
	}
	w := canvas.Width(text)
	if x+2+w <= f.Area.W {
		f.clearLabels(c, y, x, x+2+w)
		c.Text(f.Area.X+x, y, st, "▼ "+text)
		return
	}
	x = max(x-w-1, 0)
	f.clearLabels(c, y, x, x+w+2)
	c.Text(f.Area.X+x, y, st, text+" ▼")
}

// clearLabels blanks the labels of row y that reach into the columns [from, to) or touch them: half a label
// is worse than none. Labels are separated by two blanks or more.
func (f *Frame) clearLabels(c *canvas.Canvas, y, from, to int) {
	taken := func(x int) bool { return x >= 0 && x < f.Area.W && c.At(f.Area.X+x, y).Rune != ' ' }
	from, to = from-1, to+1
	for taken(from) || taken(from-1) && taken(from+1) {
		from--
	}
	for taken(to-1) || taken(to) && taken(to-2) {
		to++
	}
	for x := max(from, 0); x < min(to, f.Area.W); x++ {
		c.Set(f.Area.X+x, y, ' ', 0)
	}
}
