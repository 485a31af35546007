// Package curves draws several curves over one another on one pair of axes: steps of a training, two runs.
//
// A curve has Samples values, each the maximum of an equal stretch of the x axis. A narrower plot draws the
// maxima of its values, so that a peak one microsecond wide is visible at any width and resizing the terminal
// needs no new samples. It is drawn in braille dots as a line whose steps are joined; many similar curves are
// drawn as one band between their least and greatest values. Without colours each curve has its own
// character.
package curves

import (
	"math"
	"strconv"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/chart"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// None is the value of a curve where it does not exist.
const None = int64(-1)

// Samples is the number of values of a curve: half cells of the widest terminal that is likely.
const Samples = 512

// Curve is a line or, if Low is set, the band between Low and High.
type Curve struct {
	Name string
	High []int64 // Samples values
	Low  []int64 // nil for a line
	// Style is its colour and Mark its character without colours.
	Style canvas.Style
	Mark  rune
}

// Plot is a set of curves on one pair of axes. Later curves lie over earlier ones.
type Plot struct {
	Curves []Curve
	High   int64 // upper end of the y axis
	// Span is the length of the x axis, in nanoseconds, or in events if Events is set. Origin is the position
	// of its zero.
	Span, Origin int64
	// Zero is written at the origin instead of 0, "" for none.
	Zero   string
	Events bool
	// Share labels the x axis in shares of each curve's own length.
	Share bool
}

// axisWidth is the room for the labels of the y axis.
const axisWidth = 7

// top returns the greatest value of all curves.
func (p *Plot) top() int64 {
	top := int64(0)
	for _, c := range p.Curves {
		for _, v := range c.High {
			top = max(top, v)
		}
	}
	return top
}

// Draw draws the plot into the part at of c: a row for the unit and the legend, the curves, a row for the x
// axis. It returns where the curves lie.
func (p *Plot) Draw(s *leaf.State, c *canvas.Canvas, at canvas.Rect) canvas.Rect {
	if at.H < 3 || at.W < axisWidth+8 {
		return canvas.Rect{}
	}
	area := canvas.Rect{X: at.X + axisWidth, Y: at.Y + 1, W: at.W - axisWidth - 1, H: at.H - 2}
	high := p.High
	if high <= 0 {
		high = max(p.top()+p.top()/20, 1)
	}
	p = p.fitted(2 * area.W)
	f := chart.Frame{Area: area, High: high}
	f.YAxis(s, c)
	if s.Theme.Mono {
		p.drawMarks(c, area, high)
	} else {
		p.drawDots(c, area, high)
	}
	p.drawX(s, c, area)
	p.drawLegend(s, c, canvas.Rect{X: area.X, Y: at.Y, W: area.W, H: 1})
	return area
}

// fitted returns the plot with curves of n values.
func (p *Plot) fitted(n int) *Plot {
	q := *p
	q.Curves = make([]Curve, len(p.Curves))
	for i, c := range p.Curves {
		c.High = resample(c.High, n, func(a, b int64) bool { return a > b })
		if c.Low != nil {
			c.Low = resample(c.Low, n, func(a, b int64) bool { return a < b })
		}
		q.Curves[i] = c
	}
	return &q
}

// resample spreads values over n, or takes the best of those that coincide.
func resample(values []int64, n int, better func(a, b int64) bool) []int64 {
	out := make([]int64, n)
	for i := range out {
		from := i * len(values) / n
		to := max((i+1)*len(values)/n, from+1)
		best := None
		for _, v := range values[from:min(to, len(values))] {
			if v != None && (best == None || better(v, best)) {
				best = v
			}
		}
		out[i] = best
	}
	return out
}

func (p *Plot) drawDots(c *canvas.Canvas, area canvas.Rect, high int64) {
	styles := make([]canvas.Style, len(p.Curves))
	lines := newDots(area.W, area.H)
	last := area.H*4 - 1
	y := func(v int64) int {
		return last - int(float64(min(max(v, 0), high))/float64(high)*float64(last)+0.5)
	}
	for i, curve := range p.Curves {
		styles[i] = curve.Style
		before := None
		for x, v := range curve.High {
			if v == None || x >= 2*area.W {
				before = None
				continue
			}
			low := v
			if curve.Low != nil {
				low = curve.Low[x]
			} else if before != None { // join the step
				low = before
			}
			lines.vline(x, y(v), y(low), uint8(i))
			before = v
		}
	}
	lines.draw(c, area.X, area.Y, styles)
}

func (p *Plot) drawMarks(c *canvas.Canvas, area canvas.Rect, high int64) {
	row := func(v int64) int {
		return area.H - 1 - int(float64(min(max(v, 0), high))/float64(high)*float64(area.H-1)+0.5)
	}
	for _, curve := range p.Curves {
		for x := range area.W {
			high, low := None, None
			for k := 2 * x; k < min(2*x+2, len(curve.High)); k++ {
				v := curve.High[k]
				if v == None {
					continue
				}
				l := v
				if curve.Low != nil {
					l = curve.Low[k]
				}
				high = max(high, v)
				if low == None || l < low {
					low = l
				}
			}
			if high == None {
				continue
			}
			if curve.Low == nil {
				low = high
			}
			for y := row(high); y <= row(low); y++ {
				c.Set(area.X+x, area.Y+y, curve.Mark, c.Style(curve.Style))
			}
		}
	}
}

// drawX labels the x axis in about four round steps.
func (p *Plot) drawX(s *leaf.State, c *canvas.Canvas, area canvas.Rect) {
	y := area.Y + area.H
	if p.Span <= 0 {
		return
	}
	if p.Share {
		for i, text := range []string{"0 %", "25 %", "50 %", "75 %"} {
			c.Text(area.X+i*area.W/4, y, s.Theme.Dim, text)
		}
		c.TextRight(area.X+area.W, y, s.Theme.Dim, "100 %")
		return
	}
	step := roundStep(float64(p.Span) / float64(max(area.W/16, 1)))
	free := -1
	for v := -math.Floor(float64(p.Origin)/step) * step; v+float64(p.Origin) < float64(p.Span); v += step {
		x := int((v + float64(p.Origin)) / float64(p.Span) * float64(area.W))
		text := p.label(int64(v))
		if x <= free || x+canvas.Width(text) > area.W {
			continue
		}
		c.Text(area.X+x, y, s.Theme.Dim, text)
		free = x + canvas.Width(text) + 1
	}
}

func (p *Plot) label(v int64) string {
	switch {
	case v == 0 && p.Zero != "":
		return p.Zero
	case v == 0:
		return "0"
	case p.Events:
		return leaf.Count(v)
	case v < 0:
		return "−" + shortDuration(-v)
	}
	return shortDuration(v)
}

// shortDuration prints a round number of nanoseconds without trailing zeros.
func shortDuration(ns int64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{60e9, "min"}, {1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if float64(ns) >= u.size*0.999 {
			return strconv.FormatFloat(math.Round(float64(ns)/u.size*1000)/1000, 'g', 4, 64) + " " + u.name
		}
	}
	return strconv.FormatInt(ns, 10) + " ns"
}

// roundStep returns the smallest 1, 2 or 5 times a power of ten that is at least v.
func roundStep(v float64) float64 {
	if v <= 1 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= v {
			return m * p
		}
	}
	return 10 * p
}

