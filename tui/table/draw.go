package table

import (
	"strings"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// Draw draws the table into the part at of c. It calls cell only for cells on the screen.
func (t *Table) Draw(c *canvas.Canvas, at canvas.Rect, th *theme.Theme, cell func(row, column int) Cell) {
	t.at = at
	if at.W <= 0 || at.H <= 0 {
		return
	}
	t.scrollTo(t.top)
	w := at.W
	if t.scrolls() {
		w--
	}
	last := min(t.top+t.visible(), t.rows)
	t.fitted, t.cells = append(t.fitted[:0], t.Columns...), t.cells[:0]
	if at.H > 1 {
		for row := t.top; row < last; row++ {
			t.format(row, cell)
		}
	}
	t.cols = place(t.fitted, w, t.cols[:0])
	sub := c.Sub(at)
	t.header(sub, th)
	if at.H > 1 {
		for row := t.top; row < last; row++ {
			t.row(sub, row, row-t.top+1, w, th)
		}
	}
	if t.scrolls() {
		canvas.Scrollbar(sub, at.W-1, 1, t.visible(), t.top, t.rows, th.Dim, th.Faint)
	}
}

// format appends the cells of a row, and widens columns to its numbers, such as sizes in bytes: a number that
// is cut is another number.
func (t *Table) format(row int, cell func(row, column int) Cell) {
	first := len(t.cells)
	t.cells = append(t.cells, make([]Cell, len(t.fitted))...)
	spanned := false // by a cell of a column before, which may be one that is dropped
	for i, col := range t.fitted {
		if col.Hidden {
			continue
		}
		cl := cell(row, i)
		t.cells[first+i] = cl
		if spanned = spanned || cl.Span; !spanned && col.Right && strings.ContainsAny(cl.Text, "0123456789") {
			t.fitted[i].Width = max(col.Width, canvas.Width(cl.Text))
		}
	}
}

// header draws the heads. If the sort marker does not fit beside a head, it takes a cell of the gap after the
// column, so that sorting by another column moves nothing.
func (t *Table) header(c *canvas.Canvas, th *theme.Theme) {
	for _, p := range t.cols {
		col := t.Columns[p.column]
		style, title := th.Header, canvas.Truncate(col.head(), p.w)
		if p.column == t.SortBy {
			style = th.Accent
			mark := "▲"
			if t.Descending {
				mark = "▼"
			}
			title += mark
		}
		if col.Right {
			c.TextRight(p.x+max(p.w, canvas.Width(title)), 0, style, title)
		} else {
			c.Text(p.x, 0, style, title)
		}
	}
}

func (t *Table) row(c *canvas.Canvas, row, y, w int, th *theme.Theme) {
	cells := t.cells[(row-t.top)*len(t.fitted):]
	for _, p := range t.cols {
		cl := cells[p.column]
		if cl.Span {
			p.w = w - p.x
			drawCell(c, p, y, false, cl)
			break
		}
		drawCell(c, p, y, t.Columns[p.column].Right, cl)
	}
	if row != t.sel {
		return
	}
	over := th.OnSelected
	if t.Blurred {
		over = func(s canvas.Style) canvas.Style { s.Bold = true; return s }
	}
	c.Restyle(canvas.Rect{X: 0, Y: y, W: w, H: 1}, over)
}

func drawCell(c *canvas.Canvas, p placed, y int, right bool, cell Cell) {
	x, w := p.x, p.w
	if cell.Lead != "" {
		n := c.TextMax(x, y, w, cell.LeadStyle, cell.Lead) + 1
		x, w = x+n, w-n
	}
	text := cell.Text
	if text == "" {
		c.Bar(x, y, w, cell.Part, cell.Whole, cell.Fill)
		return
	}
	if cell.KeepEnd {
		text = canvas.TruncateLeft(text, w)
	} else {
		text = canvas.Truncate(text, w)
	}
	if right {
		c.TextRight(p.x+p.w, y, cell.Style, text)
	} else {
		c.Text(x, y, cell.Style, text)
	}
}

// place chooses the columns that fit into w cells and gives them their places.
func place(columns []Column, w int, dst []placed) []placed {
	limit, need := widthOf(columns, w)
	spare := w - need
	x := 0
	for i, col := range columns {
		if col.Hidden || col.Drop > limit {
			continue
		}
		dst = append(dst, placed{i, x, col.least()})
		x += col.least() + gap
	}
	// Leftover room goes in rounds to the columns that can still grow, so that two of them share it evenly.
	for spare > 0 {
		growing := 0
		for _, p := range dst {
			if p.w < columns[p.column].Max {
				growing++
			}
		}
		if growing == 0 {
			break
		}
		each := max(spare/growing, 1)
		for i := range dst {
			if more := min(columns[dst[i].column].Max-dst[i].w, each, spare); more > 0 {
				dst[i].w += more
				spare -= more
			}
		}
	}
	x = 0
	for i := range dst {
		dst[i].x = x
		dst[i].w = max(min(dst[i].w, w-x), 0)
		x += dst[i].w + gap
	}
	return dst
}

// widthOf returns the highest Drop that fits in w cells, and the width that the remaining columns need.
func widthOf(columns []Column, w int) (limit, need int) {
	for _, c := range columns {
		limit = max(limit, c.Drop)
	}
	for ; ; limit-- {
		need = -gap
		for _, c := range columns {
			if !c.Hidden && c.Drop <= limit {
				need += c.least() + gap
			}
		}
		if need <= w || limit <= 0 {
			return max(limit, 0), need
		}
	}
}
