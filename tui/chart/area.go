package chart

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Usage is the curve of allocated bytes stacked by category, with the line of reserved bytes over it. The
// curve itself comes immediately from the series' level of detail. Its parts by category take longer: until
// they arrive, the parts of the previous window are shown, scaled to the true height.
type Usage struct {
	parts leaf.Query[usageKey, [][timeline.NumCategories]int64]
	alloc []timeline.Column
	resv  []timeline.Column
	drawn usageKey
	slabs []canvas.Slab
}

type usageKey struct {
	device *timeline.Device
	window timeline.Window
	n      int
}

type categoryFills [timeline.NumCategories]canvas.Fill

// Ask asks for the parts by category of the window in view at n columns.
func (u *Usage) Ask(s *leaf.State, n int) tea.Cmd {
	if s.Device == nil || n <= 0 {
		return nil
	}
	d, w := s.Device, s.Window
	return u.parts.Ask(usageKey{d, w, n}, func(ctx context.Context) ([][timeline.NumCategories]int64, error) {
		return timeline.CategoryColumns(ctx, d, w, n)
	})
}

// Take takes an answer of Ask's, and reports whether msg was one.
func (u *Usage) Take(msg tea.Msg) bool { return u.parts.Take(msg) }

// Columns returns the columns of allocated and reserved bytes of the window in view.
func (u *Usage) Columns(s *leaf.State, n int) (allocated, reserved []timeline.Column) {
	key := usageKey{s.Device, s.Window, n}
	if key != u.drawn || len(u.alloc) != n {
		u.alloc = s.Device.Columns(s.Device.Allocated, s.Window, n, u.alloc[:0])
		u.resv = s.Device.Columns(s.Device.Reserved, s.Window, n, u.resv[:0])
		u.drawn = key
	}
	return u.alloc, u.resv
}

// Shown returns the most that each category holds in a column of the window that is drawn.
func (u *Usage) Shown(s *leaf.State) (shown [timeline.NumCategories]int64) {
	key, parts, ok := u.parts.Value()
	if !ok || key.device != s.Device {
		return shown
	}
	for i := range parts {
		for cat, bytes := range parts[i] {
			shown[cat] = max(shown[cat], bytes)
		}
	}
	return shown
}

// High returns the highest value of the window in view, reserved bytes included.
func (u *Usage) High(s *leaf.State, n int) int64 {
	high := int64(1)
	alloc, resv := u.Columns(s, n)
	for i := range alloc {
		high = max(high, alloc[i].Max)
	}
	for i := range resv {
		high = max(high, resv[i].Max)
	}
	return high
}

// Draw draws the areas and the line of reserved bytes.
func (u *Usage) Draw(s *leaf.State, c *canvas.Canvas, f *Frame) {
	alloc, resv := u.Columns(s, f.Area.W)
	key, parts, known := u.parts.Value()
	var fills categoryFills
	for i := range fills {
		fills[i] = s.Theme.Fill(timeline.Category(i))
	}
	for x := range alloc {
		total := alloc[x].Max
		if total <= 0 {
			continue
		}
		var part *[timeline.NumCategories]int64
		if known && key.device == s.Device && len(parts) > 0 {
			part = partAt(f, key, parts, x)
		}
		c.Column(f.Area.X+x, f.Area.Y, f.Area.H, u.stack(f, fills, s, part, total), nil)
	}
	u.drawReserved(s, c, f, resv)
}

// partAt returns the parts of an answer at column x, nil if the answer does not cover it.
func partAt(f *Frame, key usageKey, parts [][timeline.NumCategories]int64,
	x int) *[timeline.NumCategories]int64 {
	if key.window == f.Window && key.n == f.Area.W && x < len(parts) {
		return &parts[x]
	}
	if key.window.Axis != f.Window.Axis {
		return nil
	}
	i := int(float64(f.Position(x)-key.window.From) / float64(leaf.Span(key.window)) * float64(len(parts)))
	if i < 0 || i >= len(parts) {
		return nil
	}
	return &parts[i]
}

// stack returns the slabs of one column. Parts that belong to another total (an older answer) are scaled to
// this one.
func (u *Usage) stack(f *Frame, fills categoryFills, s *leaf.State, part *[timeline.NumCategories]int64,
	total int64) []canvas.Slab {
	u.slabs = u.slabs[:0]
	sum := int64(0)
	if part != nil {
		for _, b := range part {
			sum += b
		}
	}
	if sum <= 0 {
		return append(u.slabs, canvas.Slab{Top: f.Eighths(total), Fill: s.Theme.Other()})
	}
	scale := float64(total) / float64(sum)
	below := int64(0)
	for _, cat := range timeline.StackOrder {
		if part[cat] <= 0 {
			continue
		}
		below += part[cat]
		u.slabs = append(u.slabs, canvas.Slab{Top: f.Eighths(int64(float64(below) * scale)),
			Fill: fills[cat]})
	}
	return u.slabs
}

// drawReserved draws reserved bytes as a line through the cells that no area fills.
func (u *Usage) drawReserved(s *leaf.State, c *canvas.Canvas, f *Frame, resv []timeline.Column) {
	id := c.Style(s.Theme.Dim)
	for x := range resv {
		if resv[x].Max <= 0 {
			continue
		}
		y := f.Row(resv[x].Max)
		cell := c.At(f.Area.X+x, f.Area.Y+y)
		if !empty(c, cell) {
			continue
		}
		r := []rune("▁─▔")[(f.Eighths(resv[x].Max)-1)%8/3]
		if c.ASCII() {
			r = '-'
		}
		c.Set(f.Area.X+x, f.Area.Y+y, r, id)
	}
}
