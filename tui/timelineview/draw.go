package timelineview

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/block"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/chart"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// places is where the parts of the timeline lie.
type places struct {
	labels, phases, axis int
	area                 canvas.Rect
	panel                canvas.Rect
}

// place puts the panel of the selected block beside the chart where there is room for both, else below it, else nowhere.
func place(w, h int) places {
	var p places
	top := 2
	if h < 14 {
		top = 1
	}
	right, below := 0, 0
	switch {
	case w >= 160:
		right = 56
	case w >= 110:
		right = 42
	case h >= 18:
		below = min(h/3, 8)
	}
	p.labels = top
	p.area = canvas.Rect{X: 7, Y: top + 1, W: max(w-8-right, 1), H: max(h-top-3-below, 3)}
	p.phases = p.area.Y + p.area.H
	p.axis = p.phases + 1
	switch {
	case right > 0:
		p.panel = canvas.Rect{X: w - right + 2, Y: top, W: right - 3, H: h - top}
	case below > 0:
		p.panel = canvas.Rect{X: 1, Y: p.axis + 1, W: w - 2, H: max(h-p.axis-1, 0)}
	}
	return p
}

// Draw implements leaf.View.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	p := place(w, h)
	c.TextMax(1, 0, w-2, s.Theme.Strong, v.sentence(s))
	v.frame = v.fit(s)
	f := &v.frame
	f.YAxis(s, c)
	v.drawBands(s, c, f)
	f.Iterations(s, c, p.labels)
	if f.Phases(s, c, p.phases) {
		f.XAxis(s, c, p.axis)
	} else {
		f.XAxis(s, c, p.phases)
	}
	f.Cursor(s, c, s.Cursor, s.Theme.Cursor)
	if s.HasMark {
		f.Cursor(s, c, s.Mark, s.Theme.Warn)
		f.Pin(c, p.labels, s.Mark, s.Theme.Warn, "mark")
	}
	f.Pin(c, p.labels, s.Device.Totals.PeakAt, s.Theme.Strong, "peak "+s.Units.Bytes(s.Device.Totals.PeakAllocated))
	if v.bands.Pending() && v.cursorColumn(s) == nil {
		leaf.Working(s, c.Sub(f.Area), "stacking the blocks")
	}
	if err := v.bands.Err(); err != nil {
		c.TextMax(f.Area.X, f.Area.Y, f.Area.W, s.Theme.Bad, err.Error())
	}
	if p.panel.H > 0 {
		v.drawPanel(s, c, p)
	}
}

// sentence says how many blocks hold how much at the cursor, and which is the largest.
func (v *View) sentence(s *leaf.State) string {
	bands := v.cursorColumn(s)
	where := "at the cursor"
	if s.Cursor == s.Device.Totals.PeakAt {
		where = "at the peak"
	}
	held := s.Units.Bytes(s.Device.Allocated.At(s.Cursor))
	var count int64
	var largest timeline.Band
	for _, b := range bands {
		count += int64(b.Count)
		if b.Alloc != timeline.NoAlloc && (largest.Count == 0 || s.Device.Allocs.Size[b.Alloc] > s.Device.Allocs.Size[largest.Alloc]) {
			largest = b
		}
	}
	if largest.Count == 0 {
		return fmt.Sprintf("%s are allocated %s.", held, where)
	}
	a := largest.Alloc
	text := fmt.Sprintf("%s blocks hold %s %s; the largest is %s of %s", leaf.Count(count), held, where,
		s.Units.Bytes(s.Device.Allocs.Size[a]), s.Device.Allocs.Category[a])
	if site := s.Device.Site(s.Device.Allocs.Stack[a]); site != "" {
		text += ", from " + site
	}
	return text + "."
}

// drawBands draws every column's bands. Neighbours of one category differ in shade; the selected block stands out wherever it is alive.
func (v *View) drawBands(s *leaf.State, c *canvas.Canvas, f *chart.Frame) {
	var fills [timeline.NumCategories][4]canvas.Fill
	for cat := range fills {
		for shade := range fills[cat] {
			fills[cat][shade] = s.Theme.Shade(timeline.Category(cat), shade)
		}
	}
	chosen := s.Theme.Chosen()
	al := &s.Device.Allocs
	for x := range f.Area.W {
		v.slabs = v.slabs[:0]
		for _, b := range v.column(s, x) {
			if b.Top <= f.Low {
				continue
			}
			if b.Bottom >= f.High {
				break
			}
			fill := s.Theme.Other()
			if b.Alloc != timeline.NoAlloc {
				fill = fills[al.Category[b.Alloc]][int(b.Alloc)&3]
				if b.Count > 1 {
					fill = fills[al.Category[b.Alloc]][2]
					fill.Pattern = '░'
				}
				switch {
				case b.Alloc != s.Selected:
				case b.Count == 1:
					fill = chosen
				case v.merged.Count > 0:
					fill = fills[al.Category[b.Alloc]][3]
					fill.Shade, fill.Pattern = chosen.Color, '░'
				}
			}
			v.slabs = append(v.slabs, canvas.Slab{Top: f.Eighths(b.Top), Fill: fill})
		}
		c.Column(f.Area.X+x, f.Area.Y, f.Area.H, v.slabs, nil)
	}
}

func (v *View) drawPanel(s *leaf.State, c *canvas.Canvas, p places) {
	if p.panel.X > 1 {
		c.VLine(p.panel.X-2, p.panel.Y, p.panel.H, s.Theme.Faint)
	} else {
		c.HLine(1, p.panel.Y, p.panel.W, s.Theme.Faint)
		p.panel.Y++
		p.panel.H--
	}
	panel := c.Sub(p.panel)
	if s.Selected != timeline.NoAlloc {
		block.Draw(s, panel, s.Selected)
		return
	}
	v.drawLegend(s, panel)
}

// drawLegend says what the colours mean and how to get at a block while none is selected.
func (v *View) drawLegend(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	c.TextMax(0, 0, w, s.Theme.Dim, "↑↓ or a click selects a block")
	if h < 6 {
		x := 0
		for cat := timeline.Parameter; cat < timeline.NumCategories; cat++ {
			x += c.Text(x, 2, s.Theme.Category(cat), s.Theme.Glyph(cat)) + 1
			x += c.Text(x, 2, s.Theme.Dim, cat.String()) + 2
		}
		return
	}
	y := 2
	for cat := timeline.Category(1); cat <= timeline.NumCategories; cat++ {
		k := cat % timeline.NumCategories
		c.Text(0, y, s.Theme.Category(k), s.Theme.Glyph(k))
		c.Text(2, y, s.Theme.Text, k.String())
		y++
	}
	c.Text(0, y+1, s.Theme.Dim, "░ many small blocks: enter opens them")
	c.Text(0, y+3, s.Theme.Dim, "wheel zooms time, ctrl+wheel bytes,")
	c.Text(0, y+4, s.Theme.Dim, "drag pans")
}
