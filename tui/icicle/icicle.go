// Package icicle draws a tree of bytes as rows of boxes, the root on top, each child as wide as its share of
// its parent: a flame graph of memory instead of time. Anything narrower than a cell is merged at its
// parent's right end.
package icicle

import (
	"hash/fnv"
	"image/color"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Chart is an icicle with its choice and zoom. The tree belongs to the caller and is not changed.
type Chart struct {
	root   *sites.Node
	path   []*sites.Node // from root to the node that fills the width
	chosen *sites.Node
	parent map[*sites.Node]*sites.Node // of the nodes drawn last
	child  map[*sites.Node]*sites.Node // first drawn child
}

// NodeMsg is a click on a node.
type NodeMsg struct{ Node *sites.Node }

// SetRoot shows another tree. Zoom and choice are kept if nodes with the same names exist.
func (ch *Chart) SetRoot(root *sites.Node) {
	if ch.root == root {
		return
	}
	names := make([]string, 0, len(ch.path))
	for _, n := range ch.path {
		names = append(names, n.Name)
	}
	ch.root, ch.chosen, ch.path = root, nil, nil
	if root == nil {
		return
	}
	ch.path = []*sites.Node{root}
	at := root
	for _, name := range names[min(1, len(names)):] {
		next := childNamed(at, name)
		if next == nil {
			break
		}
		ch.path = append(ch.path, next)
		at = next
	}
}

func childNamed(n *sites.Node, name string) *sites.Node {
	for _, c := range n.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Chosen returns the node that is chosen, nil for none.
func (ch *Chart) Chosen() *sites.Node { return ch.chosen }

// Choose chooses a node.
func (ch *Chart) Choose(n *sites.Node) { ch.chosen = n }

// Zoom makes the chosen node fill the width or, if it does already, its parent.
func (ch *Chart) Zoom() {
	if ch.chosen == nil || len(ch.path) == 0 {
		return
	}
	if ch.path[len(ch.path)-1] == ch.chosen {
		ch.Out()
		return
	}
	var way []*sites.Node
	for n := ch.chosen; n != nil && n != ch.path[len(ch.path)-1]; n = ch.parent[n] {
		way = append(way, n)
	}
	for i := len(way) - 1; i >= 0; i-- {
		ch.path = append(ch.path, way[i])
	}
}

// Out zooms out by one level and reports whether there was one.
func (ch *Chart) Out() bool {
	if len(ch.path) < 2 {
		return false
	}
	ch.path = ch.path[:len(ch.path)-1]
	return true
}

// Zoomed reports whether a part of the tree fills the width.
func (ch *Chart) Zoomed() bool { return len(ch.path) > 1 }

// Move chooses a neighbour of the chosen node: dy to parent (-1) or first child (1), dx to a sibling.
func (ch *Chart) Move(dx, dy int) {
	if ch.chosen == nil {
		if len(ch.path) > 0 {
			ch.chosen = ch.path[len(ch.path)-1]
		}
		return
	}
	switch {
	case dy < 0 && ch.parent[ch.chosen] != nil:
		ch.chosen = ch.parent[ch.chosen]
	case dy > 0 && ch.child[ch.chosen] != nil:
		ch.chosen = ch.child[ch.chosen]
	case dx != 0:
		p := ch.parent[ch.chosen]
		if p == nil {
			return
		}
		for i, c := range p.Children {
			if c == ch.chosen {
				if j := i + dx; j >= 0 && j < len(p.Children) && ch.parent[p.Children[j]] == p {
					ch.chosen = p.Children[j]
				}
				return
			}
		}
	}
}

// Draw draws the tree into c. Rows are depths; the ancestors of the zoomed node stand above it at full width.
func (ch *Chart) Draw(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	if ch.root == nil || w < 4 || h < 1 {
		return
	}
	ch.parent, ch.child = map[*sites.Node]*sites.Node{}, map[*sites.Node]*sites.Node{}
	for i := 1; i < len(ch.path); i++ {
		ch.parent[ch.path[i]], ch.child[ch.path[i-1]] = ch.path[i-1], ch.path[i]
	}
	skip := max(len(ch.path)-max(h/3, 1), 0)
	y := 0
	for _, n := range ch.path[skip : len(ch.path)-1] {
		ch.box(s, c, n, 0, y, w, true)
		y++
	}
	ch.draw(s, c, ch.path[len(ch.path)-1], 0, y, float64(w))
}

// draw draws a node's box and its children below it; x and w are in fractions of cells, so that rounding does
// not accumulate.
func (ch *Chart) draw(s *leaf.State, c *canvas.Canvas, n *sites.Node, x float64, y int, w float64) {
	x0, x1 := int(x+0.5), int(x+w+0.5)
	if y >= c.Height() || x1 <= x0 {
		return
	}
	ch.box(s, c, n, x0, y, x1-x0, false)
	if n.Bytes <= 0 {
		return
	}
	at := x
	for _, child := range n.Children {
		cw := w * float64(child.Bytes) / float64(n.Bytes)
		if cw < 0.5 {
			break // children are in descending order: all further ones are narrower still
		}
		ch.parent[child] = n
		if ch.child[n] == nil {
			ch.child[n] = child
		}
		ch.draw(s, c, child, at, y+1, cw)
		at += cw
	}
}

// box draws one node; a gap of its background at its right end separates it from its neighbour.
func (ch *Chart) box(s *leaf.State, c *canvas.Canvas, n *sites.Node, x, y, w int, above bool) {
	st := style(s, n)
	switch {
	case n == ch.chosen:
		st = canvas.Style{FG: ink(s.Theme.Chosen().Color), BG: s.Theme.Chosen().Color, Bold: true,
			Reverse: s.Theme.Mono}
	case above || n == ch.root:
		st = s.Theme.OnSelected(s.Theme.Text)
	}
	inner := w
	if w > 1 {
		inner--
	}
	c.Fill(canvas.Rect{X: x, Y: y, W: inner, H: 1}, ' ', st)
	name := n.Name
	if n == ch.root {
		name = "all"
	}
	if s.Theme.Mono && w > 1 {
		c.Text(x, y, st, "|")
	}
	if inner > 3 {
		used := c.TextMax(x+1, y, inner-1, st, name)
		if size := s.Units.Bytes(n.Bytes); used+canvas.Width(size)+4 <= inner {
			c.TextRight(x+inner-1, y, st, size)
		}
	}
	c.Zone(canvas.Rect{X: x, Y: y, W: w, H: 1}, NodeMsg{n})
}

// style colours a node by the category of its largest block, in a shade of its own name.
func style(s *leaf.State, n *sites.Node) canvas.Style {
	if s.Theme.Mono {
		return canvas.Style{}
	}
	cat := timeline.Unknown
	if n.Largest != timeline.NoAlloc && s.Device != nil {
		cat = s.Device.Allocs.Category[n.Largest]
	}
	h := fnv.New32a()
	h.Write([]byte(n.Name))
	fill := s.Theme.Shade(cat, int(h.Sum32()>>3))
	return canvas.Style{FG: ink(fill.Color), BG: fill.Color}
}

// ink returns black or white, whichever is more readable on c.
func ink(c color.Color) color.Color {
	if c == nil {
		return nil
	}
	r, g, b, _ := c.RGBA()
	if 299*r+587*g+114*b > 0x9000*1000 {
		return canvas.Tone{R: 0x0b, G: 0x0d, B: 0x11, Basic: 0}
	}
	return canvas.Tone{R: 0xff, G: 0xff, B: 0xff, Basic: 15}
}
