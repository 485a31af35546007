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

// spot is a manager's letter in the trade-off.
type spot struct {
	x, y int
	of   rowKey
}

// usageArea is where the curves were drawn, so that a click finds the nearest.
type usageArea struct {
	area   canvas.Rect
	high   int64
	span   int64
	curves []rowKey
	shapes []*shape
}

// plotter is the View as what draws the charts.
type plotter struct{ *View }

// leastChart is the height below which no chart is drawn.
const leastChart = 5

// drawCharts draws memory over time beside the trade-off, or the one that was chosen where there is room for
// one.
func (v plotter) drawCharts(s *leaf.State, c *canvas.Canvas, at canvas.Rect, st *setup) {
	v.oneChart = false
	switch wide := at.W >= 100 && st.canMove() && st.p.HasTimes; {
	case at.H < leastChart || at.W < 30:
		return
	case wide:
		left, right := at.CutLeft(at.W * 3 / 5)
		v.drawUsage(s, c, left, st)
		_, right = right.CutLeft(3)
		v.drawTradeOff(s, c, right, st)
		return
	case v.pareto && st.p.HasTimes:
		v.drawTradeOff(s, c, at, st)
	default:
		v.drawUsage(s, c, at, st)
	}
	v.oneChart = st.p.HasTimes
}

