package ranks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// draw draws the ranks of a training that runs.
func (v *running) draw(s *leaf.State, c *canvas.Canvas) {
	body := c.Bounds()
	_, body = body.CutTop(leaf.Sentence(s, c, v.group.Sentence(s.Units)))
	body = body.Inset(1, 0)
	var at canvas.Rect
	if body.H >= 6 {
		at, body = body.CutTop(v.strip.height(v.group, body.W, body.H))
	}
	v.strip.draw(s, c, at, v.group, v.chosen(), v.marks)
	if body.H > 8 {
		_, body = body.CutTop(1)
	}
	if body.H >= 12 && len(v.group.Skews) > 1 {
		at, body = body.CutTop(2)
		v.drawSkew(s.Theme, c, at)
	}
	v.drawList(s, c, body)
}

// drawSkew draws how late the slowest rank of each of the newest steps was, and which was latest.
func (v *running) drawSkew(th *theme.Theme, c *canvas.Canvas, at canvas.Rect) {
	list := v.group.Skews
	most := list[0]
	for _, x := range list {
		if x.By >= most.By {
			most = x
		}
	}
	text := fmt.Sprintf("now %s; most %s: %s in step %s", timeline.Duration(list[len(list)-1].By),
		timeline.Duration(most.By), v.group.Ranks[most.Rank].Name(), timeline.Count(most.Step))
	const title = "skew by step: slowest rank against the others  "
	label := title
	if at.W < len(title)+len(list)+2+canvas.Width(text) {
		label = "skew by step  "
	}
	x := at.X + c.TextMax(at.X, at.Y, at.W, th.Dim, label)
	list = list[max(len(list)-max(at.X+at.W-x-2-canvas.Width(text), 0), 0):]
	for _, skew := range list {
		style := th.Text
		if skew == most && skew.By > 0 {
			style = th.Warn
		}
		eighths := int(8 * skew.By / max(most.By, 1))
		c.Text(x, at.Y, style, string(canvas.Eighth(max(eighths, 1))))
		x++
	}
	c.TextMax(x+2, at.Y, at.X+at.W-x-2, th.Dim, text)
}

// left is how many steps a rank has until its memory is full, unknown if it does not grow.
func left(m *runs.GroupRank) maybe.Int {
	room, ok := m.Room.Value()
	bytes, known := m.Usual.Bytes.Value()
	if !ok || !known || m.Growth <= 0 || !m.GoesOn() {
		return maybe.Int{}
	}
	return maybe.Known(int64(min(float64(max(room-bytes, 0))/m.Growth, 1e15)))
}

// place says in short where a rank stands: "p1 d0 t3".
func place(m *runs.GroupRank) string {
	var b strings.Builder
	for _, a := range m.Axes {
		if a.Of < 2 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s%d", a.Name[:1], a.At)
	}
	return b.String()
}

func (v *running) drawList(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	g, th := v.group, s.Theme
	any := func(f func(m *runs.GroupRank) bool) bool {
		return slices.ContainsFunc(g.Ranks, func(m runs.GroupRank) bool { return f(&m) })
	}
	var top int64
	for i := range g.Ranks {
		top = max(top, g.Ranks[i].Usual.Bytes.Or(0))
	}
	unit, bytesText := s.Units.Column(top)
	cols := v.table.Columns
	cols[runBytes].Unit = unit
	cols[runRank].Width = 6 // the title, and the arrow of the order
	for i := range g.Ranks {
		cols[runRank].Width = max(cols[runRank].Width, markWidth+len(number(&g.Ranks[i])))
	}
	cols[runHost].Hidden = !any(func(m *runs.GroupRank) bool { return m.Host != g.Ranks[0].Host })
	cols[runPlace].Hidden = !any(func(m *runs.GroupRank) bool { return place(m) != "" })
	cols[runOut].Hidden = !any(func(m *runs.GroupRank) bool { return left(m).IsKnown() })
	cols[runLost].Hidden = !any(func(m *runs.GroupRank) bool { return m.Lost > 0 })
	cols[runCaptured].Hidden = !any(func(m *runs.GroupRank) bool { return m.Captured > 0 })
	v.table.Draw(c, at, th, func(row, col int) table.Cell {
		i := v.order[row]
		m, class := &g.Ranks[i], &g.Classes[g.Class[i]]
		switch col {
		case runMark:
			if v.marks[m.ID] {
				return table.Cell{Text: "●", Style: th.Accent}
			}
			return table.Cell{}
		case runRank:
			cell := table.Cell{Text: number(m)}
			cell.Lead, cell.LeadStyle = v.lead(th, i)
			return cell
		case runHost:
			return table.Cell{Text: m.Host, Style: th.Dim}
		case runPlace:
			return table.Cell{Text: place(m), Style: th.Dim}
		case runStep:
			return figure(th, m.Step, timeline.Count)
		case runBytes:
			return figure(th, m.Usual.Bytes, func(n int64) string { return strings.TrimSpace(bytesText(n)) })
		case runBytesOff:
			return against(th, m.Usual.Bytes.Minus(class.Bytes), s.Units.Delta)
		case runAlone:
			return figure(th, m.Usual.Alone(), timeline.Duration)
		case runAloneOff:
			return against(th, m.Usual.Alone().Minus(class.Alone), signed)
		case runOut:
			return v.outCell(th, m)
		case runLost:
			if m.Lost > 0 {
				return table.Cell{Text: timeline.Count(m.Lost), Style: th.Warn}
			}
			return table.Cell{}
		case runCaptured:
			return table.Cell{Text: fmt.Sprint(m.Captured), Style: th.Dim}
		}
		text, bad := v.why(i, s.Units)
		style := th.Dim
		if bad {
			style = th.Warn
		}
		return table.Cell{Text: text, Style: style}
	})
}

