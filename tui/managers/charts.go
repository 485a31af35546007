package managers

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/chart"
	"github.com/gmemtop/gmemtop/tui/curves"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// spot is a row's mark in the trade-off.
type spot struct {
	x, y int
	of   rowKey
}

// usageArea records where the curves were drawn, so that a click finds the nearest.
type usageArea struct {
	area   canvas.Rect
	high   int64
	span   int64
	curves []rowKey
	shapes []*shape
}

// charts are memory over time and the trade-off, and where things were drawn in them. They know no other
// part of the view.
type charts struct {
	pareto bool // if there is room for one chart only, it is the trade-off
	one    bool // there was room for one at the last Draw
	spots  []spot
	usage  usageArea
}

// picture is what the charts show.
type picture struct {
	*leaf.State
	q              question
	all            roster
	rows           []row
	chosen, winner rowKey
	trail          []point // the positions of the chosen manager under other budgets
	bounds         []bound // proven for the budgets that were planned for
	running        bool    // somebody plans
	tempo          tempo
}

// clear forgets the positions of the last drawing.
func (v *charts) clear() { v.spots, v.usage = v.spots[:0], usageArea{} }

// leastChart is the height below which no chart is drawn.
const leastChart = 5

// draw draws memory over time beside the trade-off, or only the selected chart if there is room for one.
func (v *charts) draw(c *canvas.Canvas, at canvas.Rect, x *picture) {
	v.one = false
	st := x.q.setup
	switch wide := at.W >= 100 && st.canMove() && st.p.HasTimes; {
	case at.H < leastChart || at.W < 30:
		return
	case wide:
		left, right := at.CutLeft(at.W * 3 / 5)
		v.drawUsage(c, left, x)
		_, right = right.CutLeft(3)
		v.drawTradeOff(c, right, x)
		return
	case v.pareto && st.p.HasTimes:
		v.drawTradeOff(c, at, x)
	default:
		v.drawUsage(c, at, x)
	}
	v.one = st.p.HasTimes
}

// drawn returns the rows that have something to draw, the chosen one last so that it is on top.
func (x *picture) drawn() []*row {
	var list []*row
	for i := range x.rows {
		r := &x.rows[i]
		if r.result != nil && r.result.Available && r.result.shape != nil && (r.m.on || x.chosen == r.key()) {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b *row) int { return cmp.Compare(x.worth(a), x.worth(b)) })
	return list
}

// worth is greater than 0 for rows that are named, the greater the more they are looked at.
func (x *picture) worth(r *row) int {
	switch k := r.key(); {
	case k == x.chosen:
		return 3
	case k == x.winner:
		return 2
	case r.manager == x.all.baseline():
		return 1
	}
	return 0
}

// net returns what the budget leaves for the plan, 0 without a budget.
func (x *picture) net() int64 { return x.q.net() }

