package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// WriteText prints s on about one screen: the answer in one sentence, then the figures that prove it.
func (s *Stats) WriteText(w io.Writer, o Options) error {
	p := newPrinter(o)
	p.line("%s", s.Headline)
	p.line("")
	p.line("trace       %s", strings.Join(s.facts(o), " · "))
	if s.Missing != "" && s.Kind == traces.Point.String() {
		p.line("            %s", s.Missing)
	}
	for i := range s.Devices {
		if i > 0 {
			p.line("")
		}
		s.Devices[i].print(p, o, s.Headline)
	}
	if s.NoLines != "" {
		p.line("")
		p.line("%s", s.NoLines)
	}
	s.printLosses(p)
	return p.flush(w)
}

func (s *Stats) facts(o Options) []string {
	f := []string{s.Source.Path, s.Source.Format}
	if s.Source.Bytes > 0 {
		f = append(f, o.Units.Bytes(s.Source.Bytes))
	}
	if s.Source.Tool != "" {
		f = append(f, s.Source.Tool)
	}
	if s.Source.Rank.IsKnown() {
		f = append(f, "rank "+s.Source.Rank.String())
	}
	if s.Kind == traces.Point.String() {
		return append(f, "one moment")
	}
	f = append(f, s.Kind)
	if s.Complete {
		return append(f, "complete")
	}
	return f
}

func (s *Stats) printLosses(p *printer) {
	if len(s.Losses) == 0 {
		return
	}
	p.line("")
	p.line("not in this trace, or worth knowing")
	var rows []row
	for _, l := range s.Losses {
		rows = append(rows, row{l.Severity, right(Grouped(l.Count)), l.Name, l.Detail})
	}
	p.table("  ", rows)
}

func (d *DeviceStats) print(p *printer, o Options, headline string) {
	name := fmt.Sprintf("%s %d", d.DeviceKind, d.Device)
	if d.Name != "" {
		name += " · " + d.Name
	}
	if d.TotalBytes != nil {
		name += " · " + o.Units.Bytes(*d.TotalBytes)
	}
	counts := []string{timeline.Counted(d.Events, "event"), timeline.Counted(d.Allocations, "allocation")}
	if d.oneMoment {
		counts = []string{timeline.Counted(d.Peak.blocks(), "block")}
	}
	counts = append(counts, timeline.Counted(d.Segments, "segment"), timeline.Counted(d.Streams, "stream"))
	if d.OOMs > 0 {
		counts = append(counts, timeline.Counted(d.OOMs, "out-of-memory event"))
	}
	p.line("device      %s · %s", name, strings.Join(counts, " · "))
	if d.Window != nil {
		p.line("window      events %s to %s", Grouped(d.Window.FirstEvent), Grouped(d.Window.EndEvent))
	}
	if d.ExactnessReason != "" {
		p.line("figures     %s: %s", strings.ReplaceAll(d.Exactness, "_", " "), d.ExactnessReason)
	}
	if d.Headline != headline {
		p.line("            %s", d.Headline)
	}
	p.line("")
	d.printTotals(p, o)
	d.printPeak(p, o)
	d.printIterations(p, o)
}

// printTotals prints the table of allocated, active and reserved bytes at the start, the peak and the end.
// Requested bytes are below the first two if they differ.
func (d *DeviceStats) printTotals(p *printer, o Options) {
	type figure struct {
		name             string
		start, peak, end *int64
	}
	allocated := figure{"allocated", d.StartAllocated, d.PeakAllocated, d.EndAllocated}
	active := figure{"active", d.StartActive, d.PeakActive, d.EndActive}
	figures := []figure{
		allocated, {"  requested", d.StartAllocatedRequested, d.PeakAllocatedRequested,
			d.EndAllocatedRequested},
		active, {"  requested", d.StartActiveRequested, d.PeakActiveRequested, d.EndActiveRequested},
		{"reserved", d.StartReserved, d.PeakReserved, d.EndReserved},
	}
	same := func(x, y *int64) bool { return x == nil || y == nil || *x == *y }
	for i := 2; i >= 0; i -= 2 { // leave out requested bytes that add nothing
		if x, y := figures[i], figures[i+1]; same(x.start, y.start) && same(x.peak, y.peak) &&
			same(x.end, y.end) {
			figures = slices.Delete(figures, i+1, i+2)
		}
	}
	largest := int64(0)
	for _, f := range figures {
		for _, v := range []*int64{f.start, f.peak, f.end} {
			if v != nil {
				largest = max(largest, *v)
			}
		}
	}
	unit, format := o.Units.Column(largest)
	cell := func(v *int64) string {
		if v == nil {
			return right("–")
		}
		return right(format(*v))
	}
	rows := []row{{unit, right("start"), right("peak"), right("end")}}
	for _, f := range figures {
		if f.start == nil && f.peak == nil && f.end == nil {
			continue
		}
		rows = append(rows, row{f.name, cell(f.start), cell(f.peak), cell(f.end)})
	}
	if d.oneMoment { // its start, peak and end are one
		for i := range rows {
			rows[i] = rows[i][:2]
		}
		rows[0][1] = ""
	}
	p.table("  ", rows)
	if d.PeakEvent != nil && !d.oneMoment {
		when := fmt.Sprintf("event %s", Grouped(*d.PeakEvent))
		if d.PeakTime != nil {
			when = timeline.Duration(*d.PeakTime) + " after the first event, " + when
		}
		p.line("  peak of allocated at %s", when)
	}
	if f := d.Fragmentation; f != nil {
		unit, format = o.Units.Column(f.Reserved)
		at := "at the " + f.At
		if d.oneMoment {
			at = "at this moment"
		}
		p.line("  %s: requested %s + rounding %s + fragmented %s + cached %s = reserved %s "+
			"%s; largest free block %s", at,
			format(f.ActiveRequested), format(f.Internal), format(f.Stranded), format(f.Cached),
			format(f.Reserved), unit,
			o.Units.Bytes(f.LargestFree))
	}
}

