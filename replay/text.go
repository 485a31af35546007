package replay

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// TextOptions say how a comparison is printed.
type TextOptions struct {
	Units timeline.Units
	// Width is that of the terminal, in cells: sentences are wrapped, and columns are dropped until the table
	// fits. 0 means no limit.
	Width int
	// ASCII avoids all other characters; Notes prints the notes of each result.
	ASCII, Notes bool
}

// WriteText writes the comparison for a reader: the answer, the problem, the table, and what is not available
// and why.
func (c *Comparison) WriteText(w io.Writer, o TextOptions) error {
	t := &textReport{text: text{o: o}, c: c}
	t.line("", c.Sentence(o.Units))
	if s := c.Smallest; s != nil {
		t.line("", s.Sentence(c, o.Units))
		for _, command := range s.Commands() { // not wrapped: they are there to be copied
			t.b.WriteString("  " + command + "\n")
		}
	}
	t.b.WriteByte('\n')
	t.writeProblem()
	t.writeTable()
	t.writeMeasured()
	t.writeReasons()
	if o.Notes {
		t.writeNotes()
	}
	s := t.b.String()
	if o.ASCII {
		s = asciiText.Replace(s)
	}
	_, err := io.WriteString(w, s)
	return err
}

// asciiText replaces the characters of sentences that are not ASCII.
var asciiText = strings.NewReplacer("µs", "us", "·", "-", "≥", ">=", "≤", "<=", "×", "x", "–", "-")

// textReport writes a comparison as text.
type textReport struct {
	text
	c *Comparison
}

// text writes wrapped lines.
type text struct {
	b strings.Builder
	o TextOptions
}

// line writes a line next to a heading, which has its own column, and wraps it.
func (t *text) line(head, s string) {
	if head != "" {
		head = fmt.Sprintf("%-9s ", head)
	}
	t.wrap(head, s)
}

// wrap writes a line after a head, and indents its continuation lines.
func (t *text) wrap(head, s string) {
	t.b.WriteString(head)
	at := len(head)
	for i, word := range strings.Split(strings.ReplaceAll(s, "\n", " "), " ") { // names may hold line ends
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case t.o.Width > 0 && at+1+n > t.o.Width:
			t.b.WriteString("\n" + strings.Repeat(" ", len(head)))
			at = len(head)
		default:
			t.b.WriteByte(' ')
			at++
		}
		t.b.WriteString(word)
		at += n
	}
	t.b.WriteByte('\n')
}

func (t *textReport) writeProblem() {
	p, u := t.c.Problem, t.o.Units
	live, _ := p.PeakLive()
	what := name(p)
	if p.Iterations > 1 {
		what += " (two iterations as one)"
	}
	t.line("problem", fmt.Sprintf("%s, %s, %s, %s", what, timeline.Counted(len(p.Ops), "op"),
		timeline.Counted(len(p.Buffers), "buffer"), p.Kind))
	t.line("memory", fmt.Sprintf("%s alive at the peak; no plan can go below %s", u.Bytes(live),
		u.Bytes(plan.LeastResident(p))))
	switch {
	case !p.HasTimes:
		t.line("time", "the recording has no clock: step times mean nothing and are left out")
	case p.TimesInferred:
		t.line("time", fmt.Sprintf("~%s an iteration with everything kept: estimated, not measured on the "+
			"device", timeline.Duration(t.c.Baseline)))
	default:
		t.line("time", timeline.Duration(t.c.Baseline)+" an iteration with everything kept")
	}
	if p.Hardware.Name != "" {
		t.line("hardware", hardwareLine(&p.Hardware))
	}
	if t.c.Budget > 0 {
		s := u.Bytes(t.c.Budget)
		if t.c.Net != t.c.Budget {
			s += ", of which " + u.Bytes(t.c.Net) + " for buffers"
		}
		t.line("budget", s)
	}
	for _, n := range t.c.BatchNotes {
		t.line("batch", n)
	}
	if t.c.Fidelity != nil {
		t.line("emulator", t.c.Fidelity.text(u))
	}
	for _, n := range t.c.notes(u) {
		t.line("note", n)
	}
	t.b.WriteByte('\n')
}

