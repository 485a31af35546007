package ranks

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// Draw implements leaf.View.
func (v *view) Draw(s *leaf.State, c *canvas.Canvas) {
	if s.Group != nil {
		v.now.take(s.Group)
		v.now.draw(s, c)
		return
	}
	if s.Run == nil || len(s.Run.Ranks) == 0 {
		leaf.Empty(s, c, "One recording is open",
			"A folder of recordings, one for each rank, is shown here side by side.", "gmemtop replay DIR")
		return
	}
	v.read(s)
	body := c.Bounds()
	_, body = body.CutTop(leaf.Sentence(s, c, s.Run.Sentence(s.Units)))
	body = body.Inset(1, 0)
	var at canvas.Rect
	rows := v.stripRows(s, body.H)
	v.tall = v.tallness(s, body.H, rows)
	if rows > 0 {
		rows = (rows-2)*v.tall + 2
	}
	at, body = body.CutTop(rows)
	v.drawStrip(s, c, at)
	v.drawTable(s, c, body)
}

// lane is a row, half a row or several rows of the strip: the maxima of its ranks.
type lane struct {
	y     int // first row in the strip
	lower bool
	ranks []int // indices of the run's ranks
}

// stripRows is how many rows the strip takes with its axis: about two fifths of the room, but no more than
// the ranks need.
func (v *view) stripRows(s *leaf.State, room int) int {
	if room < 10 {
		return 0
	}
	n := len(s.Run.Ranks)
	need := s.Run.Outliers + (n-s.Run.Outliers+1)/2
	if s.Theme.Mono || n <= 12 {
		need = n
	}
	return min(need, max(2*room/5, 3)) + 2
}

// mostTall bounds the rows of a rank's curve.
const mostTall = 7

// tallness returns how many rows each rank has in the strip: a few ranks get curves, where the table leaves
// room for them, instead of a row of colours each.
func (v *view) tallness(s *leaf.State, room, strip int) int {
	n := len(s.Run.Ranks)
	if strip != n+2 {
		return 1
	}
	tall := (room - (n + 2) - 2) / n
	if tall < 2 {
		return 1
	}
	return min(tall, mostTall)
}

// share divides rows among the ranks: outliers get one each, up to half of the rows; the others share the
// rest.
func (v *view) share(s *leaf.State, rows int) []lane {
	run := s.Run
	var lanes []lane
	alone := min(run.Outliers, max(rows/2, 1))
	if len(run.Ranks) <= rows {
		alone = len(run.Ranks)
	}
	for i := range alone {
		lanes = append(lanes, lane{y: i, ranks: []int{i}})
	}
	rest := len(run.Ranks) - alone
	halves := 2 * (rows - alone)
	if s.Theme.Mono {
		halves = rows - alone
	}
	if rest <= 0 || halves <= 0 {
		return lanes
	}
	n := min(rest, halves)
	for k := range n {
		l := lane{y: alone + k/2, lower: k%2 == 1}
		if s.Theme.Mono {
			l = lane{y: alone + k}
		}
		for i := k * rest / n; i < (k+1)*rest/n; i++ {
			l.ranks = append(l.ranks, alone+i)
		}
		lanes = append(lanes, l)
	}
	return lanes
}

// values returns the maxima of a lane's ranks in n equal stretches of the run's clock.
func values(run *runs.Run, l lane, n int) []int64 {
	out := make([]int64, n)
	for _, i := range l.ranks {
		strip := run.Ranks[i].Strip
		for k, v := range strip {
			from := k * n / len(strip)
			to := max((k+1)*n/len(strip), from+1)
			for x := from; x < min(to, n); x++ {
				out[x] = max(out[x], v)
			}
		}
	}
	return out
}

// labelWidth is the room for the labels of lanes: numbers of ranks, or names of files.
func labelWidth(run *runs.Run, w int) int {
	if run.Numbered() {
		return 12
	}
	return min(max(w/4, 12), 40)
}

