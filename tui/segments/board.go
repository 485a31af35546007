package segments

import (
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/canvas"
)

// board is the atlas laid out in lines of the screen, some of which are visible.
type board struct {
	atlas
	scale  bool // one scale for all rows instead of each filling its line
	chosen bool // scale was chosen, by the number of rows at first and by the user since
	zoom   int  // halvings (or, negative, doublings) of the scale that shows the largest row in half a screen

	lines  lines
	flowed flowKey
	top    int         // first visible line
	area   canvas.Rect // the lines, in cells of the view
	bars   canvas.Rect // the part of them that shows bytes

	only    kind // brought out by a click on the legend; kindUnmapped for none
	palette palette
}

func (b *board) reorder(o order) {
	b.order = o
	addr, hole := b.piece(b.selected).Addr, uint64(0)
	if b.hole != nowhere {
		hole = b.piece(b.hole).Addr
	}
	sortRows(b.rows, o)
	b.selected = b.locate(addr)
	if b.hole != nowhere {
		b.hole = b.locate(hole)
	}
	b.flowed = flowKey{}
	b.top = 0
	b.reflow()
	b.reveal()
}

func (b *board) rescale(by int) {
	b.zoom = min(max(b.zoom+by, -maxZoom), maxZoom)
	b.reflow()
	b.reveal()
}

// reflow assigns lines to rows again if anything that they depend on has changed.
func (b *board) reflow() {
	want := flowKey{b.st, b.order, b.scale, b.zoom, b.bars.W, b.area.H, true}
	if b.st == nil || b.flowed == want {
		return
	}
	b.flowed = want
	bytes := int64(0)
	if b.scale {
		bytes = b.lineBytes()
	}
	b.lines = flow(b.rows, bytes)
	b.scrollTo(b.top)
}

// lineBytes returns how much a line shows on one scale for all: at first the largest row takes half a screen,
// rounded to a power of two so that lines begin at round addresses.
func (b *board) lineBytes() int64 {
	largest := int64(1)
	for i := range b.rows {
		largest = max(largest, b.rows[i].span())
	}
	want := largest / int64(max(b.area.H/2, 1))
	bytes := int64(1)
	for bytes < want {
		bytes <<= 1
	}
	for range max(b.zoom, 0) {
		bytes >>= 1
	}
	for range max(-b.zoom, 0) {
		bytes <<= 1
	}
	least := int64(512 * max(b.bars.W, 1)) // a block is never smaller than a cell
	return max(bytes, min(least, largest), 1)
}

func (b *board) scrollTo(top int) { b.top = max(min(top, b.lines.len()-b.area.H), 0) }

// reveal scrolls the selected piece into view.
func (b *board) reveal() {
	if b.selected == nowhere || b.area.H == 0 {
		return
	}
	b.reflow()
	line := b.lines.lineOf(b.rows, int(b.selected.row), b.piece(b.selected).Addr)
	switch {
	case line < b.top:
		b.scrollTo(line)
	case line >= b.top+b.area.H:
		b.scrollTo(line - b.area.H + 1)
	}
}

func (b *board) wheel(m tea.Mouse) tea.Cmd {
	if !b.area.Contains(m.X, m.Y) {
		return nil
	}
	up := m.Button == tea.MouseWheelUp
	switch {
	case m.Button != tea.MouseWheelUp && m.Button != tea.MouseWheelDown:
	case m.Mod.Contains(tea.ModCtrl) && b.scale && up:
		b.rescale(1)
	case m.Mod.Contains(tea.ModCtrl) && b.scale:
		b.rescale(-1)
	case up:
		b.scrollTo(b.top - 3)
	default:
		b.scrollTo(b.top + 3)
	}
	return nil
}

func (b *board) dragTo(y int) {
	if b.area.H > 1 {
		pos := min(max(y-b.area.Y, 0), b.area.H-1)
		b.scrollTo(int(int64(pos) * int64(b.lines.len()-b.area.H) / int64(b.area.H-1)))
	}
}