// markWidth is what a mark before a number takes, with a blank.
const markWidth = 2

// number is a process's rank, or its process ID where it has none.
func number(m *runs.GroupRank) string {
	if m.Rank.IsKnown() {
		return m.Rank.String()
	}
	return fmt.Sprint(m.PID)
}

func figure(th *theme.Theme, v maybe.Int, text func(int64) string) table.Cell {
	if n, ok := v.Value(); ok {
		return table.Cell{Text: text(n)}
	}
	return table.Cell{Text: "–", Style: th.Faint}
}

func against(th *theme.Theme, v maybe.Int, text func(int64) string) table.Cell {
	switch n, ok := v.Value(); {
	case !ok:
		return table.Cell{Text: "–", Style: th.Faint}
	case n == 0:
		return table.Cell{Text: "=", Style: th.Faint}
	default:
		return table.Cell{Text: text(n), Style: th.Dim}
	}
}

// signed is a difference of times.
func signed(ns int64) string {
	if ns < 0 {
		return "-" + timeline.Duration(-ns)
	}
	return "+" + timeline.Duration(ns)
}

// outCell says when a rank's memory is full: in time if that is known, else in steps.
func (v *running) outCell(th *theme.Theme, m *runs.GroupRank) table.Cell {
	steps, ok := left(m).Value()
	if !ok {
		return table.Cell{}
	}
	text := timeline.Counted(steps, "step")
	if d, ok := m.Usual.Duration.Value(); ok && float64(steps)*float64(d) < 1e18 {
		text = timeline.Duration(steps * d)
	}
	return table.Cell{Text: text, Style: th.Warn}
}

// lead is the glyph before a rank.
func (v *running) lead(th *theme.Theme, i int) (string, canvas.Style) {
	switch v.group.Ranks[i].Is {
	case runs.Failed:
		return "✗", th.Bad
	case runs.Missing, runs.Late:
		return "?", th.Warn
	case runs.Done:
		return "■", th.Dim
	}
	if i == v.group.First || len(v.group.Peers.Of(i)) > 0 {
		return "▲", th.Warn
	}
	return "", th.Text
}

// why says what is special about a rank; bad means that it deserves a look.
func (v *running) why(i int, u timeline.Units) (text string, bad bool) {
	g := v.group
	m := &g.Ranks[i]
	var parts []string
	if m.Word != "" {
		parts = append(parts, m.Word)
	}
	if !m.GoesOn() {
		return strings.Join(parts, ", "), m.Is != runs.Done
	}
	if i == g.First && g.Why.Slow {
		parts = append(parts, "slowest by "+timeline.Duration(g.Why.Value-g.Why.Others))
	}
	if i == g.First && !g.Why.Slow && g.Why.EntryBytes > 0 {
		parts = append(parts, fmt.Sprintf("%s in %s", u.Delta(g.Why.EntryBytes), g.Why.Entry))
	}
	if step, ok := g.Why.Since.Value(); i == g.First && ok && !g.Why.Always {
		parts = append(parts, "since step "+timeline.Count(step))
	}
	if m.Growth > 0 {
		parts = append(parts, "grows "+u.Bytes(int64(m.Growth))+" a step")
	}
	for _, d := range g.Peers.Of(i) {
		if i == g.First && d.Figure == g.Why.Figure {
			continue
		}
		parts = append(parts, d.Text(u))
	}
	return strings.Join(parts, ", "), m.Is == runs.Late || i == g.First
}
