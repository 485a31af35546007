package tracepage

import (
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// Draw implements leaf.View.
func (v *view) Draw(s *leaf.State, c *canvas.Canvas) {
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
	v.lay(s, c, body.W)
	v.view.SetWidth(max(body.W-1, 0))
	v.view.SetHeight(body.H)
	v.view.SetYOffset(v.view.YOffset()) // the size may have changed
	shown := v.lines[min(v.view.YOffset(), len(v.lines)):]
	// The viewport's own View lays the lines out again: 6,000 allocations a frame instead of 60.
	c.Sub(body).Print(0, 0, strings.Join(shown[:min(body.H, len(shown))], "\n"))
	canvas.Scrollbar(c, body.X+body.W-1, body.Y, body.H, v.view.YOffset(), v.view.TotalLineCount(),
		s.Theme.Dim, s.Theme.Faint)
}

// rungs says what a recording of each kind holds, and what that adds to what can be asked of it.
var rungs = [...]struct {
	kind        traces.Kind
	holds, adds string
}{
	{traces.Point, "one moment", "who holds it"}, {traces.Lifetimes, "allocations", "peaks, pooling"},
	{traces.Accesses, "who uses them", "swapping"}, {traces.Dataflow, "every op", "recomputing"},
}

func (v *view) ladderRows(w int) int {
	if v.page.missing == "" {
		return 3
	}
	return 3 + len(leaf.Wrap(v.page.missing, w))
}

// drawLadder draws what the recording can answer: the rungs it reaches, and how to record the next one.
func (v *view) drawLadder(s *leaf.State, c *canvas.Canvas) {
	step := min(c.Width()/len(rungs), 26)
	for i, r := range rungs {
		x := i * step
		mark, name, adds := "●", s.Theme.Strong, s.Theme.Dim
		dot, link, rule := s.Theme.Good, s.Theme.Good, '━'
		if r.kind > v.page.kind {
			mark, name, adds, dot, link, rule = "○", s.Theme.Dim, s.Theme.Faint, s.Theme.Faint, s.Theme.Faint,
				'┄'
		}
		if i > 0 {
			c.Fill(canvas.Rect{X: x - 2, Y: 0, W: 1, H: 1}, rule, link)
		}
		n := c.Text(x, 0, dot, mark) + 1
		n += c.Text(x+n, 0, name, r.holds)
		if i+1 < len(rungs) {
			next, nextRule := s.Theme.Good, '━'
			if rungs[i+1].kind > v.page.kind {
				next, nextRule = s.Theme.Faint, '┄'
			}
			c.Fill(canvas.Rect{X: x + n + 1, Y: 0, W: max(step-n-2, 0), H: 1}, nextRule, next)
		}
		c.TextMax(x+2, 1, step-2, adds, r.adds)
	}
	for i, line := range leaf.Wrap(v.page.missing, c.Width()) {
		if v.page.missing != "" {
			c.Text(0, 2+i, s.Theme.Warn, line)
		}
	}
}

// Labels of a section share a width between these.
const (
	labelWidth = 14
	labelMost  = 34
)

// lay lays the sections out in one column or, if there is room, in two of about equal length, and gives them
// to the viewport.
func (v *view) lay(s *leaf.State, c *canvas.Canvas, w int) {
	key := layout{v.page, w, s.Theme, c.Profile()}
	if v.laid == key {
		return
	}
	v.laid = key
	n := 1
	if w >= 130 {
		n = 2
	}
	width := w / n
	last := w - (n-1)*width - 2
	blocks, total := make([]string, len(v.page.sections)), 0
	for i, sec := range v.page.sections {
		blocks[i] = sec.print(s.Theme, c, width-3, last)
		total += lipgloss.Height(blocks[i])
	}
	columns := make([]string, n)
	col := 0
	for _, b := range blocks {
		h := lipgloss.Height(columns[col]) + lipgloss.Height(b)/2
		if col+1 < n && columns[col] != "" && h > (total+1)/2 {
			col++
		}
		if columns[col] != "" {
			b = "\n" + b
		}
		columns[col] += b
	}
	for i := range n - 1 {
		columns[i] = lipgloss.NewStyle().Width(width).Render(columns[i])
	}
	v.lines = strings.Split(lipgloss.JoinHorizontal(lipgloss.Top, columns...), "\n")
	v.view.SetContentLines(v.lines)
}

// print returns a section as text: its title with a rule in rule cells, its lines wrapped at w cells, and a
// blank line.
func (sec section) print(th *theme.Theme, c *canvas.Canvas, w, rule int) string {
	wide := labelWidth
	for _, l := range sec.lines {
		wide = max(wide, min(canvas.Width(l.label)+2, labelMost, w/3))
	}
	rows := []string{leaf.Ruled(th, c, rule, sec.title)}
	for _, l := range sec.lines {
		rows = append(rows, l.print(th, c, wide, w))
	}
	return lipgloss.JoinVertical(lipgloss.Left, append(rows, "")...)
}

// print returns a line: its label in wide cells, and beside it its text, wrapped at w cells.
func (l line) print(th *theme.Theme, c *canvas.Canvas, wide, w int) string {
	label, text := th.Dim, th.Text
	switch l.tone {
	case good:
		text = th.Good
	case warn:
		label = th.Warn
	case bad:
		label = th.Bad
	case dim:
		text = th.Dim
	}
	return leaf.Labelled(c, label, l.label, wide, leaf.Paragraph(c, text, l.text, max(w-wide, 10)))
}
