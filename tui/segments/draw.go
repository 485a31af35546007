package segments

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/block"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// Draw implements leaf.View.
func (v *view) Draw(s *leaf.State, c *canvas.Canvas) {
	if s.Device == nil {
		return
	}
	if v.st == nil || v.of.d != s.Device {
		v.drawWaiting(s, c)
		return
	}
	if len(v.rows) == 0 {
		if !v.st.Known {
			leaf.Nothing(s, c, v.Name(), leaf.NoSegments(s))
			return
		}
		leaf.Empty(s, c, "Nothing is reserved here",
			"At this moment the allocator holds no segment from the driver. Move the cursor.", "")
		return
	}
	body := c.Bounds()
	rows := leaf.Sentence(s, c, v.sentence(s))
	_, body = body.CutTop(rows)
	var fig, legend canvas.Rect
	fig, body = body.CutTop(figureRows(c))
	v.drawFigures(s, c.Sub(fig))
	names := v.legend(c.Width(), legendRows(c.Height()))
	body, legend = body.CutBottom(len(names))
	v.drawLegend(s, c.Sub(legend), names)
	switch {
	case body.W >= 140:
		var side canvas.Rect
		body, side = body.CutRight(min(body.W/3, 64))
		v.drawPiece(s, c.Sub(canvas.Rect{X: side.X + 2, Y: side.Y, W: side.W - 2, H: side.H}))
	case body.H >= 24:
		var below canvas.Rect
		body, below = body.CutBottom(9)
		leaf.Rule(s, c, below.X+1, below.Y, below.W-1, "selected")
		_, below = below.CutTop(1)
		v.drawPiece(s, c.Sub(canvas.Rect{X: below.X + 1, Y: below.Y, W: below.W - 1, H: below.H}))
	}
	v.drawMap(s, c, body)
}

func (v *view) drawWaiting(s *leaf.State, c *canvas.Canvas) {
	if err := v.state.Err(); err != nil && !v.state.Pending() {
		leaf.Empty(s, c, "The map cannot be drawn", err.Error(), "")
		return
	}
	leaf.Working(s, c, "replaying the allocator up to the cursor")
}

type part struct {
	name, short string
	bytes       int64
	kind        kind
}

// drawFigures draws the bar of the reserved bytes and the equation of its parts under it.
func (v *view) drawFigures(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	if h < 2 {
		return
	}
	x, done := 1, int64(0)
	for _, p := range v.parts() {
		end := 1
		if v.st.Reserved > 0 {
			end = 1 + int(float64(done+p.bytes)/float64(v.st.Reserved)*float64(w-2)+0.5)
		}
		if p.bytes > 0 && end == x {
			end++
		}
		v.drawPart(s, c.Sub(canvas.Rect{X: x, Y: 0, W: min(end, w-1) - x, H: 1}), p)
		x, done = max(x, min(end, w-1)), done+p.bytes
	}
	unit, f := s.Units.Column(v.st.Reserved)
	total := " = " + strings.TrimSpace(f(v.st.Reserved)) + " " + unit
	terms := v.terms(w-canvas.Width(total), w >= 100, f)
	x = 1
	for i, t := range terms {
		if i > 0 {
			x += c.Text(x, 1, s.Theme.Dim, " + ")
		}
		if t.part.kind != kindActive {
			f := fill(s.Theme, t.part.kind, 0)
			paint(c, x, 1, f, f)
			x += 2
		}
		x += c.Text(x, 1, s.Theme.Dim, t.name+" ")
		x += c.Text(x, 1, s.Theme.Text, t.figure)
	}
	x += c.Text(x, 1, s.Theme.Dim, total[:3])
	x += c.Text(x, 1, s.Theme.Strong, total[3:])
	short := strings.ReplaceAll(v.st.Exactness.String(), "_", " ")
	if n := x + 9; n < w && (n+2+canvas.Width(short) < w || x+2+canvas.Width(short) >= w) {
		x += c.Text(x, 1, s.Theme.Dim, " reserved")
	}
	text := short
	if v.st.Reason != "" {
		text += ": " + v.st.Reason
	}
	switch room := w - x - 3; {
	case canvas.Width(text) <= room:
		c.Text(x+2, 1, s.Theme.Dim, text)
	case h >= 3:
		c.TextMax(1, 2, w-2, s.Theme.Dim, text)
	case canvas.Width(short) <= room:
		c.Text(x+2, 1, s.Theme.Dim, short)
	}
}

// term is a part in the equation of the reserved bytes.
type term struct {
	part         part
	name, figure string
}