// drawn are the rows that have something to draw, the selected one last: it lies over the others.
func (v plotter) drawn() []*row {
	var list []*row
	for i := range v.ranking.rows {
		r := &v.ranking.rows[i]
		if r.result != nil && r.result.Available && r.result.shape != nil && (v.managers[r.manager].on || v.ranking.chosen == r.key()) {
			list = append(list, r)
		}
	}
	rank := func(r *row) int {
		switch k := (r.key()); {
		case k == v.ranking.chosen:
			return 3
		case k == v.ranking.winner:
			return 2
		case r.manager == v.managers.baseline():
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b *row) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

// drawUsage draws the memory that the managers hold over the same iteration: the selected one and the fastest
// in their tones, the others quietly behind them, the budget as a line, and below what the selected one
// copies.
func (v plotter) drawUsage(s *leaf.State, c *canvas.Canvas, at canvas.Rect, st *setup) {
	list := v.drawn()
	if len(list) == 0 {
		v.drawNoCharts(s, c, at)
		return
	}
	top := list[len(list)-1]
	sh := top.result.shape
	lanes := 0 // there where any of the plans copies, so that the axes stay where they are when another is selected
	if at.H >= 9 && slices.ContainsFunc(list, func(r *row) bool { return r.result.shape.out != nil || r.result.shape.in != nil }) {
		lanes = 2
	}
	var lanesAt canvas.Rect
	at, lanesAt = at.CutBottom(lanes)
	net := int64(0)
	if v.budget.bytes > 0 {
		net = max(v.budget.bytes-st.p.Outside, 0)
	}
	plot := curves.Plot{High: net, Events: sh.ops}
	shortest := list[0].result.shape.span
	for _, r := range list {
		shortest = min(shortest, r.result.shape.span)
	}
	for _, r := range list { // an iteration that takes twice as long must not squeeze the others, unless it is looked at; nor does the axis move with the selection
		x := r.result.shape
		plot.High = max(plot.High, slices.Max(x.usage))
		if k := (r.key()); x.span <= shortest+shortest/4 || k == v.ranking.chosen || k == v.ranking.winner || r.manager == v.managers.baseline() {
			plot.Span = max(plot.Span, x.span)
		}
	}
	plot.High += plot.High / 16
	for _, r := range list {
		m := &v.managers[r.manager]
		k := r.key()
		curve := curves.Curve{High: stretch(r.result.shape, plot.Span), Mark: m.letter, Style: s.Theme.Faint}
		switch {
		case r.stale:
		case k == v.ranking.chosen, k == v.ranking.winner, r.manager == v.managers.baseline():
			curve.Style, curve.Name = s.Theme.Series(m.series), v.managers.label(k)
		}
		if k == v.ranking.chosen {
			curve.Name = v.managers.label(k)
		}
		plot.Curves = append(plot.Curves, curve)
	}
	area := plot.Draw(s, c, at)
	if area.W == 0 {
		return
	}
	v.usageAt = usageArea{area: area, high: plot.High, span: plot.Span}
	for _, r := range list {
		v.usageAt.curves, v.usageAt.shapes = append(v.usageAt.curves, r.key()), append(v.usageAt.shapes, r.result.shape)
	}
	if net > 0 {
		v.drawBudgetLine(s, c, chart.Frame{Area: area, High: plot.High}, net)
	}
	v.drawLanes(s, c, lanesAt, area, sh, plot.Span)
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

// sampleAt returns the samples of a shape that lie in the i-th of n stretches of an axis.
func sampleAt(sh *shape, span int64, i, n int) (from, to int) {
	f := float64(span) / float64(sh.span) * curves.Samples / float64(n)
	from = int(float64(i) * f)
	to = min(max(int(float64(i+1)*f), from+1), curves.Samples)
	return min(from, to), to
}

// drawBudgetLine draws the budget through the cells that no curve takes.
func (v plotter) drawBudgetLine(s *leaf.State, c *canvas.Canvas, f chart.Frame, net int64) {
	y := f.Area.Y + f.Row(net)
	id := c.Style(s.Theme.Accent)
	for x := f.Area.X; x < f.Area.X+f.Area.W; x++ {
		if r := c.At(x, y).Rune; r == ' ' || r == '·' {
			c.Set(x, y, '╌', id)
		}
	}
	label := " budget "
	for x := f.Area.X + f.Area.W - len(label) - 1; x >= f.Area.X; x-- { // where it hides no curve
		free := true
		for k := range len(label) {
			free = free && c.At(x+k, y).Rune == '╌' || c.ASCII() && free && c.At(x+k, y).Rune == '-'
		}
		if free {
			c.Text(x, y, s.Theme.Accent, label)
			return
		}
	}
}

// drawLanes draws how busy the copy engines are under the selected plan.
func (v plotter) drawLanes(s *leaf.State, c *canvas.Canvas, at, area canvas.Rect, sh *shape, span int64) {
	if at.H < 2 {
		return
	}
	for i, lane := range []struct {
		name  string
		share []uint8
		style canvas.Style
	}{{"out", sh.out, s.Theme.Warn}, {"in", sh.in, s.Theme.Good}} {
		y := at.Y + i
		c.TextRight(area.X-1, y, s.Theme.Dim, lane.name)
		if lane.share == nil {
			continue
		}
		id := c.Style(lane.style)
		for x := range area.W {
			var busy uint8
			from, to := sampleAt(sh, span, x, area.W)
			for k := from; k < to; k++ {
				busy = max(busy, lane.share[k])
			}
			if busy > 0 {
				c.Set(area.X+x, y, canvas.Eighth(max(int(busy)*8/255, 1)), id)
			}
		}
	}
}

func (v plotter) drawNoCharts(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	text := "memory over time appears with the first plan"
	if v.planning.run == nil {
		text = ""
	}
	c.TextCenter(at.X, at.Y+at.H/2, at.W, s.Theme.Faint, text)
}

// drawTradeOff draws memory against step time: a letter a manager, and for the selected one a dot for every
// budget that was asked for.
func (v plotter) drawTradeOff(s *leaf.State, c *canvas.Canvas, at canvas.Rect, st *setup) {
	list := v.drawn()
	if len(list) == 0 {
		if at.W == c.Width()-2 {
			v.drawNoCharts(s, c, at)
		}
		return
	}
	axis := 8
	area := canvas.Rect{X: at.X + axis, Y: at.Y + 1, W: at.W - axis - 1, H: at.H - 2}
	if area.W < 12 || area.H < 3 {
		return
	}
	low, high, slow := v.rangeOf(list, st)
	base := float64(v.baseline(list))
	px := func(bytes int64) int {
		return area.X + min(max(int(float64(bytes-low)/float64(max(high-low, 1))*float64(area.W-1)+0.5), 0), area.W-1)
	}
	py := func(overhead float64) int {
		return area.Y + area.H - 1 - min(max(int(overhead/slow*float64(area.H-1)+0.5), 0), area.H-1)
	}
	c.TextMax(at.X, at.Y, at.W, s.Theme.Dim, "step time over memory")
	c.VLine(area.X-1, area.Y, area.H, s.Theme.Faint)
	c.HLine(area.X-1, area.Y+area.H, area.W+1, s.Theme.Faint)
	c.Set(area.X-1, area.Y+area.H, '└', c.Style(s.Theme.Faint))
	c.TextRight(area.X-2, area.Y, s.Theme.Dim, replay.Percent(slow))
	c.TextRight(area.X-2, area.Y+area.H-1, s.Theme.Dim, "0 %")
	left, right := s.Units.Bytes(low), s.Units.Bytes(high)
	c.Text(area.X, area.Y+area.H, s.Theme.Dim, left+" ")
	c.TextRight(area.X+area.W, area.Y+area.H, s.Theme.Dim, " "+right)
	if v.budget.bytes > 0 {
		x := px(max(v.budget.bytes-st.p.Outside, 0))
		id := c.Style(s.Theme.Accent)
		for y := range area.H {
			c.Set(x, area.Y+y, '┆', id)
		}
	}
	for _, r := range list {
		if k := (r.key()); k == v.ranking.chosen && base > 0 {
			for _, p := range v.planning.trails[trailKey{st, v.managers[k.manager].Info.Name, k.executor}] {
				c.Set(px(p.footprint), py(float64(p.step)/base-1), '·', c.Style(s.Theme.Series(v.managers[k.manager].series)))
			}
		}
	}
	for _, r := range list {
		v.drawSpot(s, c, area, r, px(r.result.Measurement.Footprint), py(r.result.Overhead), r.result.Overhead > slow)
	}
	v.nameSpot(s, c, area, func(k rowKey) string {
		if r := v.ranking.current(); r != nil && r.result != nil && r.result.Overhead > slow {
			return " " + replay.Percent(r.result.Overhead)
		}
		return ""
	})
}

// drawSpot writes a manager's letter; where another has the place, the next free cell beside it.
func (v plotter) drawSpot(s *leaf.State, c *canvas.Canvas, area canvas.Rect, r *row, x, y int, beyond bool) {
	m := &v.managers[r.manager]
	k := r.key()
	taken := func(x int) bool {
		return slices.ContainsFunc(v.spots, func(o spot) bool { return o.x == x && o.y == y })
	}
	for d := 0; taken(x) && d < 6; d++ {
		step := (d/2 + 1) * (1 - d%2*2)
		if nx := x + step; nx >= area.X && nx < area.X+area.W && !taken(nx) {
			x = nx
			break
		}
	}
	style := s.Theme.Series(m.series)
	switch {
	case r.stale || beyond:
		style = s.Theme.Faint
	case v.budget.bytes > 0 && !r.result.Fits:
		style = s.Theme.Dim
	}
	if k == v.ranking.chosen {
		style = s.Theme.OnSelected(s.Theme.Strong)
	}
	c.Set(x, y, m.letter, c.Style(style))
	if beyond && x+1 < area.X+area.W {
		c.Set(x+1, y, '↑', c.Style(s.Theme.Faint))
	}
	v.spots = append(v.spots, spot{x, y, k})
}

// nameSpot writes the name of the selected manager where it hides no letter.
func (v plotter) nameSpot(s *leaf.State, c *canvas.Canvas, area canvas.Rect, beyond func(k rowKey) string) {
	i := slices.IndexFunc(v.spots, func(p spot) bool { return p.of == v.ranking.chosen })
	if i < 0 {
		return
	}
	p := v.spots[i]
	name := v.managers.label(p.of) + beyond(p.of)
	w := canvas.Width(name)
	middle := min(max(p.x-w/2, area.X), area.X+area.W-w)
	for _, at := range [][2]int{{p.x + 2, p.y}, {p.x - 1 - w, p.y}, {middle, p.y - 1}, {middle, p.y + 1}, {middle, p.y - 2}} {
		x, y := at[0], at[1]
		if x < area.X || x+w > area.X+area.W || y < area.Y || y >= area.Y+area.H ||
			slices.ContainsFunc(v.spots, func(o spot) bool { return o.y == y && o.x >= x-1 && o.x <= x+w }) {
			continue
		}
		c.Text(x, y, s.Theme.Strong, name)
		return
	}
}

// rangeOf is what the axes of the trade-off show: all footprints, and overheads up to those that anybody
// would take; slower ones stand at the upper edge.
func (v plotter) rangeOf(list []*row, st *setup) (low, high int64, slow float64) {
	low, high = list[0].result.Measurement.Footprint, 0
	var times []float64
	for _, r := range list {
		m := &r.result.Measurement
		low, high = min(low, m.Footprint), max(high, m.Footprint)
		times = append(times, r.result.Overhead)
		if k := (r.key()); k == v.ranking.chosen || k == v.ranking.winner {
			slow = max(slow, r.result.Overhead)
		}
	}
	if v.budget.bytes > 0 {
		net := max(v.budget.bytes-st.p.Outside, 0)
		low, high = min(low, net), max(high, net)
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

// baseline is the step time that overheads are counted from.
func (v plotter) baseline(list []*row) int64 {
	for _, r := range list {
		if m := &r.result.Measurement; m.StepTime > 0 {
			return int64(float64(m.StepTime) / (1 + r.result.Overhead))
		}
	}
	return 0
}

// spotAt returns the manager that is drawn nearest to a cell of the charts.
func (v plotter) spotAt(x, y int) (rowKey, bool) {
	for _, d := range []int{0, 1, 2} {
		for i := len(v.spots) - 1; i >= 0; i-- {
			if p := v.spots[i]; max(p.x-x, x-p.x) <= d && max(p.y-y, y-p.y) <= d/2 {
				return p.of, true
			}
		}
	}
	u := &v.usageAt
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
