package planview

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// legendOrder is the order in which categories are named if not all fit: first what managers move.
var legendOrder = []timeline.Category{timeline.Activation, timeline.Parameter, timeline.OptimizerState,
	timeline.Gradient, timeline.Cache, timeline.Temporary, timeline.Input,
	timeline.AutogradDetail, timeline.Unknown}

// drawLegend names the categories shown, in the room left by the key to the compute lane, which is explained
// nowhere else.
func (v painter) drawLegend(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	again, waits := false, false
	for _, sc := range v.scenes() {
		waits = waits || len(sc.stalls) > 0
		again = again || slices.ContainsFunc(sc.gone, func(a plan.Absence) bool {
			return a.How == plan.Recompute
		})
	}
	type mark struct {
		glyph string
		style canvas.Style
		text  string
	}
	var marks []mark
	if again {
		marks = append(marks, mark{"╱", s.Theme.Warn, "runs again"})
	}
	if waits {
		marks = append(marks, mark{"▒", s.Theme.Bad, "waits"})
	}
	const lane = "compute: "
	need := 0
	for _, m := range marks {
		need += canvas.Width(m.text) + 4
	}
	if need += len(lane); len(marks) == 0 || need > at.W {
		marks, need = nil, 0
	}
	x := v.drawCategories(s, c, canvas.Rect{X: at.X, Y: at.Y, W: at.W - need})
	if len(marks) > 0 {
		x += c.Text(x, at.Y, s.Theme.Dim, lane)
	}
	for _, m := range marks {
		c.Text(x, at.Y, m.style, m.glyph)
		c.Text(x+2, at.Y, s.Theme.Dim, m.text)
		x += canvas.Width(m.text) + 4
	}
}

// drawCategories names the categories that are there, and returns where the names end.
func (v painter) drawCategories(s *leaf.State, c *canvas.Canvas, at canvas.Rect) int {
	var there [timeline.NumCategories]bool
	for i := range v.p.Buffers {
		there[v.p.Buffers[i].Category] = v.p.Buffers[i].Size > 0 || there[v.p.Buffers[i].Category]
		if i > 4096 { // a legend needs no census
			break
		}
	}
	x := at.X
	for _, cat := range legendOrder {
		w := canvas.Width(cat.String()) + 4
		if !there[cat] || x+w > at.X+at.W {
			continue
		}
		c.Text(x, at.Y, s.Theme.Category(cat), s.Theme.Glyph(cat))
		c.Text(x+2, at.Y, s.Theme.Dim, cat.String())
		x += w
	}
	return x
}
