package report

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
)

// Diff is the report of what changed from recording A to recording B.
type Diff struct {
	SchemaVersion int       `json:"schema_version"`
	A             Source    `json:"a"`
	B             Source    `json:"b"`
	Device        string    `json:"device"`
	Sentence      string    `json:"sentence"`
	ComparedA     DiffSide  `json:"compared_a"`
	ComparedB     DiffSide  `json:"compared_b"`
	Note          string    `json:"note"`
	Limits        string    `json:"limits"`
	Metrics       []Metric  `json:"metrics"`
	Categories    []DiffRow `json:"categories"`
	Sites         []DiffRow `json:"sites"`
	Checks        []Check   `json:"checks"`
	Failed        bool      `json:"failed"`
	apart         bool      // the call sites cannot be compared
}

// DiffSide is the moment of a recording that the rows compare.
type DiffSide struct {
	Iteration string `json:"iteration"` // its name, "" for none
	Kind      string `json:"kind"`      // warm-up, steady, outside of the steps, or "" if not known
	Event     *int64 `json:"event"`     // nil for the start of the recording
	Bytes     int64  `json:"bytes"`     // allocated then
	where     string
}

func newDiffSide(d *timeline.Device, s runs.Side) DiffSide {
	return DiffSide{Iteration: s.Step, Kind: s.Kind.String(), Event: eventOf(s.At),
		Bytes: d.Allocated.At(s.At), where: s.Where(d)}
}

// Metric is one figure of both recordings. Change is (B - A) / A, nil if A is 0.
type Metric struct {
	Name   string   `json:"name"`
	Unit   string   `json:"unit"`
	A      int64    `json:"a"`
	B      int64    `json:"b"`
	Delta  int64    `json:"delta"`
	Change *float64 `json:"change"`
}

// DiffRow is a category or a call site in both recordings, in allocated bytes at the moments compared.
type DiffRow struct {
	Name    string   `json:"name"`
	A       int64    `json:"a_bytes"`
	B       int64    `json:"b_bytes"`
	Delta   int64    `json:"delta_bytes"`
	BlocksA int      `json:"a_blocks"`
	BlocksB int      `json:"b_blocks"`
	Cause   string   `json:"cause"`
	StackA  []string `json:"a_stack,omitempty"`
	StackB  []string `json:"b_stack,omitempty"`
}

// NewDiff compares the devices of a and b that the options select, or the main ones if they select several.
func NewDiff(ctx context.Context, a, b *timeline.Timeline, checks []Threshold, o Options) (*Diff, error) {
	da, err := mainOf(a, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Trace.Source.Path, err)
	}
	db, err := mainOf(b, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Trace.Source.Path, err)
	}
	cmp, err := compareDevices(ctx, da, db, o)
	if err != nil {
		return nil, err
	}
	d := &Diff{
		SchemaVersion: SchemaVersion, A: newSource(a.Trace), B: newSource(b.Trace),
		Sentence: cmp.Sentence(o.Units), Device: DeviceName(da.Info),
		ComparedA: newDiffSide(da, cmp.SideA), ComparedB: newDiffSide(db, cmp.SideB), Note: cmp.Note(),
		Limits: cmp.Limits(), apart: cmp.SitesApart(),
		Metrics: []Metric{}, Categories: []DiffRow{}, Sites: []DiffRow{}, Checks: []Check{},
	}
	if da.Info.Kind != db.Info.Kind || da.Info.Ordinal != db.Info.Ordinal {
		d.Device += " and " + DeviceName(db.Info)
	}
	for _, m := range cmp.Metrics {
		row := Metric{Name: m.Name, Unit: m.Unit, A: m.A, B: m.B, Delta: m.B - m.A}
		if m.A != 0 {
			change := float64(m.B-m.A) / float64(m.A)
			row.Change = &change
		}
		d.Metrics = append(d.Metrics, row)
	}
	for _, r := range cmp.Categories {
		d.Categories = append(d.Categories, newDiffRow(r, nil, nil))
	}
	for _, r := range first(cmp.Sites, o.top(defaultTopJSON)) {
		d.Sites = append(d.Sites, newDiffRow(r, a.Places(), b.Places()))
	}
	for _, t := range checks {
		c, err := t.check(d.Metrics)
		if err != nil {
			return nil, err
		}
		d.Checks = append(d.Checks, c)
		d.Failed = d.Failed || c.Failed
	}
	return d, nil
}

