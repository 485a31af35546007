package managers

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// Draw implements leaf.View.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	v.spots, v.usageAt, v.budget.slider = v.spots[:0], usageArea{}, canvas.Rect{}
	if v.inside != nil {
		v.inside.Draw(s, c)
		return
	}
	st := v.setup(s)
	if st == nil {
		painter{v}.drawNoSetup(s, c)
		return
	}
	_, body := c.Bounds().CutTop(painter{v}.sentence(s, c))
	body = v.training.draw(s, c, body.Inset(1, 0), v.budget.bytes)
	rows, slider := painter{v}.tableRows(body.H), 1
	if body.H < 6 {
		slider = 0
	}
	var tableAt, sliderAt canvas.Rect
	tableAt, body = body.CutTop(rows)
	v.budget.scale = painter{v}.barScale(st)
	painter{v}.drawTable(s, c, tableAt, st)
	if body.H > 12 {
		_, body = body.CutTop(1)
	}
	sliderAt, body = body.CutTop(slider)
	v.budget.draw(s, c, sliderAt, st, v.planning.budgets(st))
	if body.H > 8 {
		_, body = body.CutTop(1)
	}
	plotter{v}.drawCharts(s, c, body, st)
}

// sentence writes the answer and returns the rows that are kept for it: as many as the longest so far took in
// this room, so that nothing below moves while one drags the budget or results come in.
func (v painter) sentence(s *leaf.State, c *canvas.Canvas) int {
	w, h := c.Size()
	if v.head.w != w || v.head.h != h {
		v.head = head{w: w, h: h}
	}
	v.head.rows = max(v.head.rows, leaf.Sentence(s, c, v.headline(s)))
	return v.head.rows
}

// head is the room that the sentence took, in a view of w by h cells.
type head struct{ w, h, rows int }

// painter is the View as what draws all but the charts: it reads the view and writes where things lie.
type painter struct{ *View }

// tableRows gives the table its rows where there is room, else a bit more than half of it: the charts need
// the rest.
func (v painter) tableRows(room int) int {
	want := len(v.rows) + 1
	switch {
	case room < 8:
		return room
	case room < 16:
		rows := min(want, room-2, max(room*3/5, 4))
		if room-rows-1 < leastChart { // the slider's row comes off as well
			rows = min(want, room-1)
		}
		return rows
	}
	return min(want, room*11/20)
}

func (v painter) drawNoSetup(s *leaf.State, c *canvas.Canvas) {
	err := v.subject.setups.Err()
	if v.subject.setups.Pending() || err == nil {
		leaf.Working(s, c, "taking one training step to plan")
		return
	}
	var u *plan.Unavailable
	if errors.As(err, &u) {
		leaf.Empty(s, c, "There is nothing to plan", strings.ToUpper(u.Reason[:min(1, len(u.Reason))])+u.Reason[min(1, len(u.Reason)):]+".", "")
		return
	}
	leaf.Empty(s, c, "No training step could be taken to plan", err.Error(), "")
}

// headline is the one-sentence answer, or how far it is.
func (v *View) headline(s *leaf.State) string {
	q, ok := v.question(s)
	if !ok {
		return ""
	}
	a := v.planning.answersTo(q)
	if a.err != nil {
		return problemText(s.Units, q, a.err)
	}
	names := v.managers.serving(q.setup.p)
	text, today := v.planning.answer(s.Units, q, names, v.budget.moving), ""
	if i := v.managers.baseline(); i >= 0 {
		today = v.managers[i].Info.Name
	}
	if of := v.search.text(s.Units, q, today); of != "" {
		text = of + " " + text
	}
	if of := v.measuring.text(s.Units, q, v.rows, v.winner); of != "" {
		text += " " + of
	}
	if s.UnderPlan {
		text += " Planned for " + s.BasisName + ", which ran without a plan; the step in view ran under one."
	}
	return text
}

// barScale is the bytes at the right end of bars and slider.
func (v painter) barScale(st *setup) int64 {
	top := max(st.caching, v.budget.bytes)
	for i := range v.rows {
		if r := v.rows[i].result; r != nil && r.Available {
			top = max(top, r.Measurement.Footprint+st.p.Outside)
		}
	}
	return top + top/16
}