// drawStrip draws time along x and ranks along y, hot where much is allocated.
func (v *view) drawStrip(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	v.strip, v.lanes = canvas.Rect{}, nil
	labels := labelWidth(s.Run, at.W)
	if at.H < 3 || at.W < labels+10 {
		return
	}
	rows, w := at.H-2, at.W-labels
	v.strip = canvas.Rect{X: at.X, Y: at.Y, W: at.W, H: rows}
	v.lanes = v.share(s, rows/v.tall)
	for k := range v.lanes {
		v.lanes[k].y *= v.tall
	}
	most := int64(1)
	for i := range s.Run.Ranks {
		most = max(most, s.Run.Ranks[i].Totals.PeakAllocated)
	}
	chosen := -1
	if row := v.table.Selected(); row >= 0 {
		chosen = v.order[row]
	}
	for k, l := range v.lanes {
		y := at.Y + l.y
		vals := values(s.Run, l, w)
		paired := !l.lower && k+1 < len(v.lanes) && v.lanes[k+1].y == l.y
		if l.lower {
			continue
		}
		var lower []int64
		if paired {
			lower = values(s.Run, v.lanes[k+1], w)
		}
		if v.tall > 1 {
			v.drawCurve(s, c, canvas.Rect{X: at.X + labels, Y: y, W: w, H: v.tall}, vals, most)
		} else {
			v.drawLane(s, c, at.X+labels, y, vals, lower, most)
		}
		v.drawLabel(s, c, canvas.Rect{X: at.X, Y: y, W: labels - 1, H: 1}, k, chosen)
	}
	v.drawScale(s, c, canvas.Rect{X: at.X + labels, Y: at.Y + rows, W: w, H: 1}, most)
}

// drawCurve draws a rank's memory as columns, all ranks on one scale.
func (v *view) drawCurve(s *leaf.State, c *canvas.Canvas, at canvas.Rect, vals []int64, most int64) {
	fill := s.Theme.Plain()
	fill.Pattern = 0
	for x, b := range vals {
		top := int(float64(b) / float64(most) * float64(8*at.H))
		if b > 0 {
			top = max(top, 1)
		}
		c.Column(at.X+x, at.Y, at.H, []canvas.Slab{{Top: top, Fill: fill}}, nil)
	}
	c.Fill(canvas.Rect{X: at.X - 1, Y: at.Y, W: 1, H: at.H}, '┊', s.Theme.Faint)
}

// drawLane draws one row: upper over lower if it holds two ranks.
func (v *view) drawLane(s *leaf.State, c *canvas.Canvas, x0, y int, upper, lower []int64, most int64) {
	for x := range upper {
		up, glyph := s.Theme.Heat(upper[x], most)
		if lower == nil || s.Theme.Mono {
			c.Set(x0+x, y, glyph, c.Style(up))
			continue
		}
		low, _ := s.Theme.Heat(lower[x], most)
		c.Set(x0+x, y, '▀', c.Style(canvas.Style{FG: up.BG, BG: low.BG}))
	}
}

func (v *view) drawLabel(s *leaf.State, c *canvas.Canvas, at canvas.Rect, k, chosen int) {
	run, l := s.Run, v.lanes[k]
	ranks := l.ranks
	if k+1 < len(v.lanes) && v.lanes[k+1].y == l.y {
		ranks = append(ranks[:len(ranks):len(ranks)], v.lanes[k+1].ranks...)
	}
	style, mark := s.Theme.Dim, " "
	if ranks[0] < run.Outliers {
		style, mark = s.Theme.Warn, "▲"
	}
	for _, i := range ranks {
		if i == chosen {
			style, mark = s.Theme.Accent.Strong(), "▸"
		}
	}
	text, high := "–", maybe.Int{}
	low := int64(math.MaxInt64)
	for _, i := range ranks {
		low, high = min(low, run.Ranks[i].Rank.Or(low)), maybe.Max(high, run.Ranks[i].Rank)
	}
	if high.IsKnown() {
		text = high.String()
	}
	if low < high.Or(low) {
		text = fmt.Sprintf("%d–%s", low, text)
	}
	switch {
	case run.Numbered():
	default: // their files tell them apart
		more := ""
		if len(ranks) > 1 {
			more = fmt.Sprintf(" +%d", len(ranks)-1)
		}
		text = canvas.TruncateLeft(run.Ranks[ranks[0]].Name(), at.W-canvas.Width(mark)-1-len(more)) + more
	}
	c.TextMax(at.X, at.Y, at.W, style, mark+" "+text)
}