// terms returns the parts of the equation that fit in w cells: all of them with their full names if long is
// set, else those that are not zero, dropping the smallest if they do not fit.
func (v *view) terms(w int, long bool, figure func(int64) string) []term {
	var list []term
	need := 1
	width := func(t term) int {
		n := canvas.Width(t.name) + 1 + canvas.Width(t.figure)
		if t.part.kind != kindActive {
			n += 3 + 2
		}
		return n
	}
	for i, p := range v.parts() {
		t := term{p, p.name, strings.TrimSpace(figure(p.bytes))}
		if !long {
			t.name = p.short
			if p.bytes == 0 && i > 0 {
				continue
			}
		}
		list = append(list, t)
		need += width(t)
	}
	for need > w && len(list) > 1 {
		least := 1
		for i := range list[1:] {
			if list[1+i].part.bytes < list[least].part.bytes {
				least = 1 + i
			}
		}
		need -= width(list[least])
		list = slices.Delete(list, least, least+1)
	}
	return list
}

// columns of the map before the bars.
type columns struct{ addr, size, full, bar, tag int }

func (v *view) drawMap(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	var head canvas.Rect
	head, at = at.CutTop(1)
	cols := v.columnsFor(at.W)
	x := at.X + 1
	v.area = at
	v.bars = canvas.Rect{X: x + cols.addr + cols.size + cols.full + 1, Y: at.Y, W: cols.bar, H: at.H}
	v.reflow()
	v.scrollTo(v.top)
	v.drawHead(s, c, head, cols)
	for y := range at.H {
		line := v.top + y
		if line >= v.lines.len() {
			break
		}
		v.drawLine(s, c, at.Y+y, line, cols)
	}
	canvas.Scrollbar(c, at.X+at.W-1, at.Y, at.H, v.top, v.lines.len(), s.Theme.Dim, s.Theme.Faint)
}

func (v *view) drawHead(s *leaf.State, c *canvas.Canvas, at canvas.Rect, cols columns) {
	x := at.X + 1
	title := func(o order, text string) (string, canvas.Style) {
		if v.order == o {
			return text, s.Theme.Accent
		}
		return text, s.Theme.Header
	}
	if cols.addr > 0 {
		text, st := title(byAddress, "segment")
		if v.order == byAddress {
			text += "▲"
		}
		c.Text(x, at.Y, st, text)
		x += cols.addr
	}
	text, st := title(bySize, "size")
	if v.order == bySize {
		text += "▼"
	}
	c.TextRight(x+cols.size, at.Y, st, text)
	x += cols.size
	c.TextRight(x+cols.full, at.Y, s.Theme.Header, "full")
	x += cols.full + 1
	hint := "each segment fills its line"
	if v.lines.bytes > 0 {
		hint = "one scale: a line is " + s.Units.Bytes(v.lines.bytes)
	}
	switch v.order {
	case byStranded:
		hint = "most holes first · " + hint
	case bySize:
		hint = "largest first · " + hint
	}
	c.TextMax(x, at.Y, cols.bar, s.Theme.Dim, hint)
}

func (v *view) drawLine(s *leaf.State, c *canvas.Canvas, y, line int, cols columns) {
	i, from, to := v.lines.at(v.rows, line)
	r := &v.rows[i]
	x := v.area.X + 1
	own := v.selected.row == int32(i)
	if int(v.lines.first[i]) == line {
		addr, text := s.Theme.Dim, s.Theme.Text
		if own {
			addr, text = s.Theme.Accent, s.Theme.Strong
			c.Text(v.area.X, y, s.Theme.Accent, "▸")
		}
		if cols.addr > 0 {
			c.Text(x, y, addr, fmt.Sprintf("%x", r.from))
		}
		c.TextRight(x+cols.addr+cols.size, y, text, s.Units.Bytes(r.mapped))
		c.TextRight(x+cols.addr+cols.size+cols.full, y, fullStyle(s.Theme, r), percent(r.active, r.mapped))
		if cols.tag > 0 {
			c.TextMax(v.bars.X+v.bars.W+1, y, cols.tag-2, s.Theme.Dim, tag(r))
		}
	}
	if int(v.lines.first[i]) != line && cols.addr > 0 {
		c.Text(x, y, s.Theme.Faint, fmt.Sprintf("%x", from))
	}
	across := to - from
	if v.lines.bytes > 0 {
		across = uint64(v.lines.bytes)
	}
	v.drawBar(s, c, y, i, from, to, across)
}

func percent(part, whole int64) string {
	if whole <= 0 {
		return ""
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case part > 0 && p < 1:
		return "<1%"
	case part < whole && p > 99:
		return "99%"
	}
	return fmt.Sprintf("%.0f%%", p)
}

func tag(r *row) string {
	var words []string
	if r.expandable {
		words = append(words, "expand.")
	}
	if r.pool != (traces.Pool{}) {
		words = append(words, strings.Replace(poolName(r.pool), "graph pool", "graph", 1))
	}
	if r.stream != 0 {
		words = append(words, fmt.Sprintf("str %d", r.stream))
	}
	return strings.Join(words, " ")
}