// drawUsage draws the memory that the managers hold over the same iteration: the selected one and the fastest
// in their colours, the others muted behind them, the budget as a line, and below them the copies of the
// selected one.
func (v *charts) drawUsage(c *canvas.Canvas, at canvas.Rect, x *picture) {
	list := x.drawn()
	if len(list) == 0 {
		x.drawNoCharts(c, at)
		return
	}
	top := list[len(list)-1]
	sh := top.result.shape
	lanes := 0 // kept if any plan copies, so that the axes stay in place when another is chosen
	copies := func(r *row) bool { return r.result.shape.out != nil || r.result.shape.in != nil }
	if at.H >= 9 && slices.ContainsFunc(list, copies) {
		lanes = 2
	}
	var lanesAt canvas.Rect
	at, lanesAt = at.CutBottom(lanes)
	plot := curves.Plot{High: x.net(), Events: sh.ops}
	shortest := list[0].result.shape.span
	for _, r := range list {
		shortest = min(shortest, r.result.shape.span)
	}
	// An iteration that takes twice as long must not squeeze the others, unless it is the chosen one. Nor
	// must the axis move with the choice.
	for _, r := range list {
		sh := r.result.shape
		plot.High = max(plot.High, slices.Max(sh.usage))
		if sh.span <= shortest+shortest/4 || x.worth(r) > 0 {
			plot.Span = max(plot.Span, sh.span)
		}
	}
	plot.High += plot.High / 16
	for _, r := range list {
		curve := curves.Curve{High: stretch(r.result.shape, plot.Span), Mark: r.mark, Style: x.Theme.Faint}
		if !r.stale && x.worth(r) > 0 {
			curve.Style = x.Theme.Series(r.m.series)
		}
		if k := r.key(); !r.stale && x.worth(r) > 0 || k == x.chosen {
			curve.Name = r.label()
			if r.seen != nil {
				curve.Name += ", as predicted"
			}
		}
		if r.seen != nil {
			plot.High = max(plot.High, r.seen.Measurement.Footprint+r.seen.Measurement.Footprint/16)
		}
		plot.Curves = append(plot.Curves, curve)
	}
	span := plot.Span
	if !plot.Events {
		plot.Span = x.tempo.of(span)
	}
	area := plot.Draw(x.State, c, at)
	if area.W == 0 {
		return
	}
	v.usage = usageArea{area: area, high: plot.High, span: span}
	for _, r := range list {
		v.usage.curves, v.usage.shapes = append(v.usage.curves, r.key()),
			append(v.usage.shapes, r.result.shape)
	}
	if x.net() > 0 {
		x.drawLine(c, chart.Frame{Area: area, High: plot.High}, x.net(), x.Theme.Accent, " budget ")
	}
	for _, r := range list {
		if r.seen != nil {
			x.drawLine(c, chart.Frame{Area: area, High: plot.High}, r.seen.Measurement.Footprint,
				x.Theme.Good, " "+r.label()+": measured peak ")
		}
	}
	x.drawLanes(c, lanesAt, area, sh, span)
}

// stretch lays a shape's samples on an axis of another span; beyond its end there is nothing.
func stretch(sh *shape, span int64) []int64 {
	if sh.span == span {
		return sh.usage
	}
	out := make([]int64, curves.Samples)
	for i := range out {
		out[i] = curves.None
		from, to := sampleAt(sh, span, i, curves.Samples)
		for k := from; k < to; k++ {
			out[i] = max(out[i], sh.usage[k])
		}
	}
	return out
}

// sampleAt returns the samples of a shape in the i-th of n stretches of an axis.
func sampleAt(sh *shape, span int64, i, n int) (from, to int) {
	f := float64(span) / float64(sh.span) * curves.Samples / float64(n)
	from = int(float64(i) * f)
	to = min(max(int(float64(i+1)*f), from+1), curves.Samples)
	return min(from, to), to
}

// drawLine draws a level of bytes through the cells that no curve takes, with a label.
func (x *picture) drawLine(c *canvas.Canvas, f chart.Frame, bytes int64, style canvas.Style, label string) {
	y := f.Area.Y + f.Row(bytes)
	id := c.Style(style)
	for at := f.Area.X; at < f.Area.X+f.Area.W; at++ {
		if r := c.At(at, y).Rune; r == ' ' || r == '·' {
			c.Set(at, y, '╌', id)
		}
	}
	w := canvas.Width(label)
	for at := f.Area.X + f.Area.W - w - 1; at >= f.Area.X; at-- { // a place where it hides no curve
		free := true
		for k := range w {
			free = free && c.At(at+k, y).Rune == '╌' || c.ASCII() && free && c.At(at+k, y).Rune == '-'
		}
		if free {
			c.Text(at, y, style, label)
			return
		}
	}
}

// drawLanes draws how busy the copy engines are under the selected plan.
func (x *picture) drawLanes(c *canvas.Canvas, at, area canvas.Rect, sh *shape, span int64) {
	if at.H < 2 {
		return
	}
	for i, lane := range []struct {
		name  string
		share []uint8
		style canvas.Style
	}{{"out", sh.out, x.Theme.Warn}, {"in", sh.in, x.Theme.Good}} {
		y := at.Y + i
		c.TextRight(area.X-1, y, x.Theme.Dim, lane.name)
		if lane.share == nil {
			continue
		}
		id := c.Style(lane.style)
		for col := range area.W {
			var busy uint8
			from, to := sampleAt(sh, span, col, area.W)
			for k := from; k < to; k++ {
				busy = max(busy, lane.share[k])
			}
			if busy > 0 {
				c.Set(area.X+col, y, canvas.Eighth(max(int(busy)*8/255, 1)), id)
			}
		}
	}
}