func (d *DeviceStats) printPeak(p *printer, o Options) {
	total := int64(0)
	for _, c := range d.Peak.ByCategory {
		total += c.Bytes
	}
	if total == 0 {
		return
	}
	unit, format := o.Units.Column(total)
	p.line("")
	if d.oneMoment {
		p.line("  held at this moment, by category")
	} else {
		p.line("  held at the peak, by category")
	}
	rows := []row{}
	for _, c := range d.Peak.ByCategory {
		name := c.Name
		if c.Inferred {
			name = "~" + name
		}
		rows = append(rows, row{name, right(format(c.Bytes) + " " + unit), right(Percent(c.Bytes, total)),
			bar(c.Bytes, total, 24)})
	}
	p.table("    ", rows)
	top := o.top(5)
	group := func(title string, n int, at func(i int) (name string, bytes int64, blocks int)) {
		rows := []row{}
		if n == 1 {
			if name, _, _ := at(0); name == "no stack" || name == "outside of modules" {
				return // everything is in one meaningless group
			}
		}
		for i := range min(n, top) {
			name, bytes, blocks := at(i)
			rows = append(rows, row{right(format(bytes) + " " + unit), right(Percent(bytes, total)),
				right(blocksText(blocks)),
				shorten(name, 96)})
		}
		if len(rows) == 0 {
			return
		}
		p.line("  %s", title)
		p.table("    ", rows)
	}
	b := &d.Peak
	group("by call site", len(b.BySite), func(i int) (string, int64, int) {
		return b.BySite[i].Site, b.BySite[i].Bytes, b.BySite[i].Blocks
	})
	group("by module", len(b.ByModule), func(i int) (string, int64, int) {
		return b.ByModule[i].Name, b.ByModule[i].Bytes, b.ByModule[i].Blocks
	})
	group("by size", len(b.BySize), func(i int) (string, int64, int) {
		return b.BySize[i].Name, b.BySize[i].Bytes,
			b.BySize[i].Blocks
	})
}

// printIterations prints the steps; if there are many, the first ones and those that stand out.
func (d *DeviceStats) printIterations(p *printer, o Options) {
	if len(d.Iterations) == 0 {
		return
	}
	top := max(o.top(5), 1)
	peak, churn := int64(0), int64(0)
	for _, it := range d.Iterations {
		peak, churn = max(peak, it.PeakAllocated), max(churn, it.Churn)
	}
	unit, format := o.Units.Column(peak)
	churnUnit, churnFormat := o.Units.Column(churn)
	p.line("")
	p.line("  %s%s", timeline.Counted(len(d.Iterations), "iteration"), d.Iterations[0].How)
	rows := []row{{right("it"), right("peak " + unit), right("time"), right("allocs " + churnUnit),
		right("blocks"), ""}}
	shown := 0
	for _, it := range d.Iterations {
		if shown >= top && !it.Odd || shown >= 2*top {
			continue
		}
		shown++
		length := "–"
		if it.Start != nil {
			length = timeline.Duration(*it.End - *it.Start)
		}
		why := it.Why
		if it.Odd && why == "" {
			why = "differs from the steady ones"
		}
		rows = append(rows, row{right(steps.IterationNumber(it.Name)), right(format(it.PeakAllocated)),
			right(length),
			right(churnFormat(it.Churn)),
			right(Grouped(it.Blocks)), why})
	}
	p.table("    ", rows)
	if rest := len(d.Iterations) - shown; rest > 0 {
		p.line("    and %s more like these", Grouped(rest))
	}
	if t := d.Trend; t != nil {
		word := "no leak"
		switch {
		case t.Leaking:
			word = "leaking"
		case t.Unseen:
			word = "a leak would not show here, because only blocks that the next recorded step uses are " +
				"followed"
		}
		if t.Low == 0 && t.High == 0 && !t.Unseen {
			p.line("    %s: memory does not grow", word)
			return
		}
		p.line("    %s: allocated bytes change by %s an iteration (95 %% between %s and %s)", word,
			o.Units.Delta(int64(t.Slope)), o.Units.Delta(int64(t.Low)), o.Units.Delta(int64(t.High)))
	}
}
