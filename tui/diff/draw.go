package diff

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/curves"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// Draw implements leaf.View.
func (v *view) Draw(s *leaf.State, c *canvas.Canvas) {
	p := v.pair(s)
	if p.a == nil || p.b == nil {
		leaf.Empty(s, c, "One recording is open",
			"Two recordings are compared here: their peaks, categories and call sites.", "gmemtop replay A B")
		return
	}
	x := v.known(s)
	if x == nil {
		if err := v.diff.Err(); err != nil && !v.diff.Pending() {
			leaf.Empty(s, c, "The two cannot be compared", err.Error(), "")
			return
		}
		leaf.Working(s, c, "comparing the two peaks")
		return
	}
	body := c.Bounds()
	_, body = body.CutTop(leaf.Sentence(s, c, answer(s, x)))
	body = body.Inset(1, 0)
	var part canvas.Rect
	if body.H >= 12 {
		part, body = body.CutTop(max(body.H/3, 5))
		v.drawCurves(s, c, part)
	}
	switch {
	case body.H >= 14:
		part, body = body.CutTop(max(len(x.Categories), len(x.Metrics)) + 2)
		v.drawFigures(s, c, part, x)
	case body.H >= 6:
		part, body = body.CutTop(1)
		v.drawCategoryLine(s, c.Sub(part), x)
	}
	v.drawSites(s, c, body, x)
}

func (v *view) drawCurves(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	key, sh, ok := v.shapes.Value()
	if !ok || key.pair != v.of {
		leaf.Working(s, c.Sub(at), "drawing both on one axis")
		return
	}
	a, b := names(s, v.of, curves.LegendRoom(at.W, 2))
	plot := curves.Plot{Span: sh.span, Origin: sh.origin, Events: sh.events, Curves: []curves.Curve{
		{Name: b, High: sh.b, Style: s.Theme.Accent, Mark: '*'},
		{Name: a, High: sh.a, Style: s.Theme.Warn, Mark: 'o'},
	}}
	if key.atPeak {
		plot.Zero = "peaks"
	}
	plot.Draw(s, c, at)
}

// drawFigures draws categories with their deltas as bars around a middle, and beside them the metrics that a
// CI gate can check.
func (v *view) drawFigures(s *leaf.State, c *canvas.Canvas, at canvas.Rect, x *runs.Diff) {
	left, right := at, canvas.Rect{}
	if at.W >= 96 && len(x.Metrics) > 0 {
		left, right = at.CutLeft(at.W - min(at.W/2, 64))
		right.X, right.W = right.X+2, right.W-2
	}
	v.drawCategories(s, c, left, x)
	if right.W > 0 {
		v.drawMetrics(s, c, right, x)
	}
}

func (v *view) drawCategories(s *leaf.State, c *canvas.Canvas, at canvas.Rect, x *runs.Diff) {
	leaf.Rule(s, c, at.X, at.Y, at.W, "at the peaks")
	most, largest := int64(1), int64(1)
	for _, r := range x.Categories {
		most = max(most, abs(r.B-r.A))
		largest = max(largest, r.A, r.B)
	}
	unit, f := s.Units.Column(largest)
	nameWidth := 18
	bars := at.W - nameWidth - 32
	for i, r := range x.Categories {
		y := at.Y + 1 + i
		if y >= at.Y+at.H {
			return
		}
		cat, _ := timeline.ParseCategory(r.Name)
		c.Text(at.X, y, s.Theme.Category(cat), s.Theme.Glyph(cat))
		name := r.Name
		if r.Inferred {
			name = "~" + name
		}
		c.TextMax(at.X+2, y, nameWidth-2, s.Theme.Text, name)
		c.TextRight(at.X+nameWidth+7, y, s.Theme.Dim, strings.TrimSpace(f(r.A)))
		c.Text(at.X+nameWidth+8, y, s.Theme.Faint, "→")
		c.TextRight(at.X+nameWidth+17, y, s.Theme.Text, strings.TrimSpace(f(r.B)))
		if i == 0 {
			c.Text(at.X+nameWidth+18, y, s.Theme.Dim, unit)
		}
		c.TextRight(at.X+nameWidth+31, y, v.deltaStyle(s, r.B-r.A), delta(s, r.B-r.A))
		if bars >= 8 {
			v.deltaBar(s, c, at.X+nameWidth+33, y, bars-2, r.B-r.A, most)
		}
	}
}