func (x *picture) drawNoCharts(c *canvas.Canvas, at canvas.Rect) {
	text := "memory over time appears with the first plan"
	if !x.running {
		text = ""
	}
	c.TextCenter(at.X, at.Y+at.H/2, at.W, x.Theme.Faint, text)
}

// drawTradeOff draws memory against step time: digits for the rows of the frontier, dots for the rest, and
// for the selected manager a small dot for every budget asked about.
func (v *charts) drawTradeOff(c *canvas.Canvas, at canvas.Rect, x *picture) {
	list := x.drawn()
	if len(list) == 0 {
		if at.W == c.Width()-2 {
			x.drawNoCharts(c, at)
		}
		return
	}
	axis := 8
	area := canvas.Rect{X: at.X + axis, Y: at.Y + 1, W: at.W - axis - 1, H: at.H - 2}
	if area.W < 12 || area.H < 3 {
		return
	}
	low, high, slow := x.rangeOf(list)
	base := float64(baselineTime(list))
	px := func(bytes int64) int {
		return area.X + min(max(int(float64(bytes-low)/float64(max(high-low, 1))*float64(area.W-1)+0.5), 0),
			area.W-1)
	}
	py := func(overhead float64) int {
		return area.Y + area.H - 1 - min(max(int(overhead/slow*float64(area.H-1)+0.5), 0), area.H-1)
	}
	c.TextMax(at.X, at.Y, at.W, x.Theme.Dim, "step time over memory")
	c.Fill(canvas.Rect{X: area.X - 1, Y: area.Y, W: 1, H: area.H}, '│', x.Theme.Faint)
	c.Fill(canvas.Rect{X: area.X - 1, Y: area.Y + area.H, W: area.W + 1, H: 1}, '─', x.Theme.Faint)
	c.Set(area.X-1, area.Y+area.H, '└', c.Style(x.Theme.Faint))
	c.TextRight(area.X-2, area.Y, x.Theme.Dim, replay.Percent(slow))
	c.TextRight(area.X-2, area.Y+area.H-1, x.Theme.Dim, "0 %")
	left, right := x.Units.Bytes(low), x.Units.Bytes(high)
	c.Text(area.X, area.Y+area.H, x.Theme.Dim, left+" ")
	c.TextRight(area.X+area.W, area.Y+area.H, x.Theme.Dim, " "+right)
	if x.drawBounds(c, area, px, py, low, slow) {
		x.drawLegend(c, at)
	}
	if x.q.budget > 0 {
		col := px(x.net())
		id := c.Style(x.Theme.Accent)
		for y := range area.H {
			c.Set(col, area.Y+y, '┆', id)
		}
	}
	for _, r := range list {
		if r.key() != x.chosen || base <= 0 {
			continue
		}
		id := c.Style(x.Theme.Series(r.m.series))
		for _, p := range x.trail {
			c.Set(px(p.footprint), py(float64(p.step)/base-1), '·', id)
		}
	}
	beyond := ""
	slices.SortStableFunc(list, func(a, b *row) int { return cmp.Compare(a.mark, b.mark) }) // digits first
	for _, r := range list {
		over := r.at.Overhead > slow
		v.drawSpot(c, area, x, r, px(r.at.Measurement.Footprint), py(r.at.Overhead), over)
		if over && r.key() == x.chosen {
			beyond = " " + replay.Percent(r.at.Overhead)
		}
	}
	v.nameSpot(c, area, x, beyond)
}

