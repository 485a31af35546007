package canvas

// Areas and bars: eighth blocks split a cell into eight rows of one colour over another, since a cell of an
// area has one boundary. They fall back to plain characters where the terminal has only ASCII, and to one
// glyph a series where it has no colours. Lines are made of braille dots (package curves).

import "image/color"

// Fill is how an area looks: its colour; in cells entirely inside the area, also a quiet pattern in Shade, so
// that two areas can be told apart without seeing colours; and the glyph that replaces both if there are no
// colours.
type Fill struct {
	Color   color.Color
	Shade   color.Color
	Pattern rune // drawn in Shade over Color; ' ' or 0 for none
	Mono    rune // used without colours; must be ASCII or a block element
	ASCII   rune // used without colours where only ASCII may be written
}

// Slab is a piece of a stacked column: it reaches from the Slab below it up to Top, in eighths of a cell from
// the column's foot.
type Slab struct {
	Top  int
	Fill Fill
}

var eighths = []rune(" ▁▂▃▄▅▆▇█")

// Eighth returns the lower block of n eighths, n from 0 to 8.
func Eighth(n int) rune { return eighths[min(max(n, 0), 8)] }

// Column draws a stacked column one cell wide and h cells high with its top at (x, y). Slabs are ordered
// upwards. A cell with more than two slabs shows the two that cover most of it.
func (c *Canvas) Column(x, y, h int, slabs []Slab, back color.Color) {
	i := 0
	for row := range h {
		low, high := row*8, row*8+8
		for i < len(slabs) && slabs[i].Top <= low {
			i++
		}
		if i == len(slabs) {
			return
		}
		columnCell(c, x, y+h-1-row, low, high, slabs[i:], back)
	}
}

// columnCell draws the cell that covers eighths [low, high); slabs[0] is the first that reaches above low.
func columnCell(c *Canvas, x, y, low, high int, slabs []Slab, back color.Color) {
	var best, second Slab // by coverage, kept in stacking order below
	bestCover, secondCover, bestAt, secondAt := 0, 0, 0, 0
	from := low
	for i := range slabs {
		to := min(slabs[i].Top, high)
		if cover := to - from; cover > bestCover {
			second, secondCover, secondAt = best, bestCover, bestAt
			best, bestCover, bestAt = slabs[i], cover, i
		} else if cover > secondCover {
			second, secondCover, secondAt = slabs[i], cover, i
		}
		from = max(from, to)
		if from >= high {
			break
		}
	}
	if empty := high - from; empty > 0 && empty > secondCover {
		second, secondCover, secondAt = Slab{Fill: Fill{Color: back, Mono: ' ', ASCII: ' '}}, empty,
			len(slabs)
	}
	if bestCover == 0 {
		return
	}
	if c.grid.ascii || c.grid.profile == NoColor {
		monoCell(c, x, y, best.Fill, bestCover, secondAt == len(slabs) && secondCover > 0)
		return
	}
	if secondCover == 0 || bestCover == high-low {
		st := Style{BG: best.Fill.Color}
		p := best.Fill.Pattern
		if p == 0 {
			p = ' '
		}
		if p != ' ' { // a blank has no foreground: naming one costs bytes where a cursor passes
			st.FG = best.Fill.Shade
		}
		c.Set(x, y, p, c.Style(st))
		return
	}
	lower, upper, n := best, second, bestCover*8/(bestCover+secondCover)
	if secondAt < bestAt {
		lower, upper, n = second, best, secondCover*8/(bestCover+secondCover)
	}
	c.Set(x, y, Eighth(min(max(n, 1), 7)), c.Style(Style{FG: lower.Fill.Color, BG: upper.Fill.Color}))
}

// monoCell draws a cell of an area by its glyph; at the area's upper edge by a block as high as the area
// where there are blocks.
func monoCell(c *Canvas, x, y int, f Fill, cover int, edge bool) {
	switch {
	case c.grid.ascii && (cover >= 4 || !edge):
		c.Set(x, y, f.ASCII, 0)
	case c.grid.ascii:
		c.Set(x, y, '.', 0)
	case edge && cover < 4:
		c.Set(x, y, Eighth(cover), 0)
	default:
		c.Set(x, y, f.Mono, 0)
	}
}

// Bar draws a horizontal bar of at most w cells, in eighths of a cell, on the background that is there, and
// returns the cells used; what is larger than zero shows.
func (c *Canvas) Bar(x, y, w int, part, whole int64, f Fill) int {
	if whole <= 0 || part <= 0 || w <= 0 {
		return 0
	}
	n := int(float64(min(part, whole)) / float64(whole) * float64(w*8))
	n = max(n, 1)
	if c.grid.ascii || c.grid.profile == NoColor {
		glyph := f.Mono
		if c.grid.ascii {
			glyph = f.ASCII
		}
		cells, id := max((n+4)/8, 1), c.At(x, y).Style
		for i := range cells {
			c.Set(x+i, y, glyph, id)
		}
		return cells
	}
	id := c.Style(Style{FG: f.Color, BG: c.StyleOf(c.At(x, y).Style).BG})
	for i := range n / 8 {
		c.Set(x+i, y, '█', id)
	}
	if rest := n % 8; rest > 0 {
		c.Set(x+n/8, y, []rune(" ▏▎▍▌▋▊▉")[rest], id)
		return n/8 + 1
	}
	return n / 8
}
