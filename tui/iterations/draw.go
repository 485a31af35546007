package iterations

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/curves"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// Draw implements leaf.View.
func (v *view) Draw(s *leaf.State, c *canvas.Canvas) {
	st := v.known(s)
	if st == nil {
		if err := v.steps.Err(); err != nil && !v.steps.Pending() {
			leaf.Empty(s, c, "The iterations could not be found", err.Error(), "")
			return
		}
		leaf.Working(s, c, "looking for the training steps")
		return
	}
	if len(st.it.List) == 0 && s.Device.Info.Kind == traces.DeviceArena {
		leaf.Empty(s, c, "No iterations here", "This is a storage-allocation problem: buffers with a size "+
			"and a lifetime each, and no training steps.", "")
		return
	}
	if len(st.it.List) == 0 {
		leaf.Empty(s, c, "No iterations were found",
			"The recording has no annotated steps, no optimizer steps and no repeating pattern. "+
				"Wrap each step in a range in your program, so that gmemtop can find them:",
			"with torch.profiler.record_function(\"iteration\"):")
		return
	}
	body := c.Bounds()
	_, body = body.CutTop(leaf.Sentence(s, c, sentence(s, st)))
	body = body.Inset(1, 0)
	var chartAt, leaksAt canvas.Rect
	chartAt, body = body.CutTop(chartRows(c.Height(), len(st.it.List), body.H))
	v.drawChart(s, c, chartAt, st)
	if rows := v.leakRows(body.H); rows > 0 {
		body, leaksAt = body.CutBottom(rows)
	}
	v.drawSteps(s, c, body, st)
	if leaksAt.H > 0 {
		v.drawLeaks(s, c, leaksAt, st)
	}
}

// chartRows gives the chart what the table does not need, from a third to three fifths of the height.
func chartRows(h, iterations, room int) int {
	if h < 14 {
		return 0
	}
	return min(max(room-iterations-5, h/3), 3*h/4, room-4)
}

func (v *view) leakRows(room int) int {
	switch n := v.leaks.Rows(); {
	case room < 8:
		return 0
	case n == 0:
		return 1
	default:
		return min(n+2, room/2)
	}
}