func (v painter) drawTable(s *leaf.State, c *canvas.Canvas, at canvas.Rect, st *setup) {
	cols := v.table.Columns
	var footprints []int64
	eager, timed := false, false
	for i := range v.rows {
		if r := v.rows[i].result; r != nil && r.Available {
			footprints = append(footprints, r.Measurement.Footprint)
			timed = timed || r.Plan.Planning > 0
		}
		eager = eager || v.rows[i].of != plan.Ideal
	}
	unit, plain := replay.FootprintColumn(s.Units, footprints)
	size := func(n int64) string { return strings.TrimSpace(plain(n)) + " " + unit }
	cols[colExecutor].Hidden = !eager
	cols[colPlanned].Hidden = !timed
	cols[colFits].Hidden = v.budget.bytes <= 0
	cols[colStep].Hidden, cols[colOverhead].Hidden = !st.p.HasTimes, !st.p.HasTimes
	cols[colOut].Hidden, cols[colIn].Hidden, cols[colRecompute].Hidden = !st.canMove(), !st.canMove(), !st.canMove()
	cols[colStall].Hidden = !st.canMove() || !st.p.HasTimes
	q, _ := v.question(s)
	cols[colBatch].Title = v.search.title(q)
	cols[colBatch].Hidden = cols[colBatch].Title == ""
	target := v.measuring.target
	cols[colMeasured].Hidden, cols[colMeasuredOverhead].Hidden = target == "", target == "" || !st.p.HasTimes
	cols[colMeasured].Title = target
	cols[colStep].Title = "step"
	if st.p.TimesInferred {
		cols[colStep].Title = "~step"
	}
	v.table.Draw(c, at, s.Theme, func(row, col int) table.Cell { return v.cell(s, st, row, col, size) })
	if at.H != v.tableH { // the sentence takes another line, or the window changed: the selection stays in sight
		v.tableH = at.H
		ranking(v).show(v.table.Selected())
		c.Fill(at, ' ', s.Theme.Text)
		v.table.Draw(c, at, s.Theme, func(row, col int) table.Cell { return v.cell(s, st, row, col, size) })
	}
	v.markBars(s, c, st)
}

// cell is what stands in one cell of the table.
func (v painter) cell(s *leaf.State, st *setup, i, col int, size func(int64) string) table.Cell {
	th, r := s.Theme, &v.rows[i]
	m := &v.managers[r.manager]
	switch col {
	case colOn:
		dot := table.Cell{Text: "○", Style: th.Faint}
		switch {
		case !r.served:
			dot = table.Cell{Text: " "}
		case m.on:
			dot = table.Cell{Text: "●", Style: th.Accent}
		}
		if mark := v.training.mark(r); mark != "" {
			dot.Text, dot.Style = dot.Text+mark, th.Good.Strong()
		}
		return dot
	case colName:
		text := m.Info.Name
		if _, _, there := v.table.ColumnAt(colExecutor); r.of != plan.Ideal && !there { // it is the first column to go where there is little room
			text += " eager"
		}
		cell := table.Cell{Text: text, Lead: string(m.letter), LeadStyle: th.Series(m.series), Style: th.Text}
		switch {
		case !r.served:
			cell.Style, cell.LeadStyle = th.Faint, th.Faint
		case !m.on:
			cell.Style, cell.LeadStyle = th.Dim, th.Dim
		case rowKey{r.manager, r.of} == v.winner:
			cell.Style = th.Good.Strong()
		case m.Info.Ours:
			cell.Style = th.Strong
		}
		return cell
	case colAfter:
		text := m.Info.After
		switch {
		case m.Info.Ours:
			text = "ours"
		case text == "":
			text = m.Info.Family.String()
		}
		if !r.served { // why needs the room more than after whom
			return v.why(s, i)
		}
		return table.Cell{Text: text, Style: th.Dim}
	case colExecutor:
		return table.Cell{Text: r.of.String(), Style: th.Dim}
	}
	if r.result == nil || !r.result.Available {
		return v.emptyCell(s, i, col)
	}
	q, _ := v.question(s)
	switch col {
	case colBatch:
		return v.search.cell(th, q, r)
	case colMeasured, colMeasuredOverhead:
		return v.measuring.cell(th, q, r, col, size)
	}
	cell := v.figure(s, st, r, col, size)
	if r.stale || !m.on {
		cell.Style, cell.LeadStyle = th.Faint, th.Faint
	}
	if col == colFits && r.stale {
		cell = v.waiting(s, m)
	}
	return cell
}

// emptyCell says in the first column of figures why there are none.
func (v painter) emptyCell(s *leaf.State, i, col int) table.Cell {
	first := colFits
	if v.table.Columns[colFits].Hidden {
		first = colFootprint
	}
	if col != first {
		return table.Cell{Text: " "}
	}
	th, r := s.Theme, &v.rows[i]
	m := &v.managers[r.manager]
	if v.whyNot(s, r) != "" {
		return v.why(s, i)
	}
	switch h := v.planning.progressOf(m.Info.Name); {
	case h.waits, m.on && !h.planning && v.planning.run != nil: // what was switched on meanwhile comes after those that are under way
		return table.Cell{Text: "waits its turn", Style: th.Faint, Span: true}
	case h.planning && h.String() == "":
		return table.Cell{Text: "planning …", Style: th.Dim, Span: true}
	case h.planning:
		return table.Cell{Text: "planning " + h.String(), Style: th.Dim, Span: true}
	case !m.on:
		return table.Cell{Text: "–", Style: th.Faint}
	}
	return table.Cell{Text: "not planned", Style: th.Faint, Span: true}
}

