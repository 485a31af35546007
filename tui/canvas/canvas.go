// Package canvas is a grid of terminal cells that views draw into and that turns itself into one string of
// text and SGR sequences.
//
// Charts are drawn cell by cell: a frame of 200x60 made of Lip Gloss strings alone costs tens of
// milliseconds, a grid of cells with an index into a small table of styles under one. It clips by
// construction and knows where each clickable zone lies. Styles are interned per Canvas; a sequence is
// written only where the style changes, and a style's colours are reduced to the terminal's profile once,
// when it is interned. Print takes over what Lip Gloss lays out: text.
//
// A Canvas draws text as cells: control characters never reach the terminal (a hostile function name cannot
// move the cursor), wide runes take two cells, combining marks stay with their base. With ASCII set, every
// rune beyond ASCII is replaced as it is written, so that views need not care.
package canvas

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Cell is one cell. Width is 1, 2 for the first half of a wide rune and 0 for its second half.
type Cell struct {
	Rune  rune
	Style StyleID
	Width uint8
}

// Rect is a rectangle of cells.
type Rect struct{ X, Y, W, H int }

// Contains reports whether the cell (x, y) lies in r.
func (r Rect) Contains(x, y int) bool { return x >= r.X && y >= r.Y && x < r.X+r.W && y < r.Y+r.H }

// intersect returns the part that r and o share; its W or H is 0 where they share none.
func (r Rect) intersect(o Rect) Rect {
	x0, y0 := max(r.X, o.X), max(r.Y, o.Y)
	x1, y1 := min(r.X+r.W, o.X+o.W), min(r.Y+r.H, o.Y+o.H)
	return Rect{x0, y0, max(x1-x0, 0), max(y1-y0, 0)}
}

// Inset returns r without dx columns at each side and dy rows at top and bottom.
func (r Rect) Inset(dx, dy int) Rect {
	return Rect{r.X + dx, r.Y + dy, max(r.W-2*dx, 0), max(r.H-2*dy, 0)}
}

// CutTop splits off the n topmost rows.
func (r Rect) CutTop(n int) (top, rest Rect) {
	n = min(max(n, 0), r.H)
	return Rect{r.X, r.Y, r.W, n}, Rect{r.X, r.Y + n, r.W, r.H - n}
}

// CutBottom splits off the n lowest rows.
func (r Rect) CutBottom(n int) (rest, bottom Rect) {
	n = min(max(n, 0), r.H)
	return Rect{r.X, r.Y, r.W, r.H - n}, Rect{r.X, r.Y + r.H - n, r.W, n}
}

// CutLeft splits off the n leftmost columns.
func (r Rect) CutLeft(n int) (left, rest Rect) {
	n = min(max(n, 0), r.W)
	return Rect{r.X, r.Y, n, r.H}, Rect{r.X + n, r.Y, r.W - n, r.H}
}

// CutRight splits off the n rightmost columns.
func (r Rect) CutRight(n int) (rest, right Rect) {
	n = min(max(n, 0), r.W)
	return Rect{r.X, r.Y, r.W - n, r.H}, Rect{r.X + r.W - n, r.Y, n, r.H}
}

// Canvas is a window on a grid of cells: the grid itself, or a part of one made by Sub, which clips and has
// coordinates of its own. It is not safe for concurrent use.
type Canvas struct {
	*grid
	at   Rect // the window, in cells of the grid
	clip Rect // the part of the window that may be drawn, in cells of the grid
}

type grid struct {
	w, h    int
	cells   []Cell
	marks   map[int]string // combining marks that follow the rune of a cell
	styles  styleTable
	zones   []zone
	ascii   bool
	profile Profile
	out     strings.Builder
}

type zone struct {
	at  Rect
	msg any
}

// New returns an empty canvas of w by h cells for terminals that know the given colours.
func New(w, h int, p Profile, ascii bool) *Canvas {
	g := &grid{ascii: ascii, profile: p, marks: map[int]string{}}
	g.styles.reset(p)
	c := &Canvas{grid: g}
	c.Resize(w, h)
	return c
}

// Resize changes the size of the grid and clears it. It must not be called on a Sub.
func (c *Canvas) Resize(w, h int) {
	g := c.grid
	g.w, g.h = max(w, 0), max(h, 0)
	if n := g.w * g.h; cap(g.cells) < n {
		g.cells = make([]Cell, n)
	} else {
		g.cells = g.cells[:n]
	}
	c.at = Rect{0, 0, g.w, g.h}
	c.clip = c.at
	c.Clear()
}

// Clear makes every cell of the whole grid blank and forgets the zones.
func (c *Canvas) Clear() {
	g := c.grid
	for i := range g.cells {
		g.cells[i] = Cell{Rune: ' ', Width: 1}
	}
	clear(g.marks)
	g.zones = g.zones[:0]
	g.styles.trim(g.profile)
}