// compareDevices compares the two peaks, or the iterations that the options name.
func compareDevices(ctx context.Context, a, b *timeline.Device, o Options) (*runs.Diff, error) {
	if o.Iterations == [2]string{} {
		return runs.Compare(ctx, a, b)
	}
	sideA, err := runs.StepSide(a, o.Iterations[0])
	if err != nil {
		return nil, noIteration(a, o.Iterations[0], err)
	}
	sideB, err := runs.StepSide(b, o.Iterations[1])
	if err != nil {
		return nil, noIteration(b, o.Iterations[1], err)
	}
	return runs.CompareSides(ctx, a, b, sideA, sideB)
}

func noIteration(d *timeline.Device, number string, err error) error {
	return fmt.Errorf("%s has no iteration %q: %w", d.Timeline().Trace.Source.Path, number, err)
}

func mainOf(t *timeline.Timeline, o Options) (*timeline.Device, error) {
	devices, err := o.Devices.Of(t)
	if err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, &traces.UnsupportedError{Reason: "this trace has no memory data for any device"}
	}
	chosen := timeline.Timeline{Trace: t.Trace, Devices: devices}
	return chosen.Main(), nil
}

func newDiffRow(r runs.DiffRow, a, b *traces.Trace) DiffRow {
	row := DiffRow{Name: r.Name, A: r.A, B: r.B, Delta: r.B - r.A, BlocksA: r.BlocksA, BlocksB: r.BlocksB,
		Cause: r.Cause}
	if a != nil {
		row.StackA = StackText(a, r.StackA)
	}
	if b != nil {
		row.StackB = StackText(b, r.StackB)
	}
	return row
}

// WriteText prints the difference on about one screen.
func (d *Diff) WriteText(w io.Writer, o Options) error {
	p := newPrinter(o)
	p.line("%s", d.Sentence)
	for _, c := range d.Checks {
		p.line("%s  %s: %s", c.word(), c.Expression, c.Text)
	}
	p.line("")
	p.line("A  %s%s", d.A.Path, d.ComparedA.behind())
	p.line("B  %s%s", d.B.Path, d.ComparedB.behind())
	p.line("on %s", d.Device)
	if d.Note != "" {
		p.line("")
		p.line("%s %s", d.Note, chooseSteps)
	}
	if d.Limits != "" {
		p.line("")
		p.line("%s", d.Limits)
	}
	p.line("")
	p.line("whole recordings")
	rows := []row{{"", right("A"), right("B"), right("change"), ""}}
	for _, m := range d.Metrics {
		rows = append(rows, row{runs.MetricWords(m.Name), right(m.text(m.A, o)),
			right(m.text(m.B, o)), right(m.delta(o)),
			right(m.changeText())})
	}
	p.table("  ", rows)
	d.printRows(p, o, "at the peaks, by category", d.Categories, len(d.Categories))
	if !d.apart {
		d.printRows(p, o, "at the peaks, by call site", d.Sites, o.top(10))
	}
	return p.flush(w)
}

// chooseSteps says how to compare other steps than those that were compared.
const chooseSteps = "--iteration 2,3 compares iteration 2 of A with 3 of B; gmemtop stats lists them."

// behind is printed after a recording's name and says which of its moments is compared.
func (s *DiffSide) behind() string {
	if s.where == "" {
		return ""
	}
	return " · " + s.where
}

