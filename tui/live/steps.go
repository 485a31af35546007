package live

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// stepTable is the table of steps, newest first.
type stepTable struct{ *table.Table }

// Columns of the table of steps.
const (
	colStep = iota
	colWhole
	colTime
	colBytes
	colChange
	colForward
	colBackward
	colOptimizer
	colRetries
	colCost
)

func newStepTable() stepTable {
	right := func(title string, width, drop int) table.Column {
		return table.Column{Title: title, Width: width, Right: true, Drop: drop}
	}
	return stepTable{table.New(
		right("step", 7, 0), table.Column{Title: "captured", Width: 17, Drop: 1}, right("time", 8, 0),
		right("", 10, 0), right("change", 10, 2), right("forward", 9, 4), right("backward", 9, 5),
		right("optimizer", 9, 6), right("retries", 7, 7), right("watching", 9, 3),
	)}
}

// take updates the table to a new look. The selected step stays selected. If it was the newest, or another
// process is shown, the new newest one is selected.
func (x *stepTable) take(l, before *Look) {
	newest := x.Selected() <= 0 || l.Chosen != before.Chosen
	at, _ := before.step(x.Selected())
	x.SetRows(len(l.Steps))
	if newest {
		x.Select(0)
		return
	}
	for row := x.Selected(); row < len(l.Steps); row++ {
		if s, _ := l.step(row); s.Index <= at.Index {
			x.Select(row)
			return
		}
	}
}

// choose selects a step by its index, and reports whether it exists.
func (x *stepTable) choose(l *Look, step int64) bool {
	by := func(s Step, at int64) int { return cmp.Compare(s.Index, at) }
	i, ok := slices.BinarySearchFunc(l.Steps, step, by)
	if ok {
		x.Select(len(l.Steps) - 1 - i)
	}
	return ok
}

// draw draws the table of steps, newest first.
func (x *stepTable) draw(s *leaf.State, c *canvas.Canvas, at canvas.Rect, l *Look, shown int64) {
	th := s.Theme
	var top int64
	phases, retries := false, false
	for i := range l.Steps {
		st := &l.Steps[i]
		top = max(top, st.Bytes.Or(0))
		phases = phases || st.Forward.IsKnown() || st.Backward.IsKnown()
		retries = retries || st.Retries+st.OOMs > 0
	}
	unit, text := s.Units.Column(top)
	x.Columns[colStep].Title = l.rowName()
	x.Columns[colStep].Width = max(7, len(l.rowName()))
	x.Columns[colBytes].Title, x.Columns[colBytes].Unit = short(l.Figure), unit
	x.Columns[colBytes].Width = max(10, len(short(l.Figure))+len(unit)+1)
	for _, col := range []int{colForward, colBackward, colOptimizer} {
		x.Columns[col].Hidden = !phases
	}
	x.Columns[colRetries].Hidden = !retries
	duration := func(n maybe.Int) table.Cell { return figureCell(n, th, th.Dim, timeline.Duration) }
	slow := 2 * l.Report.Duration
	x.Draw(c, at, th, func(row, col int) table.Cell {
		st, _ := l.step(row)
		switch col {
		case colStep:
			switch { // as the plan is marked in Managers
			case st.UnderPlan:
				return table.Cell{Text: "▶ " + leaf.Count(st.Index)}
			case st.Trial:
				return table.Cell{Text: "▸ " + leaf.Count(st.Index)}
			}
			return table.Cell{Text: leaf.Count(st.Index)}
		case colWhole:
			w, ok := l.windowOf(st.Index)
			switch {
			case ok && w.ID == shown:
				return table.Cell{Lead: "▲", LeadStyle: th.Accent, Text: w.How, Style: th.Accent}
			case ok:
				return table.Cell{Lead: "●", LeadStyle: th.Good, Text: w.How}
			}
			return table.Cell{}
		case colTime:
			cell := duration(st.Duration)
			cell.Style = th.Text
			if slow > 0 && st.Duration.Or(0) > slow {
				cell.Style = th.Warn
			}
			return cell
		case colBytes:
			return figureCell(st.Bytes, th, canvas.Style{}, text)
		case colChange:
			before, _ := l.step(row + 1)
			change := st.Bytes.Minus(before.Bytes)
			if change == maybe.Known(0) {
				return table.Cell{Text: "0", Style: th.Dim}
			}
			return figureCell(change, th, canvas.Style{}, s.Units.Delta)
		case colForward:
			return duration(st.Forward)
		case colBackward:
			return duration(st.Backward)
		case colOptimizer:
			return duration(st.Optimizer)
		case colRetries:
			if st.OOMs > 0 {
				return table.Cell{Text: "OOM", Style: th.Bad}
			}
			return table.Cell{Text: leaf.Count(st.Retries), Style: th.Dim}
		}
		return duration(st.Cost)
	})
}

// short is the figure's name for a column head.
func short(figure string) string {
	if w, _, ok := strings.Cut(figure, " "); ok {
		return w
	}
	return figure
}

// figureCell is a figure in a table, a dash if unknown.
func figureCell(n maybe.Int, th *theme.Theme, st canvas.Style, text func(int64) string) table.Cell {
	v, ok := n.Value()
	if !ok {
		return table.Cell{Text: "–", Style: th.Faint}
	}
	return table.Cell{Text: strings.TrimSpace(text(v)), Style: st}
}
