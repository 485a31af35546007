package curves

import "github.com/gmemtop/gmemtop/tui/canvas"

// dots is a grid of braille dots, two by four a cell: the finest grain that a line can have in a terminal.
type dots struct {
	w, h  int // cells
	bits  []uint8
	owner []uint8 // series that set a dot of the cell most recently
}

// newDots returns an empty grid of dots for w by h cells.
func newDots(w, h int) *dots {
	w, h = max(w, 0), max(h, 0)
	return &dots{w: w, h: h, bits: make([]uint8, w*h), owner: make([]uint8, w*h)}
}

var dotBit = [4][2]uint8{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

// set sets the dot (x, y), counted from the upper left, for a series.
func (d *dots) set(x, y int, series uint8) {
	if x < 0 || y < 0 || x >= d.w*2 || y >= d.h*4 {
		return
	}
	i := y/4*d.w + x/2
	d.bits[i] |= dotBit[y%4][x%2]
	d.owner[i] = series
}

// vline sets the dots of column x between two rows, both included.
func (d *dots) vline(x, y0, y1 int, series uint8) {
	if y0 > y1 {
		y0, y1 = y1, y0
	}
	for y := y0; y <= y1; y++ {
		d.set(x, y, series)
	}
}

// draw writes the cells that have dots, each in the style of the series that owns it. Cells without dots keep
// what they hold.
func (d *dots) draw(c *canvas.Canvas, x, y int, styles []canvas.Style) {
	for row := range d.h {
		for col := range d.w {
			bits := d.bits[row*d.w+col]
			if bits == 0 {
				continue
			}
			var st canvas.Style
			if o := int(d.owner[row*d.w+col]); o < len(styles) {
				st = styles[o]
			}
			c.Set(x+col, y+row, 0x2800+rune(bits), c.Style(st))
		}
	}
}