func (d *Diff) printRows(p *printer, o Options, title string, list []DiffRow, top int) {
	largest := int64(0)
	for _, r := range list {
		largest = max(largest, r.A, r.B)
	}
	unit, format := o.Units.Column(largest)
	rows := []row{{right("A " + unit), right("B " + unit), right("change"), "", ""}}
	for _, r := range list {
		if r.Delta == 0 && r.A == 0 || len(rows) > top {
			continue
		}
		rows = append(rows, row{right(format(r.A)), right(format(r.B)), right(deltaText(r.Delta, o)), r.Cause,
			shorten(r.Name, 90)})
	}
	if len(rows) == 1 {
		return
	}
	p.line("")
	p.line("%s", title)
	p.table("  ", rows)
}

func (m *Metric) text(v int64, o Options) string {
	switch m.Unit {
	case "bytes":
		return o.Units.Bytes(v)
	case "ns":
		return timeline.Duration(v)
	}
	return Grouped(v)
}

func (m *Metric) delta(o Options) string {
	sign := "+"
	if m.Delta == 0 {
		return "="
	}
	if m.Delta < 0 {
		sign = "-"
	}
	switch m.Unit {
	case "bytes":
		return o.Units.Delta(m.Delta)
	case "ns":
		return sign + timeline.Duration(max(m.Delta, -m.Delta))
	}
	return sign + Grouped(max(m.Delta, -m.Delta))
}

func (m *Metric) changeText() string {
	if m.Change == nil || m.Delta == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f %%", 100**m.Change)
}

// WriteMarkdown prints the difference for a pull request's comment.
func (d *Diff) WriteMarkdown(w io.Writer, o Options) error {
	p := &printer{ascii: o.ASCII}
	p.line("**%s**", EscapeMarkdown(d.Sentence))
	p.line("")
	if d.Note != "" {
		p.line("%s", EscapeMarkdown(d.Note))
		p.line("")
	}
	if d.Limits != "" {
		p.line("%s", EscapeMarkdown(d.Limits))
		p.line("")
	}
	if len(d.Checks) > 0 {
		for _, c := range d.Checks {
			p.line("- **%s** %s: %s", c.word(), code(c.Expression), EscapeMarkdown(c.Text))
		}
		p.line("")
	}
	p.line("| %s | A | B | change | |", EscapeMarkdown(d.Device))
	p.line("|---|--:|--:|--:|--:|")
	for _, m := range d.Metrics {
		p.line("| %s | %s | %s | %s | %s |", runs.MetricWords(m.Name), m.text(m.A, o),
			m.text(m.B, o), m.delta(o),
			m.changeText())
	}
	section := func(title string, list []DiffRow, top int) {
		p.line("")
		p.line("| %s | A | B | change | why |", title)
		p.line("|---|--:|--:|--:|---|")
		for i, r := range list {
			if i < top && (r.Delta != 0 || r.A != 0) {
				p.line("| %s | %s | %s | %s | %s |", EscapeMarkdown(r.Name), o.Units.Bytes(r.A),
					o.Units.Bytes(r.B),
					deltaText(r.Delta, o), EscapeMarkdown(r.Cause))
			}
		}
	}
	section("category", d.Categories, len(d.Categories))
	if !d.apart {
		section("call site", d.Sites, o.top(10))
	}
	p.line("")
	p.line("A: %s%s; B: %s%s", code(d.A.Path), EscapeMarkdown(d.ComparedA.behind()), code(d.B.Path),
		EscapeMarkdown(d.ComparedB.behind()))
	return p.flush(w)
}

var markdownEscapes = strings.NewReplacer(
	"|", "\\|",
	"&", "&amp;",
	"<", "&lt;",
	">", "&gt;",
	"*", "\\*",
	"_", "\\_",
	"[", "\\[",
	"]", "\\]",
	"`", "'",
)

// EscapeMarkdown escapes characters that would break a table cell or start markup, including links and
// images.
func EscapeMarkdown(s string) string { return markdownEscapes.Replace(Printable(s)) }

// code formats s as inline code in Markdown, in which only the backtick is special.
func code(s string) string { return "`" + strings.ReplaceAll(Printable(s), "`", "'") + "`" }

// deltaText returns a difference in bytes, "=" for none.
func deltaText(n int64, o Options) string {
	if n == 0 {
		return "="
	}
	return o.Units.Delta(n)
}
