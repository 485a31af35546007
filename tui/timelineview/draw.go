package timelineview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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

// place puts the panel of the selected block beside the chart if both fit, else below it, else nowhere.
func place(w, h int) places {
	var p places
	top := 2
	if h < 12 {
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
	drawSentence(s, c.Sub(canvas.Rect{X: 1, W: w - 2, H: p.labels}), sentence(s, v.cursorColumn(s)))
	v.frame = v.fit(s)
	f := &v.frame
	f.YAxis(s, c)
	v.drawBands(s, c, f)
	f.Landmarks(s, c, p.labels, p.phases)
	if v.bands.Pending() && inView(s) && v.cursorColumn(s) == nil {
		leaf.Working(s, c.Sub(f.Area), "stacking the blocks")
	}
	if err := v.bands.Err(); err != nil {
		c.TextMax(f.Area.X, f.Area.Y, f.Area.W, s.Theme.Bad, err.Error())
	}
	if p.panel.H > 0 {
		v.drawPanel(s, c, p)
	}
}

// drawSentence writes the sentence in the rows above the labels.
func drawSentence(s *leaf.State, c *canvas.Canvas, text string) {
	w, h := c.Size()
	lines := leaf.Wrap(text, w)
	if len(lines) > h {
		lines = append(lines[:max(h-1, 0)], strings.Join(lines[max(h-1, 0):], " "))
	}
	for y, line := range lines {
		c.TextMax(0, y, w, s.Theme.Strong, line)
	}
}

// sentence says how many blocks the bands at the cursor hold, how much, and which is the largest.
func sentence(s *leaf.State, bands []timeline.Band) string {
	where := "at the cursor"
	if s.Cursor == s.Device.Totals.PeakAt {
		where = leaf.AtPeak(s.Device)
	}
	held, other := s.Device.Allocated.At(s.Cursor), s.Device.Totals.Unattributed
	if held-other <= 0 { // the bands of the cursor's column are of later events
		bands = nil
	}
	var count int64
	var largest timeline.Band
	for _, b := range bands {
		if b.Alloc == timeline.NoAlloc {
			continue
		}
		count += int64(b.Count)
		if largest.Count == 0 || s.Device.Allocs.Rounded[b.Alloc] > s.Device.Allocs.Rounded[largest.Alloc] {
			largest = b
		}
	}
	if largest.Count == 0 {
		if held <= 0 {
			return "Nothing is allocated " + where + "."
		}
		if !inView(s) {
			if s.Cursor == s.Device.Totals.PeakAt {
				return fmt.Sprintf("%s are allocated %s, which is not in view: p goes there.",
					s.Units.Bytes(held), where)
			}
			where += ", which is not in view"
		}
		return fmt.Sprintf("%s are allocated %s.", s.Units.Bytes(held), where)
	}
	a := largest.Alloc
	who := leaf.Count(count) + " blocks hold"
	if count == 1 {
		who = "one block holds"
	}
	text := fmt.Sprintf("%s %s %s", who, s.Units.Bytes(held-other), where)
	if other > 0 {
		text += fmt.Sprintf(", and %s are %s", s.Units.Bytes(other), unattributed)
	}
	text += "; the largest is " + s.Units.Bytes(s.Device.Allocs.Rounded[a])
	if kind := s.Device.Allocs.Category[a]; kind != timeline.Unknown {
		text += " of " + kind.String()
	}
	if what := leaf.What(s.Device, a); what != "" {
		text += ", from " + what
	}
	return text + "."
}

// drawBands draws every column's bands. Neighbours of one category differ in shade; the selected block is
// highlighted wherever it is alive.
func (v *View) drawBands(s *leaf.State, c *canvas.Canvas, f *chart.Frame) {
	var fills [timeline.NumCategories][4]canvas.Fill
	for cat := range fills {
		for shade := range fills[cat] {
			fills[cat][shade] = s.Theme.Shade(timeline.Category(cat), shade)
		}
	}
	chosen, quiet := s.Theme.Chosen(), s.Theme.Quiet()
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
			switch {
			case b.Alloc == timeline.NoAlloc && v.only.IsKnown():
				fill = quiet
			case b.Alloc != timeline.NoAlloc:
				fill = fills[al.Category[b.Alloc]][int(b.Alloc)&3]
				if b.Count > 1 {
					fill = fills[al.Category[b.Alloc]][2]
					fill.Pattern = '░'
				}
				if !v.brings(al.Category[b.Alloc]) {
					fill = quiet
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
		c.Fill(canvas.Rect{X: p.panel.X - 2, Y: p.panel.Y, W: 1, H: p.panel.H}, '│', s.Theme.Faint)
	}
	if s.Selected == timeline.NoAlloc {
		v.drawLegend(s, c.Sub(p.panel))
		return
	}
	if p.panel.X == 1 { // below the chart; beside it, the line separates them
		leaf.Rule(s, c, 1, p.panel.Y, p.panel.W, "selected")
		_, p.panel = p.panel.CutTop(1)
	}
	block.Draw(s, c.Sub(p.panel), s.Selected)
}

// drawLegend lists the largest blocks at the cursor while none is selected, and below them the key to the
// colours.
func (v *View) drawLegend(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	legend := legendRows(s, w, drawn(v, s))
	help := []string{"wheel zooms time, ctrl+wheel bytes,", "drag pans; ░ can be many small blocks",
		"click a category to bring it out"}
	rows := h - len(legend)
	if h >= 10 {
		rows--
	}
	if w < 60 && rows > 16 {
		rows -= len(help) + 1
	} else {
		help = nil
	}
	y := v.drawLargest(s, c.Sub(canvas.Rect{W: w, H: max(rows, 0)}))
	if y < rows || h >= 10 {
		y++
	}
	for _, cats := range legend {
		x := 0
		for _, cat := range cats {
			from, name := x, s.Theme.Dim
			switch {
			case !v.only.IsKnown():
			case v.brings(cat):
				name = s.Theme.Strong
			default:
				name = s.Theme.Faint
			}
			x += c.Text(x, y, s.Theme.Category(cat), s.Theme.Glyph(cat)) + 1
			x += c.Text(x, y, name, cat.String())
			c.Zone(canvas.Rect{X: from, Y: y, W: x - from, H: 1}, legendMsg{cat})
			x += 2
		}
		y++
	}
	for i, line := range help {
		c.TextMax(0, y+1+i, w, s.Theme.Faint, line)
	}
}

// drawn are the categories of the bands in the picture; all of them while those are not known.
func drawn(v *View, s *leaf.State) (shown [timeline.NumCategories]bool) {
	k, columns, ok := v.bands.Value()
	for _, bands := range columns {
		for _, b := range bands {
			if b.Alloc != timeline.NoAlloc && ok && k.device == s.Device {
				shown[s.Device.Allocs.Category[b.Alloc]] = true
			}
		}
	}
	if shown == [timeline.NumCategories]bool{} {
		for cat := range shown {
			shown[cat] = true
		}
	}
	return shown
}

// legendRows wraps the names of the categories that are drawn into rows of w cells.
func legendRows(s *leaf.State, w int, drawn [timeline.NumCategories]bool) [][]timeline.Category {
	var rows [][]timeline.Category
	x := w
	for i := range timeline.NumCategories {
		cat := (i + 1) % timeline.NumCategories // unknown comes last
		if !drawn[cat] {
			continue
		}
		need := canvas.Width(s.Theme.Glyph(cat)) + 1 + len(cat.String()) + 2
		if x+need > w+2 {
			rows, x = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], cat)
		x += need
	}
	return rows
}

// unattributed labels bytes that only the source's own total includes.
const unattributed = "not in the recording"

// drawLargest lists the largest blocks at the cursor, each selectable, and returns the rows used.
func (v *View) drawLargest(s *leaf.State, c *canvas.Canvas) int {
	w, h := c.Size()
	title := "Largest here: ↑↓ or a click selects"
	if only, ok := v.only.Value(); ok {
		title = "Largest of " + timeline.Category(only).String() + " here"
	}
	if h < 1 || !inView(s) {
		return 0
	}
	leaf.Rule(s, c, 0, 0, w, title)
	if h < 2 {
		return 1
	}
	d := s.Device
	size := func(b timeline.Band) int64 {
		if b.Alloc == timeline.NoAlloc {
			return b.Top - b.Bottom
		}
		return d.Allocs.Rounded[b.Alloc]
	}
	bands := slices.Clone(v.cursorColumn(s))
	bands = slices.DeleteFunc(bands, func(b timeline.Band) bool {
		return v.only.IsKnown() && (b.Alloc == timeline.NoAlloc || !v.brings(d.Allocs.Category[b.Alloc]))
	})
	slices.SortStableFunc(bands, func(a, b timeline.Band) int { return cmp.Compare(size(b), size(a)) })
	bands = bands[:min(len(bands), h-1)]
	right := 9 // the end of the sizes
	for _, b := range bands {
		right = max(right, canvas.Width(s.Units.Bytes(size(b))))
	}
	y := 1
	for _, b := range bands {
		c.TextRight(right, y, s.Theme.Text, s.Units.Bytes(size(b)))
		if b.Alloc == timeline.NoAlloc {
			c.Text(right+2, y, s.Theme.Dim, "░")
			c.TextMax(right+4, y, w-right-4, s.Theme.Dim, unattributed)
			y++
			continue
		}
		cat := d.Allocs.Category[b.Alloc]
		c.Text(right+2, y, s.Theme.Category(cat), s.Theme.Glyph(cat))
		what := leaf.What(d, b.Alloc)
		if what == "" {
			what = d.BlockName(b.Alloc)
		}
		c.TextMax(right+4, y, w-right-4, leaf.Linked(s, d, d.Origin(b.Alloc), s.Theme.Dim), what)
		c.Zone(canvas.Rect{Y: y, W: w, H: 1}, leaf.SelectMsg{Alloc: b.Alloc})
		y++
	}
	return y
}