// deltaBar draws a bar to the right of its middle for more, to the left for less.
func (v *view) deltaBar(s *leaf.State, c *canvas.Canvas, x, y, w int, d, most int64) {
	half := w / 2
	c.Text(x+half, y, s.Theme.Faint, "│")
	n := int(float64(abs(d))/float64(most)*float64(half) + 0.5)
	if d != 0 {
		n = max(n, 1)
	}
	for i := range n {
		at := x + half + 1 + i
		if d < 0 {
			at = x + half - 1 - i
		}
		ch := '█'
		if d < 0 {
			ch = '▓'
		}
		c.Set(at, y, ch, c.Style(v.deltaStyle(s, d)))
	}
}

func (v *view) deltaStyle(s *leaf.State, d int64) canvas.Style {
	switch {
	case d > 0:
		return s.Theme.Bad
	case d < 0:
		return s.Theme.Good
	}
	return s.Theme.Dim
}

func delta(s *leaf.State, d int64) string {
	if d == 0 {
		return "="
	}
	return s.Units.Delta(d)
}

func abs(n int64) int64 { return max(n, -n) }

func (v *view) drawMetrics(s *leaf.State, c *canvas.Canvas, at canvas.Rect, x *runs.Diff) {
	leaf.Rule(s, c, at.X, at.Y, at.W, "whole recordings")
	for i, m := range x.Metrics {
		y := at.Y + 1 + i
		if y >= at.Y+at.H {
			return
		}
		c.TextMax(at.X, y, 16, s.Theme.Text, runs.MetricWords(m.Name))
		c.TextRight(at.X+27, y, s.Theme.Dim, figure(s, m.Unit, m.A))
		c.Text(at.X+28, y, s.Theme.Faint, "→")
		c.TextRight(at.X+40, y, s.Theme.Text, figure(s, m.Unit, m.B))
		c.TextRight(at.X+50, y, v.deltaStyle(s, m.B-m.A), change(m.A, m.B))
	}
}

func figure(s *leaf.State, unit string, n int64) string {
	switch {
	case n < 0:
		return "–"
	case unit == "bytes":
		return s.Units.Bytes(n)
	case unit == "ns":
		return timeline.Duration(n)
	}
	return leaf.Count(n)
}

// change is the growth from a to b in per cent.
func change(a, b int64) string {
	switch {
	case a < 0 || b < 0:
		return ""
	case a == b:
		return "="
	case a == 0:
		return "new"
	}
	p := 100 * (float64(b)/float64(a) - 1)
	if p >= 1000 {
		return fmt.Sprintf("×%.0f", float64(b)/float64(a))
	}
	return fmt.Sprintf("%+.1f %%", p)
}

// drawCategoryLine draws the categories' deltas in one row, for when there is no room for more.
func (v *view) drawCategoryLine(s *leaf.State, c *canvas.Canvas, x *runs.Diff) {
	at := 0
	for _, r := range x.Categories {
		cat, _ := timeline.ParseCategory(r.Name)
		text := delta(s, r.B-r.A)
		if at+len(r.Name)+len(text)+5 > c.Width() {
			return
		}
		at += c.Text(at, 0, s.Theme.Category(cat), s.Theme.Glyph(cat)) + 1
		at += c.Text(at, 0, s.Theme.Dim, r.Name) + 1
		at += c.Text(at, 0, v.deltaStyle(s, r.B-r.A), text) + 2
	}
}

func (v *view) drawSites(s *leaf.State, c *canvas.Canvas, at canvas.Rect, x *runs.Diff) {
	if len(x.Sites) == 0 {
		c.TextMax(at.X, at.Y, at.W, s.Theme.Dim, "Both peaks are empty.")
		return
	}
	largest := int64(1)
	for _, r := range x.Sites {
		largest = max(largest, r.A, r.B)
	}
	unit, f := s.Units.Column(largest)
	v.sites.Columns[1].Unit, v.sites.Columns[2].Unit = unit, unit
	v.sites.Draw(c, at, s.Theme, func(row, col int) table.Cell {
		r, th := &x.Sites[row], s.Theme
		switch col {
		case 0:
			if r.A == r.B {
				return table.Cell{Text: "=", Style: th.Faint}
			}
			return table.Cell{Text: s.Units.Delta(r.B - r.A), Style: v.deltaStyle(s, r.B-r.A)}
		case 1:
			return table.Cell{Text: strings.TrimSpace(f(r.A)), Style: th.Dim}
		case 2:
			return table.Cell{Text: strings.TrimSpace(f(r.B))}
		case 3:
			return table.Cell{Text: strconv.Itoa(r.BlocksA) + " → " + strconv.Itoa(r.BlocksB), Style: th.Dim}
		case 4:
			return table.Cell{Text: r.Cause}
		}
		if r.Name == "" {
			return table.Cell{Text: "recorded without a stack", Style: th.Dim}
		}
		d, id := v.side(s, r)
		return table.Cell{Text: r.Name, Style: leaf.Linked(s, d, id, canvas.Style{})}
	})
}