// hardwareLine says how fast copies are, and how that is known.
func hardwareLine(h *plan.Hardware) string {
	if h.NoEngines {
		source := "by what --notes says"
		if h.Measured {
			source = "as measured there"
		}
		return fmt.Sprintf("%s: copies %s out of memory and %s back, made by the thread that computes; %s",
			h.Name, rate(h.D2H), rate(h.H2D), source)
	}
	source := "by data sheets and assumptions that --notes lists"
	if h.Measured {
		source = "as measured on it"
	}
	return fmt.Sprintf("%s: %s to the host, %s from it, %s; ops take as long as recorded", h.Name,
		rate(h.D2H), rate(h.H2D), source)
}

func name(p *plan.Problem) string {
	if p.Name == "" {
		return "one iteration"
	}
	return p.Name
}

func rate(l plan.Link) string { return fmt.Sprintf("%.3g GB/s", l.BytesPerSecond/1e9) }

// column is a column of the table. A narrow table drops the columns with the greatest drop first; those with
// 0 stay.
type column struct {
	title string
	left  bool
	drop  int
	cell  func(r *Result) string
}

// tick is a table's sign for yes or no.
func (t *text) tick(yes bool) string {
	switch {
	case t.o.ASCII && yes:
		return "yes"
	case t.o.ASCII:
		return "no"
	case yes:
		return "✓"
	}
	return "✗"
}

// none is a table's sign for nothing.
func (t *text) none() string {
	if t.o.ASCII {
		return "-"
	}
	return "–"
}

// footprintCell prints the footprints of rows in one common unit.
func footprintCell(o TextOptions, rows []*Result) func(*Result) string {
	var footprints []int64
	for _, r := range rows {
		footprints = append(footprints, r.Measurement.Footprint)
	}
	unit, print := FootprintColumn(o.Units, footprints)
	return func(r *Result) string { return print(r.Measurement.Footprint) + " " + unit }
}

// lengthCell prints a time in nanoseconds, or none for 0.
func lengthCell(n int64, none string) string {
	if n == 0 {
		return none
	}
	return timeline.Duration(n)
}

// columns returns the table's columns, without empty ones.
func (t *textReport) columns(rows []*Result) []column {
	none := t.none()
	footprint := footprintCell(t.o, rows)
	size := func(n int64) string {
		if n == 0 {
			return none
		}
		return t.o.Units.Bytes(n)
	}
	length := func(n int64) string { return lengthCell(n, none) }
	some := func(f func(r *Result) int64) bool {
		return slices.ContainsFunc(rows, func(r *Result) bool { return f(r) != 0 })
	}
	timed := t.c.Problem.HasTimes
	inferred := ""
	if t.c.Problem.TimesInferred {
		inferred = "~"
	}
	columns := []column{
		{"manager", true, 0, func(r *Result) string { return r.Name() }},
		{"runs", true, 0, func(r *Result) string { return r.Runs() }},
	}
	add := func(there bool, x column) {
		if there {
			columns = append(columns, x)
		}
	}
	add(t.c.Budget > 0, column{"fits", true, 0,
		func(r *Result) string { return t.tick(r.Fits) }})
	add(true, column{"footprint", false, 0, footprint})
	add(some(func(r *Result) int64 { return r.Plan.LowerBound }),
		column{"above min", false, 5, func(r *Result) string {
			if r.Plan.LowerBound <= 0 {
				return none
			}
			return fmt.Sprintf("%.2f %%", 100*(float64(r.Measurement.Footprint)/float64(r.Plan.LowerBound)-1))
		}})
	add(timed, column{inferred + "step", false, 0,
		func(r *Result) string { return timeline.Duration(r.Measurement.StepTime) }})
	add(timed, column{"overhead", false, 0, func(r *Result) string { return Percent(r.Overhead) }})
	add(timed && some(func(r *Result) int64 { return r.Measurement.Stall }),
		column{"stall", false, 1, func(r *Result) string { return length(r.Measurement.Stall) }})
	add(some(func(r *Result) int64 { return r.Measurement.SwappedOut }),
		column{"out", false, 3, func(r *Result) string { return size(r.Measurement.SwappedOut) }})
	add(some(func(r *Result) int64 { return r.Measurement.SwappedIn }),
		column{"in", false, 4, func(r *Result) string { return size(r.Measurement.SwappedIn) }})
	add(some(func(r *Result) int64 { return r.Measurement.RecomputeTime }),
		column{"recompute", false, 2, func(r *Result) string { return length(r.Measurement.RecomputeTime) }})
	add(slices.ContainsFunc(rows, func(r *Result) bool { return r.MaxBatchKnown }),
		column{"max batch", false, 0, func(r *Result) string {
			if !r.MaxBatchKnown {
				return none
			}
			return r.batch()
		}})
	add(true, column{"planned in", false, 6,
		func(r *Result) string { return timeline.Duration(r.Plan.Planning.Nanoseconds()) }})
	return columns
}

