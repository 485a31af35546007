package managers

import (
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

// scaleOf is the bytes at the right end of bars and slider.
func (k *ranking) scaleOf(q question) int64 {
	st := q.setup
	top := max(st.held, q.budget)
	for i := range k.rows {
		if r := k.rows[i].result; r != nil && r.Available {
			top = max(top, r.Measurement.Footprint+st.p.Outside)
		}
	}
	return top + top/16
}

// sheet is one drawing of the table: what it shows besides the rows.
type sheet struct {
	*ranking
	*leaf.State
	q        question
	scale    int64                            // bytes at the right end of bars
	size     func(int64) string               // prints footprints in one unit
	mark     func(r *row) string              // the text after a row's switch
	more     func(r *row, col int) table.Cell // the columns that others know
	tempo    tempo
	outdated bool // the training's steps have changed since
	// batch and target are the titles of those columns, "" if they are empty.
	batch, target string
	progress      func(name string) headway
	// running says that planning is in progress, awaited that answers are still to come.
	running, awaited bool
}

func (x *sheet) draw(c *canvas.Canvas, at canvas.Rect) {
	x.headings()
	x.table.Draw(c, at, x.Theme, x.cell)
	if at.H != x.height { // the height of the sentence or the window changed: keep the chosen row in sight
		x.height = at.H
		x.show(x.table.Selected())
		c.Fill(at, ' ', x.Theme.Text)
		x.table.Draw(c, at, x.Theme, x.cell)
	}
	x.markBars(c)
}

// headings hides empty columns and names the others.
func (x *sheet) headings() {
	cols := x.table.Columns
	var footprints []int64
	eager, timed, stalls, longest := false, false, false, leastName
	for i := range x.rows {
		longest = max(longest, canvas.Width(x.rows[i].label())+canvas.Width("• "))
		if r := x.rows[i].result; r != nil && r.Available {
			footprints = append(footprints, r.Measurement.Footprint)
			timed = timed || r.Plan.Planning > 0
			stalls = stalls || r.Measurement.Stall > 0
		}
		eager = eager || x.rows[i].of != plan.Ideal
	}
	unit, plain := replay.FootprintColumn(x.Units, footprints)
	x.size = func(n int64) string { return strings.TrimSpace(plain(n)) + " " + unit }
	st := x.q.setup
	untimed, still := !st.p.HasTimes, !st.canMove()
	for col, hidden := range map[int]bool{
		colExecutor: !eager, colPlanned: !timed, colFits: x.q.budget <= 0,
		colStep: untimed, colOverhead: untimed, colOut: still, colIn: still, colRecompute: still,
		colStall: still || untimed || !stalls, colBatch: x.batch == "",
		colMeasured: x.target == "", colMeasuredOverhead: x.target == "" || untimed,
	} {
		cols[col].Hidden = hidden
	}
	cols[colName].Width = longest
	cols[colBatch].Title, cols[colMeasured].Title, cols[colStep].Title = x.batch, x.target, "step"
	if st.p.TimesInferred {
		cols[colStep].Title = "~step"
	}
}

// cell returns one cell of the table.
func (x *sheet) cell(i, col int) table.Cell {
	th, r := x.Theme, &x.rows[i]
	m := r.m
	switch col {
	case colOn:
		dot := table.Cell{Text: "○", Style: th.Faint}
		switch {
		case !r.served:
			dot = table.Cell{Text: " "}
		case m.on:
			dot = table.Cell{Text: "●", Style: th.Accent}
		}
		if mark := x.mark(r); mark != "" {
			dot.Text, dot.Style = dot.Text+mark, th.Good.Strong()
		}
		return dot
	case colName:
		text := r.label()
		if _, _, there := x.table.ColumnAt(colExecutor); there {
			text = m.Info.Name
			if r.early() {
				text += ", " + replay.StoppedEarly
			}
		}
		cell := table.Cell{Text: text, Lead: string(r.mark), LeadStyle: th.Series(m.series), Style: th.Text}
		switch {
		case !r.served:
			cell.Style, cell.LeadStyle = th.Faint, th.Faint
		case !m.on:
			cell.Style, cell.LeadStyle = th.Dim, th.Dim
		case r.key() == x.winner:
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
			return x.why(i)
		}
		return table.Cell{Text: text, Style: th.Dim}
	case colExecutor:
		return table.Cell{Text: r.runs(), Style: th.Dim}
	}
	if r.result == nil || !r.result.Available {
		return x.emptyCell(i, col)
	}
	switch col {
	case colBatch, colMeasured, colMeasuredOverhead:
		return x.more(r, col)
	}
	cell := x.figure(r, col)
	if t := r.seen; t != nil {
		cell = x.measured(r, t, col, cell)
	}
	if r.stale || !m.on || x.outdated && r.seen == nil {
		cell.Style, cell.LeadStyle = th.Faint, th.Faint
	}
	if col == colFits && (r.stale || r.early() && x.progress(m.Info.Name).planning) {
		cell = x.waiting(m)
	}
	return cell
}

// emptyCell says in the first column of figures why there are none.
func (x *sheet) emptyCell(i, col int) table.Cell {
	first := colFits
	if x.table.Columns[colFits].Hidden {
		first = colFootprint
	}
	if col != first {
		return table.Cell{Text: " "}
	}
	th, r := x.Theme, &x.rows[i]
	m := r.m
	if r.why != "" {
		return x.why(i)
	}
	switch h := x.progress(m.Info.Name); {
	case h.waits, m.on && !h.planning && x.running: // managers switched on meanwhile come after the others
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
func (x *sheet) why(i int) table.Cell {
	th, r := x.Theme, &x.rows[i]
	if i > 0 && i > x.table.Top() && x.rows[i-1].why == r.why {
		return table.Cell{Text: "as above", Style: th.Faint, Span: true}
	}
	style := th.Faint
	if r.result != nil && r.result.Defective {
		style = th.Bad
	}
	return table.Cell{Text: r.why, Style: style, Span: true}
}

// waiting is shown in the column fits while a new answer is on its way.
func (x *sheet) waiting(m *manager) table.Cell {
	if h := x.progress(m.Info.Name); h.percent > 0 {
		return table.Cell{Text: fmt.Sprintf("%d%%", h.percent), Style: x.Theme.Dim}
	}
	if m.on && x.awaited {
		return table.Cell{Text: "…", Style: x.Theme.Dim}
	}
	return table.Cell{Text: "–", Style: x.Theme.Faint}
}

// measured returns the cell of a row whose plan was carried out in the training: the measured figure where
// there is one, otherwise the plan's cell. A training is planned for again, so the plan may be another one.
func (x *sheet) measured(r *row, t *replay.Result, col int, planned table.Cell) table.Cell {
	m := &t.Measurement
	or := func(text string, zero bool) table.Cell {
		if zero {
			return x.none()
		}
		return table.Cell{Text: text, Style: x.Theme.Good.Strong()}
	}
	switch col {
	case colFits:
		return x.fits(t.Fits)
	case colFootprint:
		return or(x.size(m.Footprint), false)
	case colBar:
		return x.bar(r, m.Footprint)
	case colStep:
		return or(timeline.Duration(m.StepTime), false)
	case colOverhead:
		return or(replay.Percent(t.Overhead), m.KeepAll() == 0)
	case colOut:
		return or(x.Units.Bytes(m.SwappedOut), m.SwappedOut == 0)
	case colIn:
		return or(x.Units.Bytes(m.SwappedIn), m.SwappedIn == 0)
	case colRecompute:
		return or(timeline.Duration(m.RecomputeTime), m.RecomputeTime == 0)
	case colOver, colStall: // they are about the plan that was predicted
		return x.none()
	}
	return planned
}

func (x *sheet) none() table.Cell { return table.Cell{Text: "–", Style: x.Theme.Faint} }

func (x *sheet) fits(yes bool) table.Cell {
	if yes {
		return table.Cell{Text: "✓", Style: x.Theme.Good}
	}
	return table.Cell{Text: "✗", Style: x.Theme.Bad}
}

// bar is a footprint as a bar in the colour of a row's manager.
func (x *sheet) bar(r *row, footprint int64) table.Cell {
	fill := x.Theme.Plain()
	if tone := x.Theme.Series(r.m.series).FG; tone != nil {
		fill.Color, fill.Shade = tone, tone
	}
	if r.stale || !r.m.on {
		fill = x.Theme.Other()
	}
	return table.Cell{Part: footprint + x.q.setup.p.Outside, Whole: x.scale, Fill: fill}
}

func (x *sheet) figure(r *row, col int) table.Cell {
	th, m := x.Theme, &r.result.Measurement
	dash := x.none()
	bytes := func(n int64) table.Cell {
		if n == 0 {
			return dash
		}
		return table.Cell{Text: x.Units.Bytes(n), Style: th.Dim}
	}
	length := func(n int64) table.Cell {
		if n == 0 {
			return dash
		}
		return table.Cell{Text: timeline.Duration(x.tempo.of(n)), Style: th.Dim}
	}
	switch col {
	case colFits:
		return x.fits(r.result.Fits)
	case colFootprint:
		return table.Cell{Text: x.size(m.Footprint)}
	case colBar:
		return x.bar(r, m.Footprint)
	case colOver:
		if r.result.Plan.LowerBound <= 0 {
			return dash
		}
		return table.Cell{Text: fmt.Sprintf("%.2f %%", 100*over(r.result)), Style: th.Dim}
	case colStep:
		return table.Cell{Text: timeline.Duration(x.tempo.of(m.StepTime)), Style: th.Dim}
	case colOverhead:
		return table.Cell{Text: replay.Percent(r.result.Overhead)}
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
		return table.Cell{Text: planningTime(r.result.Plan.Planning), Style: th.Dim}
	}
	return table.Cell{Text: " "}
}

// planningTime prints how long planning took, "–" if that was not measured.
func planningTime(d time.Duration) string {
	if d <= 0 {
		return "–"
	}
	return timeline.Duration(d.Round(10 * time.Microsecond).Nanoseconds())
}

// markBars draws the budget as a line through the bars.
func (x *sheet) markBars(c *canvas.Canvas) {
	left, w, ok := x.table.ColumnAt(colBar)
	if !ok || x.q.budget <= 0 || x.scale <= 0 {
		return
	}
	at := left + int(float64(x.q.budget)/float64(x.scale)*float64(w))
	for i := range x.rows {
		y, seen := x.table.Line(i)
		if r := x.rows[i].result; !seen || r == nil || !r.Available {
			continue
		}
		cell := c.At(at, y)
		old := c.StyleOf(cell.Style)
		style := x.Theme.Cursor
		style.BG = old.BG
		if cell.Rune == '█' && !x.Theme.Mono { // within the bar: draw the line over it
			style.BG = old.FG
			style.FG = x.Theme.Selected.BG
		}
		c.Set(at, y, '┆', c.Style(style))
	}
}
