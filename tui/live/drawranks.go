package live

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// mark is the glyph before a process: died, ended, silent or different.
func (p *ranksPane) mark(th *theme.Theme, r *Rank) (string, canvas.Style) {
	switch {
	case r.State == Ended && r.Failed:
		return "✗", th.Bad
	case r.State == Ended:
		return "■", th.Dim
	case r.Silent != "":
		return "?", th.Warn
	case p.odd[r.ID] > 0:
		return "▲", th.Warn
	}
	return "", th.Text
}

// drawStrip draws all processes in one line, with the chosen one in the middle if they do not all fit.
func (p *ranksPane) drawStrip(th *theme.Theme, c *canvas.Canvas, y int, l *Look) {
	ranks := l.Ranks
	w := c.Width()
	labels := make([]string, len(ranks))
	here, room := 0, 0
	title := "rank"
	for i := range ranks {
		r := &ranks[i]
		labels[i] = r.Rank.String()
		if !r.Rank.IsKnown() {
			title, labels[i] = "process", strconv.Itoa(r.PID)
		}
		if m, _ := p.mark(th, r); m != "" {
			labels[i] = m + labels[i]
		}
		labels[i] = " " + labels[i] + " "
		if r.ID == l.Chosen {
			here = i
		}
		room += canvas.Width(labels[i])
	}
	x := c.Text(0, y, th.Dim, title) + 1
	hint := ""
	if p.focus {
		hint = "tab: its steps"
	} else {
		hint = "tab: all of them"
	}
	end := w
	if w >= 60 {
		c.TextRight(w, y, th.Faint, hint)
		c.Zone(canvas.Rect{X: w - len(hint), Y: y, W: len(hint), H: 1}, leaf.KeyMsg{Key: "tab"})
		end = w - len(hint) - 1
	}
	from, to := 0, len(ranks)
	if room > end-x {
		from, to = here, here+1
		// Alternate right and left, with room for the sign that there are more.
		for used := canvas.Width(labels[here]) + 4; ; {
			grew := false
			if to < len(ranks) && used+canvas.Width(labels[to]) <= end-x {
				used, to, grew = used+canvas.Width(labels[to]), to+1, true
			}
			if from > 0 && used+canvas.Width(labels[from-1]) <= end-x {
				used, from, grew = used+canvas.Width(labels[from-1]), from-1, true
			}
			if !grew {
				break
			}
		}
	}
	if from > 0 {
		x += c.Text(x, y, th.Faint, "… ")
	}
	for i := from; i < to; i++ {
		_, st := p.mark(th, &ranks[i])
		if ranks[i].ID == l.Chosen {
			st = th.OnSelected(st.Strong())
		}
		n := c.TextMax(x, y, end-x, st, labels[i])
		c.Zone(canvas.Rect{X: x, Y: y, W: n, H: 1}, chooseMsg{ranks[i].ID})
		x += n
	}
	if to < len(ranks) {
		c.Text(x, y, th.Faint, " …")
	}
}

// markWidth is what a mark before a number takes, with a blank.
const markWidth = 2

// number is a process's rank, or its process ID where it has none.
func (r *Rank) number() string {
	if r.Rank.IsKnown() {
		return r.Rank.String()
	}
	return strconv.Itoa(r.PID)
}