// drawScale draws the axis of time below the strip and what its colours mean.
func (v *view) drawScale(s *leaf.State, c *canvas.Canvas, at canvas.Rect, most int64) {
	from, to := bounds(s.Run)
	begin := "0"
	if s.Run.Apart {
		begin = "0, from each rank's own start"
	}
	n := c.Text(at.X, at.Y, s.Theme.Dim, begin)
	if to > from {
		c.TextRight(at.X+at.W, at.Y, s.Theme.Dim, timeline.Duration(to-from))
	}
	if v.tall > 1 {
		c.TextCenter(at.X+n, at.Y, at.W-n-8, s.Theme.Dim, "each up to "+s.Units.Bytes(most))
		return
	}
	x := at.X + max((at.W-30)/2, n+2)
	if x+30 > at.X+at.W { // narrow: the colours need the words' room
		c.Fill(canvas.Rect{X: at.X, Y: at.Y, W: at.W, H: 1}, ' ', s.Theme.Text)
		x = at.X
	}
	x += c.Text(x, at.Y, s.Theme.Dim, "colour: 0 ")
	for i := range 10 {
		st, glyph := s.Theme.Heat(int64(i)*most/9, most)
		c.Set(x, at.Y, glyph, c.Style(st))
		x++
	}
	c.Text(x+1, at.Y, s.Theme.Dim, s.Units.Bytes(most))
}

func bounds(run *runs.Run) (from, to int64) {
	known := false
	for i := range run.Ranks {
		r := &run.Ranks[i]
		if r.Err != nil || r.To <= r.From {
			continue
		}
		if !known {
			from, to, known = r.From, r.To, true
		}
		from, to = min(from, r.From), max(to, r.To)
	}
	return from, to
}

func (v *view) drawTable(s *leaf.State, c *canvas.Canvas, at canvas.Rect) {
	run, th := s.Run, s.Theme
	var peak, reserved int64
	for i := range run.Ranks {
		t := &run.Ranks[i].Totals
		peak, reserved = max(peak, t.PeakAllocated), max(reserved, t.PeakReserved.Or(0))
	}
	v.table.Columns[colHost].Hidden = !slices.ContainsFunc(run.Ranks,
		func(r runs.RankSummary) bool { return r.Host != "" })
	v.table.Columns[colReserved].Hidden = reserved <= 0
	if name := &v.table.Columns[colRank]; !run.Numbered() {
		name.Title, name.Right, name.Width, name.Max = "file", false, 16, 40
	} else {
		name.Title, name.Right, name.Width, name.Max = "rank", true, 7, 0
	}
	from, _ := bounds(run)
	unit, peakText := s.Units.Column(peak)
	unitReserved, reservedText := s.Units.Column(reserved)
	v.table.Columns[colPeak].Unit, v.table.Columns[colReserved].Unit = unit, unitReserved
	bar := th.Plain()
	bar.Pattern = 0
	v.table.Draw(c, at, th, func(row, col int) table.Cell {
		i := v.order[row]
		r := &run.Ranks[i]
		if r.Err != nil && col != colRank && col != colTop {
			return table.Cell{}
		}
		switch col {
		case colRank:
			cell := table.Cell{Text: "–"}
			switch {
			case !run.Numbered():
				cell.Text, cell.KeepEnd = r.Name(), true // names of files differ at their ends
			case r.Rank.IsKnown():
				cell.Text = r.Rank.String()
			}
			switch {
			case r.Err != nil:
				cell.Lead, cell.LeadStyle = "✗", th.Bad
			case i < run.Outliers:
				cell.Lead, cell.LeadStyle, cell.Style = "▲", th.Warn, th.Warn
			}
			return cell
		case colPeak:
			return table.Cell{Text: strings.TrimSpace(peakText(r.Totals.PeakAllocated))}
		case colBar:
			return table.Cell{Part: r.Totals.PeakAllocated, Whole: peak, Fill: bar}
		case colDelta:
			d := r.Totals.PeakAllocated - run.Median
			if d == 0 {
				return table.Cell{Text: "=", Style: th.Faint}
			}
			return table.Cell{Text: s.Units.Delta(d), Style: th.Dim}
		case colReserved:
			held, ok := r.Totals.PeakReserved.Value()
			if !ok {
				return table.Cell{Text: "–", Style: th.Dim}
			}
			return table.Cell{Text: strings.TrimSpace(reservedText(held)), Style: th.Dim}
		case colTime:
			return table.Cell{Text: timeline.Duration(r.PeakTime - from), Style: th.Dim}
		case colHost:
			return table.Cell{Text: r.Host, Style: th.Dim}
		}
		return holder(s, r)
	})
}

func holder(s *leaf.State, r *runs.RankSummary) table.Cell {
	if r.Err != nil {
		return table.Cell{Text: r.Err.Error(), Style: s.Theme.Bad}
	}
	if r.Top.Name == "" {
		return table.Cell{Text: "–", Style: s.Theme.Faint}
	}
	return table.Cell{Text: s.Units.Bytes(r.Top.Bytes) + "  " + r.Top.Name}
}
