package managers

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/tui/canvas"
)

// The bound in the trade-off.
//
// A plan within a budget takes at least the step time that was proven for it, and so does a plan that takes
// less memory. So the bounds of the budgets that were planned for make stairs: no plan lies below them.

// bound is the least overhead that was proven for plans of at most net bytes.
type bound struct {
	net      int64
	overhead float64
}

// bounds returns what was proven for a setup, the largest budget first.
func (p *planning) bounds(st *setup) []bound {
	if !st.p.HasTimes {
		return nil
	}
	var list []bound
	for q, a := range p.answers {
		if q.setup != st || q.budget <= 0 {
			continue
		}
		best := bound{net: q.net(), overhead: -1}
		for _, results := range a.by {
			for i := range results {
				if overhead, _, ok := results[i].Bound(); ok {
					best.overhead = max(best.overhead, overhead)
				}
			}
		}
		if best.overhead >= 0 {
			list = append(list, best)
		}
	}
	slices.SortFunc(list, func(a, b bound) int { return cmp.Compare(b.net, a.net) })
	return list
}

// boundOf returns what was proven for a row's plan, ok is false if nothing was, or not for this budget.
func boundOf(q question, r *row) (overhead, gap float64, ok bool) {
	if !r.planned() || !q.setup.p.HasTimes {
		return 0, 0, false
	}
	return r.result.Bound()
}

// boundRune draws the bound.
const boundRune = '╌'

// drawBounds draws the stairs, as far as they lie in the area, and reports whether there is any to see.
func (x *picture) drawBounds(c *canvas.Canvas, area canvas.Rect, px func(int64) int, py func(float64) int,
	low int64, slow float64) bool {
	id, drawn := c.Style(x.Theme.Good), false
	for _, b := range x.bounds { // the smaller budgets' bounds are higher, and come later
		if b.net < low || b.overhead > slow {
			continue
		}
		for col := area.X; col <= px(b.net); col++ {
			for y := area.Y + area.H - 1; y > py(b.overhead); y-- { // a lower step is no longer the bound
				if c.At(col, y).Rune == boundRune {
					c.Set(col, y, ' ', c.Style(x.Theme.Text))
				}
			}
			c.Set(col, py(b.overhead), boundRune, id)
			drawn = true
		}
	}
	return drawn
}

// drawLegend says at the right of the title what the stairs are.
func (x *picture) drawLegend(c *canvas.Canvas, at canvas.Rect) {
	text := string(boundRune) + " bound: no plan lies below"
	if at.W < canvas.Width("step time over memory  "+text) {
		text = string(boundRune) + " bound"
	}
	if at.W >= canvas.Width("step time over memory  "+text) {
		c.TextRight(at.X+at.W, at.Y, x.Theme.Good, text)
	}
}