// why says in the rest of a row why its manager has no plan.
func (v painter) why(s *leaf.State, i int) table.Cell {
	th, why := s.Theme, v.whyNot(s, &v.rows[i])
	if i > 0 && i > v.table.Top() && v.whyNot(s, &v.rows[i-1]) == why {
		return table.Cell{Text: "as above", Style: th.Faint, Span: true}
	}
	style := th.Faint
	if strings.HasPrefix(why, replay.Defect) {
		style = th.Bad
	}
	return table.Cell{Text: why, Style: style, Span: true}
}

// waiting stands in the column fits while a new answer is on its way.
func (v painter) waiting(s *leaf.State, m *manager) table.Cell {
	if h := v.planning.progressOf(m.Info.Name); h.percent > 0 {
		return table.Cell{Text: fmt.Sprintf("%d%%", h.percent), Style: s.Theme.Dim}
	}
	if q, ok := v.question(s); m.on && ok && v.planning.answersTo(q).err == nil && !v.planning.stopped {
		return table.Cell{Text: "…", Style: s.Theme.Dim}
	}
	return table.Cell{Text: "–", Style: s.Theme.Faint}
}

func (v painter) figure(s *leaf.State, st *setup, r *row, col int, size func(int64) string) table.Cell {
	th := s.Theme
	x, m := r.result, &r.result.Measurement
	dash := table.Cell{Text: "–", Style: th.Faint}
	bytes := func(n int64) table.Cell {
		if n == 0 {
			return dash
		}
		return table.Cell{Text: s.Units.Bytes(n), Style: th.Dim}
	}
	length := func(n int64) table.Cell {
		if n == 0 {
			return dash
		}
		return table.Cell{Text: timeline.Duration(n), Style: th.Dim}
	}
	switch col {
	case colFits:
		if x.Fits {
			return table.Cell{Text: "✓", Style: th.Good}
		}
		return table.Cell{Text: "✗", Style: th.Bad}
	case colFootprint:
		return table.Cell{Text: size(m.Footprint)}
	case colBar:
		fill := th.Plain()
		if tone := th.Series(v.managers[r.manager].series).FG; tone != nil {
			fill.Color, fill.Shade = tone, tone
		}
		if r.stale || !v.managers[r.manager].on {
			fill = th.Other()
		}
		return table.Cell{Part: m.Footprint + st.p.Outside, Whole: v.budget.scale, Fill: fill}
	case colOver:
		if x.Plan.LowerBound <= 0 {
			return dash
		}
		return table.Cell{Text: fmt.Sprintf("%.2f %%", 100*over(x)), Style: th.Dim}
	case colStep:
		return table.Cell{Text: timeline.Duration(m.StepTime), Style: th.Dim}
	case colOverhead:
		return table.Cell{Text: replay.Percent(x.Overhead)}
	case colStall:
		cell := length(m.Stall)
		if m.Stall*50 > m.StepTime { // more than 2 % of the step is felt
			cell.Style = th.Warn
		}
		return cell
	case colOut:
		return bytes(m.SwappedOut)
	case colIn:
		return bytes(m.SwappedIn)
	case colRecompute:
		return length(m.RecomputeTime)
	case colPlanned:
		return table.Cell{Text: planned(x.Plan.Planning), Style: th.Dim}
	}
	return table.Cell{Text: " "}
}

// planned prints how long planning took, "–" where that was not measured.
func planned(d time.Duration) string {
	if d <= 0 {
		return "–"
	}
	return timeline.Duration(d.Round(10 * time.Microsecond).Nanoseconds())
}

// markBars draws the budget as a line through the bars.
func (v painter) markBars(s *leaf.State, c *canvas.Canvas, st *setup) {
	x, w, ok := v.table.ColumnAt(colBar)
	if !ok || v.budget.bytes <= 0 || v.budget.scale <= 0 {
		return
	}
	at := x + int(float64(v.budget.bytes)/float64(v.budget.scale)*float64(w))
	for i := range v.rows {
		y, seen := v.table.Line(i)
		if r := v.rows[i].result; !seen || r == nil || !r.Available {
			continue
		}
		cell := c.At(at, y)
		old := c.StyleOf(cell.Style)
		style := s.Theme.Cursor
		style.BG = old.BG
		if cell.Rune == '█' && !s.Theme.Mono { // within the bar: the line stands on it
			style.BG = old.FG
			style.FG = s.Theme.Selected.BG
		}
		c.Set(at, y, '┆', c.Style(style))
	}
}