// legendRows is how many rows the legend may take in a view h rows high.
func legendRows(h int) int {
	switch {
	case h < 12:
		return 0
	case h < 20:
		return 1
	}
	return 2
}

// legend returns rows of the kinds on the map, largest first, as many as fit.
func (a *atlas) legend(w, rows int) [][]kind {
	var present []kind
	for k, n := range a.figures.looks {
		if n > 0 {
			present = append(present, kind(k))
		}
	}
	slices.SortStableFunc(present, func(x, y kind) int {
		return cmp.Compare(a.figures.looks[y], a.figures.looks[x])
	})
	var list [][]kind
	x := w
	for _, k := range present {
		n := 2 + canvas.Width(kindName(k)) + 2
		if x+n-2 > w {
			if len(list) == rows {
				continue // a shorter name may still fit
			}
			list, x = append(list, nil), 1
		}
		list[len(list)-1] = append(list[len(list)-1], k)
		x += n
	}
	return list
}

// kindName is a kind's name in the legend.
func kindName(k kind) string {
	switch k {
	case kindStranded:
		return "fragmented"
	case kindCached:
		return "cached"
	case kindPending:
		return "pending free"
	case kindForeign:
		return "not in the recording"
	case kindInternal:
		return "rounding"
	}
	return timeline.Category(k - kindActive).String()
}

// drawLegend draws the legend of the map.
func (v *view) drawLegend(s *leaf.State, c *canvas.Canvas, rows [][]kind) {
	for y, row := range rows {
		x := 1
		for _, k := range row {
			f := fill(s.Theme, k, 0)
			if k >= kindActive {
				f = s.Theme.Fill(timeline.Category(k - kindActive))
			}
			from, name := x, s.Theme.Dim
			switch v.only {
			case kindUnmapped:
			case k:
				name = s.Theme.Strong
			default:
				name = s.Theme.Faint
			}
			paint(c, x, y, f, f)
			x += 2
			x += c.Text(x, y, name, kindName(k))
			c.Zone(canvas.Rect{X: from, Y: y, W: x - from, H: 1}, legendMsg{k})
			x += 2
		}
	}
}

// drawPiece draws what is known of the selected piece.
func (v *view) drawPiece(s *leaf.State, c *canvas.Canvas) {
	p, seg := v.piece(v.selected), v.segment(v.selected)
	if p.Alloc != timeline.NoAlloc {
		block.Draw(s, c, p.Alloc)
		return
	}
	w := c.Width()
	c.TextMax(0, 0, w, s.Theme.Strong, s.Units.Bytes(p.Size))
	for y, line := range leaf.Wrap(v.what(s, p, seg), w) {
		c.Text(0, y+1, s.Theme.Text, line)
	}
	whole := "in a segment of " + s.Units.Bytes(seg.Size)
	if seg.Stack != traces.NoStack {
		whole += ", requested by"
	}
	c.TextMax(0, 3, w, s.Theme.Dim, whole)
	if c.Height() > 4 && seg.Stack != traces.NoStack {
		block.Stack(s, c.Sub(canvas.Rect{X: 0, Y: 4, W: w, H: c.Height() - 4}), seg.Stack)
	}
}

// drawPart fills c with the looks of a part; the active part is divided by category.
func (a *atlas) drawPart(s *leaf.State, c *canvas.Canvas, p part) {
	w := c.Width()
	if p.kind != kindActive {
		f := fill(s.Theme, p.kind, 0)
		for x := range w {
			paint(c, x, 0, f, f)
		}
		return
	}
	var sum int64
	for _, n := range a.figures.categories {
		sum += n
	}
	x, done := 0, int64(0)
	for cat, n := range a.figures.categories {
		done += n
		end := int(float64(done)/float64(max(sum, 1))*float64(w) + 0.5)
		f := s.Theme.Fill(timeline.Category(cat))
		for ; x < end; x++ {
			paint(c, x, 0, f, f)
		}
	}
}

func (b *board) columnsFor(w int) columns {
	cols := columns{addr: 14, size: 10, full: 6}
	if b.tagged() {
		cols.tag = 15
		if w < 100 {
			cols.tag = 9
		}
	}
	if w < 70 {
		cols.addr = 0
	}
	cols.bar = max(w-cols.addr-cols.size-cols.full-cols.tag-3, 4)
	return cols
}

func figureRows(c *canvas.Canvas) int {
	switch h := c.Height(); {
	case h < 12:
		return 0
	case h < 24:
		return 2
	}
	return 3
}

func fullStyle(th *theme.Theme, r *row) canvas.Style {
	switch {
	case r.active == 0:
		return th.Dim
	case 2*r.active <= r.mapped:
		return th.Warn
	}
	return th.Text
}
