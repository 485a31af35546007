package overview

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/tui/block"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/icicle"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// instant reports whether a recording is of one moment.
func instant(d *timeline.Device) bool { return d.Len() < 2 }

// onlyMoment is what a recording of one moment shows in place of the chart over time: who called, the blocks
// by size, and what would help.
type onlyMoment struct {
	callers leaf.Query[at, *sites.Node]
	sizes   leaf.Query[at, []sites.Group]
	levers  leaf.Query[*timeline.Device, []autopsy.Lever]
	icicle  icicle.Chart
}

// ask asks for all of it.
func (o *onlyMoment) ask(k at, units timeline.Units) tea.Cmd {
	return tea.Batch(
		o.callers.Ask(k, func(context.Context) (*sites.Node, error) {
			return sites.Icicle(k.device, k.moment, sites.ByStack), nil
		}),
		o.sizes.Ask(k, func(context.Context) ([]sites.Group, error) {
			return held(sites.Breakdown(k.device, k.moment, sites.BySize)), nil
		}),
		o.levers.Ask(k.device, func(ctx context.Context) ([]autopsy.Lever, error) {
			a, err := autopsy.Of(ctx, k.device, units)
			if err != nil || a.OOM { // then only levers that were tried are worth showing
				return nil, err
			}
			return a.Levers, nil
		}),
	)
}

// take takes an answer, and reports whether it was one to a question of ask.
func (o *onlyMoment) take(msg tea.Msg) bool {
	if o.callers.Take(msg) {
		_, root, _ := o.callers.Value()
		o.icicle.SetRoot(root)
		return true
	}
	return o.sizes.Take(msg) || o.levers.Take(msg)
}

// drawMoment draws a recording of one moment: what is held by category and by call site, and below that one
// block and who allocated it. On a wide screen the calls that lead to all blocks stand beside it.
func (v *View) drawMoment(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	rows := min(v.tableRows(s, w), h)
	v.drawTables(s, c.Sub(canvas.Rect{W: w, H: rows}))
	key, groups, ok := v.holders.Value()
	if !ok || key.device != s.Device || len(groups) == 0 || groups[0].Largest == timeline.NoAlloc ||
		h-rows < 5 {
		return
	}
	_, below := c.Bounds().CutTop(rows + 1)
	calls, root, ok := v.only.callers.Value()
	if ok && calls.device == s.Device && w >= 110 && len(root.Children) > 0 {
		left := w * 3 / 5
		v.only.drawCalls(s, c.Sub(canvas.Rect{Y: below.Y, W: left - 2, H: below.H}), root)
		below = canvas.Rect{X: left + 1, Y: below.Y, W: w - left - 1, H: below.H}
		_, below = below.CutTop(v.only.drawLevers(s, c.Sub(below)))
	}
	id, title := groups[0].Largest, "The largest block of the largest holder"
	if s.Selected != timeline.NoAlloc {
		id, title = s.Selected, "Selected"
	}
	leaf.Rule(s, c, below.X, below.Y, below.W, title)
	_, below = below.CutTop(1)
	block.Draw(s, c.Sub(below), id)
}

// drawCalls draws the calls that lead to the blocks and, in the rows that these leave, the blocks by size.
func (o *onlyMoment) drawCalls(s *leaf.State, c *canvas.Canvas, root *sites.Node) {
	w, h := c.Size()
	leaf.Rule(s, c, 0, 0, w, "By caller: each box is as wide as what it holds")
	deep := min(depth(root), h-1)
	o.icicle.Draw(s, c.Sub(canvas.Rect{Y: 1, W: w, H: deep}))
	_, sizes, ok := o.sizes.Value()
	if rest := h - deep - 2; ok && rest >= 3 {
		drawSizes(s, c.Sub(canvas.Rect{Y: h - rest, W: w, H: rest}), sizes)
	}
}

// drawLevers names in the upper half of c what would bring the memory down, and returns how many rows that
// takes.
func (o *onlyMoment) drawLevers(s *leaf.State, c *canvas.Canvas) int {
	w, h := c.Size()
	d, levers, ok := o.levers.Value()
	most := min(len(levers), h/2-2)
	if !ok || d != s.Device || most < 1 {
		return 0
	}
	leaf.Rule(s, c, 0, 0, w, "What would help, 8 shows how")
	const sizeW = 9
	for i, l := range levers[:most] {
		text := "?"
		if saves, ok := l.Saves.Value(); ok {
			text = s.Units.Bytes(saves)
			if l.Exactness == timeline.Inferred {
				text = "~" + text
			}
		}
		c.TextRight(sizeW, 1+i, s.Theme.Good, text)
		c.TextMax(sizeW+2, 1+i, w-sizeW-2, s.Theme.Text, autopsy.LeverWords(l.Name, l.Parts))
	}
	c.Zone(canvas.Rect{W: w, H: 1 + most}, leaf.ShowMsg{View: leaf.OOM})
	return most + 2
}

// depth returns how many rows a tree takes.
func depth(n *sites.Node) int {
	deepest := 0
	for _, child := range n.Children {
		deepest = max(deepest, depth(child))
	}
	return deepest + 1
}

// drawSizes draws the blocks by size, those that hold most first.
func drawSizes(s *leaf.State, c *canvas.Canvas, groups []sites.Group) {
	w, h := c.Size()
	if len(groups) == 0 {
		return
	}
	unit, size := s.Units.Column(groups[0].Bytes)
	leaf.Rule(s, c, 0, 0, w, "Blocks by size, "+unit)
	total := max(s.Device.Allocated.At(s.Cursor), 1)
	sizeW := max(6, canvas.Width(size(groups[0].Bytes)))
	nameX, countX, barX := sizeW+2, sizeW+32, sizeW+35
	for i, g := range groups[:min(len(groups), h-1)] {
		y := 1 + i
		c.TextRight(sizeW, y, s.Theme.Text, size(g.Bytes))
		c.TextMax(nameX, y, countX-nameX-8, s.Theme.Text, g.Name)
		c.TextRight(countX, y, s.Theme.Dim, "×"+leaf.Count(int64(g.Blocks)))
		cat := timeline.Unknown
		if g.Largest != timeline.NoAlloc {
			cat = s.Device.Allocs.Category[g.Largest]
		}
		c.Bar(barX, y, w-barX-7, g.Bytes, total, s.Theme.Fill(cat))
		c.TextRight(w, y, s.Theme.Text, leaf.Percent(g.Bytes, total))
	}
}
