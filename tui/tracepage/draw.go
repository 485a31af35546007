package tracepage

import (
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Draw implements leaf.View.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	if s.Timeline == nil {
		leaf.Empty(s, c, "No recording is open", "Open a file, or a folder of ranks.", "gmemtop replay FILE")
		return
	}
	v.read(s)
	body := c.Bounds()
	_, body = body.CutTop(leaf.Sentence(s, c, v.page.sentence))
	body = body.Inset(1, 0)
	var head canvas.Rect
	if c.Height() >= 14 {
		head, body = body.CutTop(v.ladderRows(body.W))
		v.drawLadder(s, c.Sub(head))
	}
	v.body = body
	columns := v.columns(body.W)
	v.rows = 0
	for _, col := range columns {
		v.rows = max(v.rows, len(col))
	}
	v.scrollTo(v.top)
	width := body.W / len(columns)
	for i, col := range columns {
		at := canvas.Rect{X: body.X + i*width, Y: body.Y, W: width - 2, H: body.H}
		if i == len(columns)-1 {
			at.W = body.X + body.W - at.X - 2
		}
		sub := c.Sub(at)
		for y := range at.H {
			if v.top+y < len(col) {
				col[v.top+y].draw(s, sub, y)
			}
		}
	}
	if v.rows > body.H {
		v.scrollbar(s, c)
	}
}

func (v *View) scrollbar(s *leaf.State, c *canvas.Canvas) {
	h := v.body.H
	size := max(h*h/v.rows, 1)
	pos := v.top * (h - size) / max(v.rows-h, 1)
	for i := range h {
		ch, st := '│', s.Theme.Faint
		if i >= pos && i < pos+size {
			ch, st = '┃', s.Theme.Dim
		}
		c.Set(v.body.X+v.body.W-1, v.body.Y+i, ch, c.Style(st))
	}
}

// rungs says what each kind of trace adds.
var rungs = [...]struct {
	kind traces.Kind
	adds string
}{
	{traces.Point, "breakdowns"}, {traces.Lifetimes, "timeline, pooling"}, {traces.Accesses, "swapping"}, {traces.Dataflow, "recompute"},
}

func (v *View) ladderRows(w int) int {
	if v.page.missing == "" {
		return 3
	}
	return 3 + len(leaf.Wrap(v.page.missing, w))
}

// drawLadder draws what the recording can answer: the rungs it reaches, and what would record the next.
func (v *View) drawLadder(s *leaf.State, c *canvas.Canvas) {
	step := min(c.Width()/len(rungs), 26)
	for i, r := range rungs {
		x := i * step
		mark, name, adds := "●", s.Theme.Strong, s.Theme.Dim
		dot, link, rule := s.Theme.Good, s.Theme.Good, '━'
		if r.kind > v.page.kind {
			mark, name, adds, dot, link, rule = "○", s.Theme.Dim, s.Theme.Faint, s.Theme.Faint, s.Theme.Faint, '┄'
		}
		if i > 0 {
			c.Fill(canvas.Rect{X: x - 2, Y: 0, W: 1, H: 1}, rule, link)
		}
		n := c.Text(x, 0, dot, mark) + 1
		n += c.Text(x+n, 0, name, r.kind.String())
		if i+1 < len(rungs) {
			next, nextRule := s.Theme.Good, '━'
			if rungs[i+1].kind > v.page.kind {
				next, nextRule = s.Theme.Faint, '┄'
			}
			c.Fill(canvas.Rect{X: x + n + 1, Y: 0, W: max(step-n-2, 0), H: 1}, nextRule, next)
		}
		c.TextMax(x+2, 1, step-3, adds, r.adds)
	}
	for i, line := range leaf.Wrap(v.page.missing, c.Width()) {
		if v.page.missing != "" {
			c.Text(0, 2+i, s.Theme.Warn, line)
		}
	}
}

// printed is one row of the page.
type printed struct {
	title string
	label string
	text  string
	tone  tone
	blank bool
	wide  int // cells of the label
}

// Labels of a section share a width between these.
const (
	labelWidth = 14
	labelMost  = 34
)

func (p printed) draw(s *leaf.State, c *canvas.Canvas, y int) {
	switch {
	case p.blank:
	case p.title != "":
		leaf.Rule(s, c, 0, y, c.Width(), p.title)
	default:
		style := s.Theme.Text
		label := s.Theme.Dim
		switch p.tone {
		case good:
			style = s.Theme.Good
		case warn:
			label, style = s.Theme.Warn, s.Theme.Text
		case bad:
			label, style = s.Theme.Bad, s.Theme.Text
		case dim:
			style = s.Theme.Dim
		}
		c.TextMax(0, y, p.wide-1, label, p.label)
		c.TextMax(p.wide, y, c.Width()-p.wide, style, p.text)
	}
}

// columns lays the sections out in one column, or, in a wide room, in two of about equal length.
func (v *View) columns(w int) [][]printed {
	n := 1
	if w >= 130 {
		n = 2
	}
	blocks := make([][]printed, len(v.page.sections))
	total := 0
	for i, sec := range v.page.sections {
		blocks[i] = sec.print(w/n - 3)
		total += len(blocks[i])
	}
	out := make([][]printed, n)
	col := 0
	for _, b := range blocks {
		if col+1 < n && len(out[col]) > 0 && len(out[col])+len(b)/2 > (total+1)/2 {
			col++
		}
		out[col] = append(out[col], b...)
	}
	return out
}

func (sec section) print(w int) []printed {
	rows := []printed{{title: sec.title}}
	wide := labelWidth
	for _, l := range sec.lines {
		wide = max(wide, min(canvas.Width(l.label)+2, labelMost, w/3))
	}
	for _, l := range sec.lines {
		for i, text := range leaf.Wrap(l.text, max(w-wide, 10)) {
			row := printed{label: l.label, text: text, tone: l.tone, wide: wide}
			if i > 0 {
				row.label = ""
			}
			rows = append(rows, row)
		}
	}
	return append(rows, printed{blank: true})
}
