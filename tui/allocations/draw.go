package allocations

import (
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/block"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// Draw implements leaf.View.
func (v *view) Draw(s *leaf.State, c *canvas.Canvas) {
	if s.Device == nil {
		return
	}
	for _, col := range []int{colStart, colLife, colFreed} {
		v.table.Columns[col].Hidden = s.Device.Len() < 2 // one moment has no time
	}
	if v.shown == nil || v.of != s.Device {
		if err := v.found.Err(); err != nil && !v.found.Pending() {
			leaf.Empty(s, c, "The search failed", err.Error(), "")
			return
		}
		leaf.Working(s, c, "searching "+leaf.Count(int64(s.Device.Allocs.Len()))+" allocations")
		return
	}
	if len(v.shown.ids) == 0 {
		leaf.Empty(s, c, "No allocation matches", "The filter "+strconv.Quote(s.QueryText)+
			" selects none of "+
			leaf.Count(int64(s.Device.Allocs.Len()))+" allocations. Change it with /, clear it with esc.", "")
		return
	}
	// columns that would say the same in every row
	v.table.Columns[colRequested].Hidden = !v.shown.padded
	v.table.Columns[colStream].Hidden = !v.shown.streams
	body := c.Bounds()
	_, body = body.CutTop(leaf.Sentence(s, c, v.sentence(s)))
	if h := c.Height(); h >= 18 {
		var top canvas.Rect
		top, body = body.CutTop(map[bool]int{true: 7, false: 5}[h >= 30])
		v.drawPlots(s, c, top)
	} else {
		v.plots = plots{}
	}
	switch {
	case body.W >= 150:
		var side canvas.Rect
		body, side = body.CutRight(min(body.W/3, 60))
		block.Draw(s, c.Sub(canvas.Rect{X: side.X + 2, Y: side.Y, W: side.W - 2, H: side.H}), v.current())
	case body.H >= 20:
		var below canvas.Rect
		body, below = body.CutBottom(10)
		leaf.Rule(s, c, below.X+1, below.Y, below.W-1, "selected")
		_, below = below.CutTop(1)
		block.Draw(s, c.Sub(canvas.Rect{X: below.X + 1, Y: below.Y, W: below.W - 1, H: below.H}), v.current())
	}
	v.table.Draw(c, canvas.Rect{X: body.X + 1, Y: body.Y, W: body.W - 1, H: body.H}, s.Theme,
		func(row, col int) table.Cell {
			return v.cell(s, v.shown.ids[row], col)
		})
}

// sentence says what the filter selects, in plain words.
func (v *view) sentence(s *leaf.State) string {
	d, r, n := s.Device, v.shown, int64(len(v.shown.ids))
	text := fmt.Sprintf("%s allocations: %s in all", leaf.Count(n), s.Units.Bytes(r.bytes))
	rows, row := "allocations", ""
	if d.Allocs.Count != nil { // a row is a sum of blocks
		rows, row = "sums", "sum "
		var blocks int64
		for _, a := range r.ids {
			blocks += int64(d.Allocs.Blocks(a))
		}
		text = fmt.Sprintf("%s blocks, summed up by call site: %s in all", leaf.Count(blocks),
			s.Units.Bytes(r.bytes))
	}
	switch {
	case s.QueryText != "":
		text = fmt.Sprintf("%s of %s %s%s: %s in all",
			leaf.Count(n), leaf.Count(int64(d.Allocs.Len())), rows, leaf.FilterWords(s),
			s.Units.Bytes(r.bytes))
	case row != "": // said already
	case n == 1:
		text = fmt.Sprintf("One allocation: %s", s.Units.Bytes(r.bytes))
	}
	if r.largest != timeline.NoAlloc && n > 1 {
		text += ", the largest " + row + s.Units.Bytes(d.Allocs.Rounded[r.largest])
		if what := leaf.What(d, r.largest); what != "" && !s.Query.BySite && !s.Query.ByStack {
			text += " by " + what
		}
	}
	if r.leaked > 0 && d.Len() > 1 {
		text += fmt.Sprintf("; %s still allocated at the end", leaf.Count(int64(r.leaked)))
	}
	return text + "."
}

func (v *view) cell(s *leaf.State, a timeline.AllocID, col int) table.Cell {
	d, th := s.Device, s.Theme
	al := &d.Allocs
	switch col {
	case colBlock:
		return table.Cell{Text: strings.TrimPrefix(d.BlockName(a), "block "), Style: th.Dim}
	case colSize:
		return table.Cell{Text: s.Units.Bytes(al.Rounded[a])}
	case colRequested:
		if al.Rounded[a] == al.Size[a] {
			return table.Cell{Text: "=", Style: th.Faint}
		}
		return table.Cell{Text: s.Units.Bytes(al.Size[a]), Style: th.Dim}
	case colCategory:
		cat := al.Category[a]
		name := cat.String()
		if al.Inferred[a] {
			name = "~" + name
		}
		return table.Cell{Lead: th.Glyph(cat), LeadStyle: th.Category(cat), Text: name}
	case colStart:
		return table.Cell{Text: v.start(d, a), Style: th.Dim}
	case colLife:
		return v.life(s, a)
	case colFreed:
		return table.Cell{Text: v.freed(d, a), Style: th.Dim}
	case colStream:
		return table.Cell{Text: strconv.Itoa(int(al.Stream[a])), Style: th.Dim}
	case colSite:
		if what := leaf.What(d, a); what != "" {
			return table.Cell{Text: what, Style: leaf.Linked(s, d, d.Origin(a), canvas.Style{})}
		}
		return table.Cell{Text: "no stack", Style: th.Faint}
	}
	return table.Cell{}
}

func clock(d *timeline.Device) bool { return d.Timeline().Trace.Clock.HasTime }

func at(d *timeline.Device, t int64) string {
	if !clock(d) {
		return strconv.FormatInt(t, 10)
	}
	return timeline.Duration(t - d.Timeline().Zero())
}

func (v *view) start(d *timeline.Device, a timeline.AllocID) string {
	if d.Allocs.Start[a] == timeline.Start {
		return "before"
	}
	from, _ := d.Lifetime(a)
	return at(d, from)
}

func (v *view) freed(d *timeline.Device, a timeline.AllocID) string {
	if d.Allocs.Requested[a] == timeline.Never {
		return "never"
	}
	_, to := d.Lifetime(a)
	return at(d, to)
}

// life is a lifetime; one that extends beyond the recording is longer than the recorded part.
func (v *view) life(s *leaf.State, a timeline.AllocID) table.Cell {
	d := s.Device
	from, to := d.Lifetime(a)
	text := strconv.FormatInt(to-from, 10) // in the source's own unit
	if clock(d) {
		text = timeline.Duration(to - from)
	}
	before, after := d.Allocs.Start[a] == timeline.Start, d.Allocs.Requested[a] == timeline.Never
	switch {
	case before && after:
		return table.Cell{Text: "always", Style: s.Theme.Dim}
	case before || after:
		return table.Cell{Text: "≥" + text, Style: s.Theme.Warn}
	}
	return table.Cell{Text: text}
}

// plots remembers where bars can be clicked.
type plots struct{ sizes, lives plot }

type plot struct {
	at          canvas.Rect // the bars
	first, wide int         // bucket of the first bar, cells a bar
}

// drawPlots draws requested bytes by size and by lifetime, stacked by category.
func (v *view) drawPlots(s *leaf.State, c *canvas.Canvas, area canvas.Rect) {
	left, right := area, canvas.Rect{}
	v.plots = plots{}
	if clock(s.Device) {
		left, right = area.CutLeft(area.W / 2)
		v.plots.lives = drawHistogram(s, c, right.Inset(1, 0), "bytes by lifetime", &v.shown.lives, lifeLabel)
	}
	v.plots.sizes = drawHistogram(s, c, left.Inset(1, 0), "bytes by size", &v.shown.sizes,
		func(b int) string {
			return strings.NewReplacer(".00", "", ".0", "").Replace(s.Units.Bytes(1 << b))
		})
}

func lifeLabel(b int) string {
	if b == never {
		return "never"
	}
	return strings.NewReplacer(".00", "", ".0", "").Replace(timeline.Duration(lifeOf(b)))
}

func drawHistogram(s *leaf.State, c *canvas.Canvas, area canvas.Rect, title string, h *histogram,
	label func(int) string) plot {
	if h.last < h.first || area.W < 12 || area.H < 4 {
		return plot{}
	}
	var most int64
	shown := make([]int, 0, buckets) // put "never" right beside the longest lifetime
	for b := h.first; b <= h.last; b++ {
		if n := h.sum(b); n > 0 || b != h.last && b < never-1 && anyAfter(h, b) {
			shown = append(shown, b)
			most = max(most, n)
		}
	}
	x := area.X
	x += c.Text(x, area.Y, s.Theme.Dim, title) + 2
	c.TextMax(x, area.Y, area.X+area.W-x, s.Theme.Dim, "tallest "+s.Units.Bytes(most))
	bars := canvas.Rect{X: area.X, Y: area.Y + 1, W: area.W, H: area.H - 3}
	wide := min(max(bars.W/len(shown), 1), 4)
	edge, end := area.X, area.X+area.W // labels do not overlap
	if last := len(shown) - 1; shown[last] == never {
		end = min(bars.X+last*wide, end-5)
		c.Text(end, bars.Y+bars.H, s.Theme.Dim, label(never))
	}
	for i, b := range shown {
		x := bars.X + i*wide
		if x+wide > bars.X+bars.W {
			break
		}
		for dx := range max(wide-1, 1) {
			c.Column(x+dx, bars.Y, bars.H, slabs(s, h, b, most, bars.H), nil)
		}
		if text := label(b); x >= edge && x+canvas.Width(text) < end {
			c.Text(x, bars.Y+bars.H, s.Theme.Dim, text)
			edge = x + canvas.Width(text) + 2
		}
	}
	return plot{at: bars, first: h.first, wide: wide}
}

// anyAfter reports whether a bucket between b and the last ordinary one is used: gaps within the distribution
// are drawn, the gap before "never" is not.
func anyAfter(h *histogram, b int) bool {
	for k := b + 1; k < never; k++ {
		if h.sum(k) > 0 {
			return true
		}
	}
	return false
}

func slabs(s *leaf.State, h *histogram, bucket int, most int64, rows int) []canvas.Slab {
	var out []canvas.Slab
	sum := int64(0)
	for cat, n := range h.bytes[bucket] {
		if n == 0 {
			continue
		}
		sum += n
		top := int(float64(sum) / float64(max(most, 1)) * float64(8*rows))
		if len(out) == 0 {
			top = max(top, 1)
		}
		out = append(out, canvas.Slab{Top: top, Fill: s.Theme.Fill(timeline.Category(cat))})
	}
	return out
}

// clickPlot narrows the filter to the sizes of the bar that was clicked.
func (v *view) clickPlot(s *leaf.State, msg tea.MouseMsg) tea.Cmd {
	m := msg.Mouse()
	if _, ok := msg.(tea.MouseClickMsg); !ok || m.Button != tea.MouseLeft || v.shown == nil {
		return nil
	}
	p := v.plots.sizes
	if p.wide == 0 || !p.at.Contains(m.X, m.Y) {
		return nil
	}
	b := p.first + (m.X-p.at.X)/p.wide
	if b > v.shown.sizes.last || v.shown.sizes.sum(b) == 0 {
		return nil
	}
	text := fmt.Sprintf("size>=%d size<%d", int64(1)<<b, int64(1)<<(b+1))
	if s.QueryText != "" {
		text = s.QueryText + " " + text
	}
	return leaf.Send(leaf.QueryMsg{Text: text})
}