// Size returns the width and height of the window in cells.
func (c *Canvas) Size() (w, h int) { return c.at.W, c.at.H }

// Width returns the width of the window in cells.
func (c *Canvas) Width() int { return c.at.W }

// Height returns the height of the window in cells.
func (c *Canvas) Height() int { return c.at.H }

// Bounds returns the window as a rectangle in its own coordinates: its corner is (0, 0).
func (c *Canvas) Bounds() Rect { return Rect{0, 0, c.at.W, c.at.H} }

// ASCII reports whether only ASCII may be written. Writing replaces other runes anyway; plots ask so that
// they can draw by other means.
func (c *Canvas) ASCII() bool { return c.grid.ascii }

// Profile returns the colours that the terminal knows.
func (c *Canvas) Profile() Profile { return c.profile }

// SetProfile changes the colours that the terminal knows. It must be followed by Clear.
func (g *grid) SetProfile(p Profile) {
	g.profile = p
	g.styles.reset(p)
}

// Sub returns a window on the part r of c: what is drawn there is clipped to it and its corner is (0, 0).
func (c *Canvas) Sub(r Rect) *Canvas {
	at := Rect{c.at.X + r.X, c.at.Y + r.Y, max(r.W, 0), max(r.H, 0)}
	return &Canvas{grid: c.grid, at: at, clip: at.intersect(c.clip)}
}

// At returns the cell (x, y); the zero Cell outside of the window.
func (c *Canvas) At(x, y int) Cell {
	x, y = x+c.at.X, y+c.at.Y
	if !c.clip.Contains(x, y) {
		return Cell{}
	}
	return c.grid.cells[y*c.grid.w+x]
}

// Set writes a rune of width one into the cell (x, y). Outside of the window it does nothing.
func (c *Canvas) Set(x, y int, r rune, s StyleID) {
	x, y = x+c.at.X, y+c.at.Y
	if !c.clip.Contains(x, y) {
		return
	}
	if r < ' ' || r == 0x7f {
		r = ' '
	} else if r >= 0x80 && c.grid.ascii {
		r = asciiOf(r)
	}
	c.grid.put(x, y, Cell{Rune: r, Style: s, Width: 1})
}

// put writes a cell and blanks the other half of a wide rune that it cuts.
func (g *grid) put(x, y int, cell Cell) {
	i := y*g.w + x
	if len(g.marks) > 0 {
		delete(g.marks, i)
	}
	switch old := g.cells[i]; {
	case old.Width == 2 && x+1 < g.w && g.cells[i+1].Width == 0:
		g.cells[i+1] = Cell{Rune: ' ', Style: old.Style, Width: 1}
	case old.Width == 0 && x > 0 && g.cells[i-1].Width == 2:
		g.cells[i-1] = Cell{Rune: ' ', Style: old.Style, Width: 1}
	}
	g.cells[i] = cell
}

// Text writes s from (x, y) on, in one row, clipped to the window, and returns the number of cells that s
// takes unclipped.
func (c *Canvas) Text(x, y int, st Style, s string) int {
	return write(c, x, y, c.Style(st), s)
}