// The answers of [Result.Runs].
const (
	InPyTorch   = "in PyTorch"
	inACompiler = "in a compiler"
	InTheory    = "in theory"
)

// Runs says for people where the result's plan can be carried out.
func (r *Result) Runs() string {
	switch {
	case r.Executor == plan.Reordering:
		return inACompiler
	case r.runnable():
		return InPyTorch
	}
	return InTheory
}

// writeTable prints the available results, best first.
func (t *textReport) writeTable() {
	var rows []*Result
	for _, r := range t.c.ranked() {
		if r.Available {
			rows = append(rows, r)
		}
	}
	if len(rows) > 0 {
		t.table(t.columns(rows), rows)
	}
}

// table prints the columns' titles and a line for each row.
func (t *text) table(columns []column, rows []*Result) {
	cells := make([][]string, len(columns))
	widths := make([]int, len(columns))
	for i, x := range columns {
		cells[i] = append(cells[i], x.title)
		for _, r := range rows {
			cells[i] = append(cells[i], x.cell(r))
		}
		for _, s := range cells[i] {
			widths[i] = max(widths[i], utf8.RuneCountInString(s))
		}
	}
	shown, dropped := fitting(columns, widths, t.o.Width)
	for k := range len(rows) + 1 {
		line := ""
		for n, i := range shown {
			if n > 0 {
				line += "  "
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cells[i][k]))
			if columns[i].left {
				line += cells[i][k] + pad
			} else {
				line += pad + cells[i][k]
			}
		}
		t.b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if len(dropped) > 0 {
		t.line("", fmt.Sprintf("(no room for %s: widen the terminal, or pipe the output)",
			strings.Join(dropped, ", ")))
	}
	t.b.WriteByte('\n')
}

// fitting chooses the columns that fit in width cells, all if width is 0, and names the others.
func fitting(columns []column, widths []int, width int) (shown []int, dropped []string) {
	need, most := -2, 0
	for i := range columns {
		need += widths[i] + 2
		most = max(most, columns[i].drop)
	}
	keep := most
	for ; width > 0 && need > width && keep > 0; keep-- {
		for i := range columns {
			if columns[i].drop == keep {
				need -= widths[i] + 2
			}
		}
	}
	for i := range columns {
		if columns[i].drop <= keep {
			shown = append(shown, i)
		} else {
			dropped = append(dropped, columns[i].title)
		}
	}
	return shown, dropped
}

// writeReasons lists what is not available, with managers grouped by reason.
func (t *textReport) writeReasons() {
	var reasons []string
	names := map[string][]string{}
	for _, r := range slices.Concat(pointers(t.c.Results), pointers(t.c.Measured)) {
		if r.Available {
			continue
		}
		if names[r.Reason] == nil {
			reasons = append(reasons, r.Reason)
		}
		n := r.Info.Name
		if r.Executor != plan.Ideal {
			n += " (" + r.Runs() + ")"
		}
		if r.Target != t.c.firstTarget() {
			n += " on " + r.Target
		}
		names[r.Reason] = append(names[r.Reason], n)
	}
	for _, reason := range reasons {
		t.line("", "not available: "+strings.Join(names[reason], ", "))
		t.wrap("  ", reason)
	}
}

// writeNotes prints the notes about the hardware and each result.
func (t *textReport) writeNotes() {
	if h := t.c.Problem.Hardware; h.Origin != "" {
		t.line("", h.Name+": "+h.Origin)
	}
	for _, r := range t.c.ranked() {
		for _, n := range r.notes() {
			t.line("", fmt.Sprintf("%s (%s): %s", r.Info.Name, r.Executor, n))
		}
	}
	for _, r := range pointers(t.c.Measured) {
		for _, n := range r.Measurement.Notes {
			t.line("", fmt.Sprintf("%s (%s) on %s: %s", r.Info.Name, r.Executor, r.Target, n))
		}
	}
}