// draw draws the list.
func (p *ranksPane) draw(s *leaf.State, c *canvas.Canvas, at canvas.Rect, l *Look) {
	th, ranks := s.Theme, l.Ranks
	var top int64
	phases, numbered := false, false
	for i := range ranks {
		r := &ranks[i]
		top = max(top, r.Typical.Bytes.Or(0))
		phases = phases || r.Typical.Forward.IsKnown()
		numbered = numbered || r.Rank.IsKnown()
	}
	same := func(f func(r *Rank) string) bool {
		return !slices.ContainsFunc(ranks, func(r Rank) bool { return f(&r) != f(&ranks[0]) })
	}
	cols := p.table.Columns
	unit, text := s.Units.Column(top)
	cols[rankBytes].Title, cols[rankBytes].Unit = short(l.Figure), unit
	cols[rankBytes].Width = max(8, len(short(l.Figure))+len(unit)+1)
	for _, i := range []int{rankForward, rankBackward, rankOptimizer} {
		cols[i].Hidden = !phases
	}
	cols[rankDevice].Hidden = same(func(r *Rank) string { return r.Device })
	cols[rankHost].Hidden = !p.several(l)
	cols[rankScript].Hidden = same(func(r *Rank) string { return r.Title })
	cols[rankCaptured].Hidden = !slices.ContainsFunc(ranks, func(r Rank) bool { return r.Captured > 0 })
	cols[rankName].Title, cols[rankPID].Hidden = "rank", false
	if !numbered {
		cols[rankName].Title, cols[rankPID].Hidden = "process", true
	}
	cols[rankName].Width = len(cols[rankName].Title) + 1 // and the arrow of the order
	for i := range ranks {
		cols[rankName].Width = max(cols[rankName].Width, markWidth+len(ranks[i].number()))
	}
	p.table.Blurred = !p.focus
	duration := func(ns maybe.Int) table.Cell { return figureCell(ns, th, canvas.Style{}, timeline.Duration) }
	p.table.Draw(c, at, th, func(row, col int) table.Cell {
		i := p.order[row]
		r := &ranks[i]
		switch col {
		case rankChosen:
			if r.ID == l.Chosen {
				return table.Cell{Text: "▸", Style: th.Accent}
			}
			return table.Cell{}
		case rankName:
			cell := table.Cell{Text: r.number()}
			cell.Lead, cell.LeadStyle = p.mark(th, r)
			return cell
		case rankPID:
			return table.Cell{Text: strconv.Itoa(r.PID), Style: th.Dim}
		case rankHost:
			return table.Cell{Text: r.Host, Style: th.Dim}
		case rankScript:
			return table.Cell{Text: r.Title, Style: th.Dim}
		case rankDevice:
			return table.Cell{Text: r.Device, Style: th.Dim}
		case rankStep:
			return figureCell(r.Step, th, canvas.Style{}, leaf.Count)
		case rankTime:
			return duration(r.Typical.Duration)
		case rankForward:
			return duration(r.Typical.Forward)
		case rankBackward:
			return duration(r.Typical.Backward)
		case rankOptimizer:
			return duration(r.Typical.Optimizer)
		case rankBytes:
			return figureCell(r.Typical.Bytes, th, canvas.Style{}, text)
		case rankCaptured:
			return table.Cell{Text: strconv.Itoa(r.Captured), Style: th.Dim}
		}
		text, bad := l.unlike(i, s.Units)
		style := th.Dim
		if _, st := p.mark(th, r); bad || p.odd[r.ID] > 0 {
			style = st
		}
		return table.Cell{Text: text, Style: style}
	})
}

// several reports whether the processes are on more than one machine.
func (p *ranksPane) several(l *Look) bool {
	return slices.ContainsFunc(l.Ranks, func(r Rank) bool { return r.Host != l.Ranks[0].Host })
}

// status describes what is under the list's cursor.
func (p *ranksPane) status(u timeline.Units, l *Look) string {
	row := p.table.Selected()
	if row < 0 || row >= len(p.order) {
		return ""
	}
	i := p.order[row]
	r := &l.Ranks[i]
	text := fmt.Sprintf("%s, process %d", r.Name(), r.PID)
	if !r.Rank.IsKnown() {
		text = fmt.Sprintf("process %d, %s", r.PID, r.Title)
	}
	if r.Device != "" {
		text += " on " + r.Device
	}
	if p.several(l) && r.Host != "" {
		text += " of " + r.Host
	}
	if n, ok := r.Typical.Bytes.Value(); ok {
		text += ", " + l.Figure + " " + u.Bytes(n)
	}
	if more, _ := l.unlike(i, u); more != "" {
		text += ": " + more
	}
	return text
}