// write writes s as cells and returns how many it takes.
func write(c *Canvas, x, y int, id StyleID, s string) int {
	start := x
	if !utf8.ValidString(s) { // a cut rune would swallow what follows it on the way to the terminal
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	for len(s) > 0 {
		if b := s[0]; b < utf8.RuneSelf && (len(s) == 1 || s[1] < utf8.RuneSelf) {
			c.Set(x, y, rune(b), id)
			x++
			s = s[1:]
			continue
		}
		cluster, w := ansi.FirstGraphemeCluster(s, ansi.WcWidth)
		if cluster == "" {
			break
		}
		s = s[len(cluster):]
		if w == 0 { // a lone control character or mark
			continue
		}
		if w > 2 { // a joined emoji, on whose width terminals do not agree: its first part stands for it
			_, n := utf8.DecodeRuneInString(cluster)
			cluster = cluster[:n]
			w = min(Width(cluster), 2)
		}
		writeCluster(c, x, y, id, cluster, w)
		x += w
	}
	return x - start
}

// writeCluster writes one grapheme cluster of w cells.
func writeCluster(c *Canvas, x, y int, id StyleID, cluster string, w int) {
	r, n := utf8.DecodeRuneInString(cluster)
	if c.grid.ascii || w == 1 {
		c.Set(x, y, r, id)
		if w == 2 {
			c.Set(x+1, y, ' ', id)
		}
		if c.grid.ascii {
			return
		}
	} else {
		gx, gy := x+c.at.X, y+c.at.Y
		if !c.clip.Contains(gx, gy) || !c.clip.Contains(gx+1, gy) {
			c.Set(x, y, ' ', id)
			c.Set(x+1, y, ' ', id)
			return
		}
		c.grid.put(gx, gy, Cell{Rune: r, Style: id, Width: 2})
		c.grid.put(gx+1, gy, Cell{Style: id})
		c.grid.cells[gy*c.grid.w+gx] = Cell{Rune: r, Style: id, Width: 2}
	}
	gx, gy := x+c.at.X, y+c.at.Y
	if len(cluster) > n && c.clip.Contains(gx, gy) {
		c.grid.marks[gy*c.grid.w+gx] = cluster[n:]
	}
}

// TextMax writes s in at most w cells, cut with an ellipsis where it is longer, and returns the cells used.
func (c *Canvas) TextMax(x, y, w int, st Style, s string) int {
	if w <= 0 {
		return 0
	}
	return c.Text(x, y, st, Truncate(s, w))
}

// TextRight writes s so that it ends before column end, and returns the cells used.
func (c *Canvas) TextRight(end, y int, st Style, s string) int {
	w := Width(s)
	return c.Text(end-w, y, st, s)
}

// TextCenter writes s in the middle of the w cells from x on.
func (c *Canvas) TextCenter(x, y, w int, st Style, s string) int {
	s = Truncate(s, w)
	return c.Text(x+(w-Width(s))/2, y, st, s)
}

// Fill writes the rune into every cell of r.
func (c *Canvas) Fill(r Rect, ch rune, st Style) {
	id := c.Style(st)
	for y := r.Y; y < r.Y+r.H; y++ {
		for x := r.X; x < r.X+r.W; x++ {
			c.Set(x, y, ch, id)
		}
	}
}

// Restyle changes the style of every cell of r and keeps what is written in it: f maps old to new and is
// called once a style.
func (c *Canvas) Restyle(r Rect, f func(Style) Style) {
	g := c.grid
	r = Rect{r.X + c.at.X, r.Y + c.at.Y, r.W, r.H}.intersect(c.clip)
	var from, to StyleID
	known := false
	for y := r.Y; y < r.Y+r.H; y++ {
		for x := r.X; x < r.X+r.W; x++ {
			cell := &g.cells[y*g.w+x]
			if !known || cell.Style != from {
				from, to, known = cell.Style, c.Style(f(g.styles.list[cell.Style].style)), true
			}
			cell.Style = to
		}
	}
}

// Scrollbar draws a bar of h cells beside a list that shows h rows, the first of them row top. It draws
// nothing if all rows are visible.
func Scrollbar(c *Canvas, x, y, h, top, rows int, thumb, rail Style) {
	hidden := rows - h
	if h <= 0 || hidden <= 0 {
		return
	}
	size := max(h*h/rows, 1)
	from := int(int64(top) * int64(h-size) / int64(hidden))
	for i := range h {
		ch, style := '│', rail
		if i >= from && i < from+size {
			ch, style = '┃', thumb
		}
		c.Set(x, y+i, ch, c.Style(style))
	}
}

// Zone makes r clickable: Hit returns msg there. Later zones lie above earlier ones.
func (c *Canvas) Zone(r Rect, msg any) {
	at := Rect{r.X + c.at.X, r.Y + c.at.Y, r.W, r.H}.intersect(c.clip)
	if at.W > 0 && at.H > 0 {
		c.grid.zones = append(c.grid.zones, zone{at, msg})
	}
}

// DropZones forgets all zones: what is drawn after it (a dialog) is the only thing to click.
func (g *grid) DropZones() { g.zones = g.zones[:0] }

// Hit returns the message of the topmost zone at the cell (x, y) of the grid, and false where there is none.
func (c *Canvas) Hit(x, y int) (any, bool) {
	for i := len(c.grid.zones) - 1; i >= 0; i-- {
		if z := c.grid.zones[i]; z.at.Contains(x, y) {
			return z.msg, true
		}
	}
	return nil, false
}

// Width returns the cells that s takes.
func Width(s string) int { return ansi.StringWidthWc(s) }

// Truncate cuts s to w cells with an ellipsis at its end.
func Truncate(s string, w int) string {
	if w <= 0 {
		return ""
	}
	if len(s) <= w {
		return s
	}
	return ansi.TruncateWc(s, w, "…")
}

// TruncateLeft cuts s to w cells with an ellipsis at its beginning: what a path's end is kept by.
func TruncateLeft(s string, w int) string {
	if w <= 0 {
		return ""
	}
	over := Width(s) - w
	if over <= 0 {
		return s
	}
	return ansi.TruncateLeftWc(s, over+1, "…")
}