// legendMark is how many cells an entry of the legend takes besides its name.
const legendMark = 6

// LegendRoom is how wide each of n names may be for all of them to fit in the legend of a plot w cells wide.
func LegendRoom(w, n int) int { return (w-axisWidth-1)/n - legendMark }

func (p *Plot) drawLegend(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	x := at.X
	for i := len(p.Curves) - 1; i >= 0; i-- {
		curve := p.Curves[i]
		n := canvas.Width(curve.Name) + legendMark - 1
		if curve.Name == "" || x+n > at.X+at.W {
			continue
		}
		mark := "━━"
		if curve.Low != nil {
			mark = "▒▒"
		}
		if s.Theme.Mono {
			mark = string([]rune{curve.Mark, curve.Mark})
		}
		c.Text(x, at.Y, curve.Style, mark)
		c.Text(x+3, at.Y, s.Theme.Dim, curve.Name)
		x += n + 1
	}
}

// Sample returns a curve whose n values from first on are the maxima of a series in equal stretches of the
// window; it does not exist before and after.
func Sample(d *timeline.Device, series *timeline.Series, w timeline.Window, first, n int) []int64 {
	out := make([]int64, Samples)
	for i := range out {
		out[i] = None
	}
	first = min(max(first, 0), Samples-1)
	cols := d.Columns(series, w, min(max(n, 1), Samples-first), nil)
	for i := range cols {
		out[first+i] = cols[i].Max
	}
	return out
}