// drawSpot draws a row's mark. If another mark is in its place, a digit takes the next free cell beside it.
func (v *charts) drawSpot(c *canvas.Canvas, area canvas.Rect, of *picture, r *row, x, y int, beyond bool) {
	k := r.key()
	taken := func(x int) bool {
		return slices.ContainsFunc(v.spots, func(o spot) bool { return o.x == x && o.y == y })
	}
	if taken(x) && r.mark == otherMark && k != of.chosen {
		return
	}
	for d := 0; taken(x) && d < 6; d++ {
		step := (d/2 + 1) * (1 - d%2*2)
		if nx := x + step; nx >= area.X && nx < area.X+area.W && !taken(nx) {
			x = nx
			break
		}
	}
	style := of.Theme.Series(r.m.series)
	switch {
	case r.stale || beyond:
		style = of.Theme.Faint
	case of.q.budget > 0 && !r.at.Fits:
		style = of.Theme.Dim
	}
	if k == of.chosen {
		style = of.Theme.OnSelected(of.Theme.Strong)
	}
	c.Set(x, y, r.mark, c.Style(style))
	if beyond && x+1 < area.X+area.W {
		c.Set(x+1, y, '↑', c.Style(of.Theme.Faint))
	}
	v.spots = append(v.spots, spot{x, y, k})
}

// nameSpot writes the name of the chosen manager where it hides no mark, and how far beyond the axis it lies.
func (v *charts) nameSpot(c *canvas.Canvas, area canvas.Rect, of *picture, beyond string) {
	i := slices.IndexFunc(v.spots, func(p spot) bool { return p.of == of.chosen })
	if i < 0 {
		return
	}
	p := v.spots[i]
	name := labelOf(of.rows, p.of) + beyond
	w := canvas.Width(name)
	middle := min(max(p.x-w/2, area.X), area.X+area.W-w)
	for _, at := range [][2]int{{p.x + 2, p.y}, {p.x - 1 - w, p.y}, {middle, p.y - 1}, {middle, p.y + 1},
		{middle, p.y - 2}} {
		x, y := at[0], at[1]
		if x < area.X || x+w > area.X+area.W || y < area.Y || y >= area.Y+area.H ||
			slices.ContainsFunc(v.spots, func(o spot) bool { return o.y == y && o.x >= x-1 && o.x <= x+w }) {
			continue
		}
		c.Text(x, y, of.Theme.Strong, name)
		return
	}
}

// rangeOf returns the ranges of the trade-off's axes: all footprints, and all acceptable overheads; slower
// rows appear at the upper edge.
func (x *picture) rangeOf(list []*row) (low, high int64, slow float64) {
	low, high = list[0].at.Measurement.Footprint, 0
	var times []float64
	for _, r := range list {
		m := &r.at.Measurement
		low, high = min(low, m.Footprint), max(high, m.Footprint)
		times = append(times, r.at.Overhead)
		if k := (r.key()); k == x.chosen || k == x.winner {
			slow = max(slow, r.at.Overhead)
		}
	}
	if x.q.budget > 0 {
		low, high = min(low, x.net()), max(high, x.net())
	}
	slices.Sort(times)
	limit := max(slow, 2*times[len(times)*3/4], 0.05)
	for _, t := range times {
		if t <= limit {
			slow = max(slow, t)
		}
	}
	pad := max((high-low)/20, 1)
	return max(low-pad, 0), high + pad, max(slow*1.15, 0.01)
}

// spotAt returns the manager that is drawn nearest to a cell of the charts.
func (v *charts) spotAt(x, y int) (rowKey, bool) {
	for _, d := range []int{0, 1, 2} {
		for i := len(v.spots) - 1; i >= 0; i-- {
			if p := v.spots[i]; max(p.x-x, x-p.x) <= d && max(p.y-y, y-p.y) <= d/2 {
				return p.of, true
			}
		}
	}
	u := &v.usage
	if !u.area.Contains(x, y) || u.span <= 0 {
		return rowKey{}, false
	}
	f := chart.Frame{Area: u.area, High: u.high}
	want, best, found := f.Bytes(y-u.area.Y), int64(-1), rowKey{}
	for i, sh := range u.shapes {
		from, to := sampleAt(sh, u.span, x-u.area.X, u.area.W)
		if from >= to {
			continue
		}
		d := slices.Max(sh.usage[from:to]) - want
		if d = max(d, -d); best < 0 || d <= best {
			best, found = d, u.curves[i]
		}
	}
	return found, best >= 0
}
