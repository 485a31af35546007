package figure

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/steps"
)

// Markdown writes the stats of a device as a document for a pull request, an issue or a notebook.
func Markdown(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
	so := o.Options
	so.Devices = report.OnlyDevice(d.Info)
	s, err := report.NewStats(ctx, d.Timeline(), so)
	if err != nil {
		return err
	}
	m := &markdownWriter{units: o.Units}
	m.document(s, &s.Devices[0], max(o.Top, 10))
	_, err = w.Write(m.buf.Bytes())
	return err
}

type markdownWriter struct {
	buf   bytes.Buffer
	units timeline.Units
}

func (m *markdownWriter) f(format string, args ...any) { fmt.Fprintf(&m.buf, format+"\n", args...) }

func (m *markdownWriter) bytes(n *int64) string {
	if n == nil {
		return "–"
	}
	return m.units.Bytes(*n)
}

func (m *markdownWriter) document(s *report.Stats, d *report.DeviceStats, top int) {
	m.f("# Memory of %s\n", report.EscapeMarkdown(baseName(s.Source.Path)))
	m.f("**%s**\n", report.EscapeMarkdown(d.Headline))
	m.f("%s · %s %d · %s events · %s", s.Source.Format, d.DeviceKind, d.Device, report.Grouped(d.Events),
		s.Kind)
	m.f("figures are %s: %s\n", strings.ReplaceAll(d.Exactness, "_", " "),
		report.EscapeMarkdown(d.ExactnessReason))
	m.f("| | start | peak | end |\n|---|--:|--:|--:|")
	m.f("| allocated | %s | %s | %s |", m.bytes(d.StartAllocated), m.bytes(d.PeakAllocated),
		m.bytes(d.EndAllocated))
	m.f("| allocated, requested bytes | %s | %s | %s |", m.bytes(d.StartAllocatedRequested),
		m.bytes(d.PeakAllocatedRequested),
		m.bytes(d.EndAllocatedRequested))
	m.f("| active | %s | %s | %s |", m.bytes(d.StartActive), m.bytes(d.PeakActive), m.bytes(d.EndActive))
	m.f("| reserved | %s | %s | %s |", m.bytes(d.StartReserved), m.bytes(d.PeakReserved),
		m.bytes(d.EndReserved))
	if f := d.Fragmentation; f != nil {
		m.f("\nAt the %s: requested %s + rounding %s + fragmented %s + cached %s = reserved %s; "+
			"largest free block %s.", f.At,
			m.units.Bytes(f.ActiveRequested), m.units.Bytes(f.Internal), m.units.Bytes(f.Stranded),
			m.units.Bytes(f.Cached),
			m.units.Bytes(f.Reserved), m.units.Bytes(f.LargestFree))
	}
	total := int64(0)
	for _, c := range d.Peak.ByCategory {
		total += c.Bytes
	}
	m.f("\n## Held at the peak\n\n| category | bytes | share | blocks |\n|---|--:|--:|--:|")
	for _, c := range d.Peak.ByCategory {
		name := c.Name
		if c.Inferred {
			name = "~ " + name
		}
		m.f("| %s | %s | %s | %s |", report.EscapeMarkdown(name), m.units.Bytes(c.Bytes),
			report.Percent(c.Bytes, total),
			report.Grouped(c.Blocks))
	}
	m.f("\n| call site | bytes | share | blocks |\n|---|--:|--:|--:|")
	for i, r := range d.Peak.BySite {
		if i < top {
			m.f("| %s | %s | %s | %s |", report.EscapeMarkdown(r.Site), m.units.Bytes(r.Bytes),
				report.Percent(r.Bytes, total),
				report.Grouped(r.Blocks))
		}
	}
	m.iterations(d, top)
	if len(s.Losses) > 0 {
		m.f("\n## Not in this trace, or worth knowing\n\n| | count | what | |\n|---|--:|---|---|")
		for _, l := range s.Losses {
			m.f("| %s | %s | %s | %s |", report.EscapeMarkdown(l.Severity), report.Grouped(l.Count),
				report.EscapeMarkdown(l.Name),
				report.EscapeMarkdown(l.Detail))
		}
	}
}

func (m *markdownWriter) iterations(d *report.DeviceStats, top int) {
	if len(d.Iterations) == 0 {
		return
	}
	m.f("\n## Iterations\n\n%d%s.\n\n| | peak | time | allocated in it | blocks | "+
		"|\n|--:|--:|--:|--:|--:|---|",
		len(d.Iterations),
		d.Iterations[0].How)
	for i, it := range d.Iterations {
		if i >= top && !it.Odd {
			continue
		}
		length := "–"
		if it.Start != nil {
			length = timeline.Duration(*it.End - *it.Start)
		}
		m.f("| %s | %s | %s | %s | %s | %s |", steps.IterationNumber(it.Name),
			m.units.Bytes(it.PeakAllocated), length, m.units.Bytes(it.Churn),
			report.Grouped(it.Blocks), report.EscapeMarkdown(it.Why))
	}
}