// sentence says what the steps have in common, which one differs and whether memory grows.
func sentence(s *leaf.State, st *found) string {
	it, n := st.it, len(st.it.List)
	text := fmt.Sprintf("%d iterations", n)
	if n == 1 {
		text = "One iteration"
	}
	text += it.Source.Words()
	var odd []int
	for i := range it.List {
		if it.List[i].Odd && i >= it.Steady {
			odd = append(odd, i)
		}
	}
	switch {
	case n == 1:
		x := &it.List[0]
		text += ": peak " + s.Units.Bytes(x.PeakAllocated)
		if s.Device.Timeline().Trace.Clock.HasTime {
			text += ", " + timeline.Duration(x.Finish-x.Start) + " long"
		}
	case it.Steady == 0:
		text += ": steady throughout, peak " + s.Units.Bytes(it.List[0].PeakAllocated)
	case it.Steady < n:
		text += fmt.Sprintf(": steady from the %s on, peak %s", ordinal(it.Steady+1),
			s.Units.Bytes(it.List[it.Steady].PeakAllocated))
	case n < 3:
		text += ": too few to tell what is usual"
	default:
		text += ": none is steady yet"
	}
	switch {
	case it.Differs >= 0 && it.Differs < n:
		x := &it.List[it.Differs]
		text += "; " + x.Name + " differs"
		if x.Why(s.Units) != "" {
			text += ": " + x.Why(s.Units)
		}
		if len(odd) > 1 {
			text += fmt.Sprintf(" (%d more)", len(odd)-1)
		}
	case it.Steady < n && n > 2:
		text += "; none stands out"
	}
	if t := trend(s, it.Trend); t != "" {
		text += "; " + t
	}
	return text + "."
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// leastPoints is how many steady iterations are needed to see whether memory grows.
const leastPoints = 3

// trend says whether allocated bytes grow from step to step.
func trend(s *leaf.State, t steps.Trend) string {
	if t.Points < leastPoints {
		return ""
	}
	margin := s.Units.Bytes(int64((t.High - t.Low) / 2))
	switch {
	case t.Leaking:
		return fmt.Sprintf("allocated bytes grow by %s ± %s an iteration: a leak",
			s.Units.Bytes(int64(t.Slope)), margin)
	case t.Unseen:
		return "a leak would not show, because only blocks that the next recorded step uses are followed"
	case t.Slope == 0 && t.High == t.Low:
		return "no leak: memory does not grow"
	}
	return fmt.Sprintf("no leak: memory changes by %s ± %s an iteration", s.Units.Delta(int64(t.Slope)),
		margin)
}

// drawChart draws the band of the steady steps, the odd ones over it, and the one of the cursor on top.
func (v *view) drawChart(s *leaf.State, c *canvas.Canvas, at canvas.Rect, st *found) {
	if at.H < 3 {
		return
	}
	of, sh, ok := v.shapes.Value()
	if !ok || of.d != s.Device {
		leaf.Working(s, c.Sub(at), "overlaying the steps")
		return
	}
	th := s.Theme
	plot := curves.Plot{Span: sh.span, Events: sh.events, Share: sh.stretched}
	if sh.of > 0 {
		name := fmt.Sprintf("%d steady", sh.steady)
		if sh.of < sh.steady {
			name = fmt.Sprintf("%d of %d steady", sh.of, sh.steady)
		}
		plot.Curves = append(plot.Curves, curves.Curve{Name: name, High: sh.high, Low: sh.low, Style: th.Dim,
			Mark: ':'})
	}
	current := v.selected()
	var odd []int
	for i := range sh.odd {
		odd = append(odd, i)
	}
	slices.Sort(odd)
	named := 0
	for _, i := range odd {
		if i == current {
			continue
		}
		curve := curves.Curve{High: sh.odd[i], Style: th.Warn, Mark: 'o'}
		if i < st.it.Steady {
			curve.Style, curve.Mark = th.Faint, '.'
		} else if named < 3 {
			curve.Name = st.it.List[i].Name
			named++
		}
		plot.Curves = append(plot.Curves, curve)
	}
	if current >= 0 {
		// One iteration is as cheap to sample as one frame of a chart. Sample it here, so that it follows the
		// cursor at once.
		style := th.Accent
		if st.it.List[current].Odd && current >= st.it.Steady {
			style = th.Bad
		}
		plot.Curves = append(plot.Curves, curves.Curve{
			Name: st.it.List[current].Name, High: sh.shape(current), Style: style, Mark: '*',
		})
	}
	plot.Draw(s, c, at)
}

func (v *view) drawSteps(s *leaf.State, c *canvas.Canvas, at canvas.Rect, st *found) {
	list := st.it.List
	var peak, churn, growth int64
	for i := range list {
		peak, churn, growth = max(peak, list[i].PeakAllocated), max(churn, list[i].Churn),
			max(growth, max(list[i].Growth, -list[i].Growth))
	}
	peakUnit, peakText := s.Units.Column(peak)
	churnUnit, churnText := s.Units.Column(churn)
	growthUnit, growthText := s.Units.Column(growth)
	v.table.Columns[colPeak].Unit, v.table.Columns[colChurn].Unit = peakUnit, churnUnit
	v.table.Columns[colGrowth].Unit = ""
	if growth > 0 {
		v.table.Columns[colGrowth].Unit = growthUnit
	}
	clock := s.Device.Timeline().Trace.Clock.HasTime
	v.table.Draw(c, at, s.Theme, func(row, col int) table.Cell {
		x := &list[v.order[row]]
		th := s.Theme
		switch col {
		case colIndex:
			return table.Cell{Text: x.Name}
		case colPeak:
			cell := table.Cell{Text: strings.TrimSpace(peakText(x.PeakAllocated))}
			if x.Odd && v.order[row] >= st.it.Steady {
				cell.Style = th.Warn
			}
			return cell
		case colStep:
			if !clock {
				return table.Cell{Text: "–", Style: th.Faint}
			}
			return table.Cell{Text: timeline.Duration(x.Finish - x.Start)}
		case colChurn:
			return table.Cell{Text: strings.TrimSpace(churnText(x.Churn)), Style: th.Dim}
		case colBlocks:
			return table.Cell{Text: leaf.Count(int64(x.Blocks)), Style: th.Dim}
		case colGrowth:
			text := strings.TrimSpace(growthText(x.Growth))
			if x.Growth > 0 {
				text = "+" + text
			}
			if x.Growth == 0 {
				return table.Cell{Text: "0", Style: th.Dim}
			}
			return table.Cell{Text: text}
		case colSites:
			if x.NewSites == 0 {
				return table.Cell{Text: "–", Style: th.Faint}
			}
			return table.Cell{Text: "+" + strconv.Itoa(x.NewSites), Style: th.Dim}
		}
		return v.whyCell(s, st, v.order[row])
	})
}

func (v *view) whyCell(s *leaf.State, st *found, i int) table.Cell {
	x := &st.it.List[i]
	switch {
	case i < st.it.Steady && st.it.Steady < len(st.it.List) && x.Why(s.Units) == "":
		return table.Cell{Text: "warm-up", Style: s.Theme.Dim}
	case i < st.it.Steady:
		return table.Cell{Text: x.Why(s.Units), Style: s.Theme.Dim}
	case x.Odd:
		return table.Cell{Lead: "▲", LeadStyle: s.Theme.Warn, Text: x.Why(s.Units)}
	}
	return table.Cell{Text: x.Why(s.Units), Style: s.Theme.Dim}
}

func (v *view) drawLeaks(s *leaf.State, c *canvas.Canvas, at canvas.Rect, st *found) {
	if len(st.leaks) == 0 {
		text := "No call site grows with the iterations."
		if st.it.Trend.Unseen {
			text = "Whether a call site grows cannot be told: see above."
		}
		if st.it.Trend.Points < leastPoints {
			text = "It takes three steady iterations to tell which call sites grow."
		}
		c.TextMax(at.X, at.Y, at.W, s.Theme.Dim, text)
		return
	}
	if at.H > 3 {
		at.Y, at.H = at.Y+1, at.H-1
	}
	v.leaks.Draw(c, at, s.Theme, func(row, col int) table.Cell {
		l := st.leaks[row]
		switch col {
		case 0:
			return table.Cell{Text: s.Units.Delta(int64(l.Slope)), Style: s.Theme.Warn}
		case 1:
			return table.Cell{Text: s.Units.Bytes(int64(l.Low)) + " to " + s.Units.Bytes(int64(l.High)),
				Style: s.Theme.Dim}
		case 2:
			return table.Cell{Text: s.Units.Bytes(l.Bytes)}
		case 3:
			return table.Cell{Text: leaf.Count(int64(l.Blocks)), Style: s.Theme.Dim}
		}
		if site := sites.Name(s.Device, l.Stack); site != "" {
			return table.Cell{Text: site, Style: leaf.Linked(s, s.Device, l.Stack, canvas.Style{})}
		}
		return table.Cell{Text: "recorded without a stack", Style: s.Theme.Dim}
	})
}
