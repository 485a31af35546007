package chart

import (
	"sort"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Stretch is a stretch of a step, the events [First, End), in the lane below a chart.
type Stretch struct {
	First, End timeline.Moment
	// Names are its names, longest first: the first that fits is drawn.
	Names []string
	Line  rune
	// Stands highlights its name.
	Stands bool
}

// parts draws the parts of steps as a lane of one row. If several fall into one column, the last is drawn: it
// costs O(columns log parts).
func (f *Frame) parts(s *leaf.State, c *canvas.Canvas, y int) {
	last := timeline.Moment(f.Device.Len() - 1)
	column := func(m timeline.Moment) int {
		return f.Column(leaf.Position(f.Device, f.Window.Axis, min(max(m, 0), last)))
	}
	drawn := -1 // the part drawn last: it may end within the column that comes next
	for x := 0; x < f.Area.W; {
		from := leaf.MomentAt(f.Device, f.Window.Axis, f.Position(x+1)-1) // the last moment of the column
		i := sort.Search(len(f.Parts), func(i int) bool { return f.Parts[i].First > from }) - 1
		if i < 0 || f.Parts[i].End <= leaf.MomentAt(f.Device, f.Window.Axis, f.Position(x)) {
			i++
		}
		if i = max(i, drawn+1); i == len(f.Parts) {
			return
		}
		p := &f.Parts[i]
		x0 := max(column(p.First), x)
		x1 := max(column(p.End), x0+1)
		if p.End > last {
			x1 = column(last) + 1
		}
		x1 = min(x1, f.Area.W)
		if x0 >= f.Area.W {
			return
		}
		f.part(s, c, p, x0, x1, y)
		x, drawn = x1, i
	}
}

// part draws a stretch of the lane in the columns [x0, x1).
func (f *Frame) part(s *leaf.State, c *canvas.Canvas, p *Stretch, x0, x1, y int) {
	id, st := c.Style(s.Theme.Faint), s.Theme.Dim
	if p.Stands {
		st = s.Theme.Accent
	}
	for x := x0; x < x1; x++ {
		c.Set(f.Area.X+x, y, p.Line, id)
	}
	c.Set(f.Area.X+x0, y, '│', id)
	for _, text := range p.Names {
		if w := canvas.Width(text); w+3 <= x1-x0 {
			c.Text(f.Area.X+x0+(x1-x0-w-1)/2, y, st, " "+text+" ")
			return
		}
	}
}
