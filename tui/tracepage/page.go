package tracepage

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// page describes the recording in words.
type page struct {
	sentence string
	kind     traces.Kind
	missing  string
	sections []section
}

type section struct {
	title string
	lines []line
}

// line is a label and its text. Tone grades it.
type line struct {
	label, text string
	tone        tone
}

type tone uint8

const (
	plain tone = iota
	good
	warn
	bad
	dim
)

// longest is how many entries of a table are listed.
const longest = 40

func newPage(s *leaf.State) *page {
	t := s.Timeline.Trace
	p := &page{kind: t.Kind()}
	p.missing = t.Missing()
	p.sentence = sentence(s)
	p.add("source", sourceLines(s))
	p.add("figures", exactness(s))
	p.add("losses", losses(s))
	p.add("devices", devices(s))
	title := "process and clock"
	if t.OneMoment() {
		title = "process"
	}
	p.add(title, process(t))
	p.add("streams", streams(t))
	p.add("contents", contents(s))
	p.add("settings", settings(t.Settings))
	p.add("keys unknown to this version (kept)", settings(t.Extra))
	return p
}

func (p *page) add(title string, lines []line) {
	if len(lines) > 0 {
		p.sections = append(p.sections, section{title, lines})
	}
}

var formatNames = map[string]string{
	"described": "steps recorded op by op", "capture": "recording of a watched job",
	"torch_snapshot": "PyTorch memory snapshot", "kineto": "PyTorch profiler trace",
	"gmt":            "gmemtop recording",
	"minimalloc_csv": "storage-allocation problem", "jax_memory_profile": "JAX device memory profile",
	"pipedream":      "PipeDream layer profile",
	"smartpool_text": "trace of SmartPool or AutoSwap", "memory_timeline": "PyTorch memory timeline",
	"probes": "recording by probes in the kernel", traces.FormatNsys: "SQLite export of Nsight Systems",
	traces.FormatXLA: "XLA buffer assignment",
}

func formatName(f string) string {
	if n, ok := formatNames[f]; ok {
		return n
	}
	return strings.ReplaceAll(f, "_", " ") + " file"
}

func sentence(s *leaf.State) string {
	t := s.Timeline.Trace
	text := formatName(t.Source.Format)
	text = strings.ToUpper(text[:1]) + text[1:]
	if rank, known := t.Process.Rank.Value(); known {
		text += fmt.Sprintf(", rank %d", rank)
		if world := t.Process.WorldSize.Or(0); world > 0 {
			text += fmt.Sprintf(" of %d", world)
		}
	}
	devices := timeline.Counted(len(t.Devices), "device")
	switch {
	case t.OneMoment() && len(t.Devices) > 0:
		text += ": one moment of " + devices + ", without events"
	case len(t.Devices) > 0:
		text += ": " + timeline.Counted(t.Events.Len(), "event") + " on " + devices
	default:
		text += ": " + timeline.Counted(t.Events.Len(), "event")
	}
	lost := int64(0)
	for _, l := range allLosses(s.Timeline) {
		if l.Severity != traces.Info {
			lost += l.Count
		}
	}
	if d := s.Device; d != nil {
		switch {
		case d.Totals.Complete:
			text += "; complete: it begins empty and nothing was lost"
		case d.Totals.BeginsEmpty:
			text += "; it begins empty"
		case t.Events.Len() > 0 && !t.OneMoment():
			text += "; it begins in the middle of the run"
		}
		switch d.Totals.Exactness {
		case timeline.Exact:
			text += ", and its figures are exact"
		case timeline.LowerBound:
			text += ", and its figures are lower bounds"
		case timeline.Inferred:
			text += ", and some figures are inferred"
		}
	}
	if lost > 0 {
		text += fmt.Sprintf("; %s losses", leaf.Count(lost))
	}
	return text + "."
}

func allLosses(tl *timeline.Timeline) []traces.Loss {
	return append(tl.Trace.Losses[:len(tl.Trace.Losses):len(tl.Trace.Losses)], tl.Losses...)
}

func sourceLines(s *leaf.State) []line {
	t := s.Timeline.Trace
	file := t.Source.Path
	if file == "" {
		file = "none: captured from a running process; e saves it"
	}
	lines := []line{{"file", file, plain}, {"format", formatName(t.Source.Format), plain}}
	if t.Source.Bytes > 0 {
		lines = append(lines, line{"size", s.Units.Bytes(t.Source.Bytes), plain})
	}
	if t.Source.Tool != "" {
		lines = append(lines, line{"written by", t.Source.Tool, plain})
	}
	if t.Source.SyntheticAddresses {
		lines = append(lines, line{"addresses", "made up, only to tell blocks apart: the source has none",
			warn})
	}
	return lines
}

func exactness(s *leaf.State) []line {
	var lines []line
	for _, d := range s.Timeline.Devices {
		label := "figures"
		if len(s.Timeline.Devices) > 1 {
			label = deviceName(d.Info)
		}
		tot := &d.Totals
		text, tn := strings.ReplaceAll(tot.Exactness.String(), "_", " "), good
		if tot.Exactness != timeline.Exact {
			tn = warn
		}
		moment := s.Timeline.Trace.OneMoment()
		switch {
		case moment && tot.Exactness == timeline.Exact:
			text += ": they are the allocator's own at that moment"
		case tot.Reason != "":
			text += ": " + tot.Reason
		}
		lines = append(lines, line{label, text, tn})
		if moment || !tot.FinalKnown {
			continue
		}
		// A free of another size than its block's opens the law in requested bytes only.
		allocated, active := cmp.Or(tot.LawAllocated, tot.LawAllocatedRequested),
			cmp.Or(tot.LawActive, tot.LawActiveRequested)
		if allocated == 0 && active == 0 && tot.LawReserved == 0 {
			lines = append(lines, line{"check", "start + allocated − freed = end, for allocated, " +
				"active and reserved bytes", good})
		} else {
			lines = append(lines, line{"check", fmt.Sprintf(
				"start + allocated − freed differs from the end by %s allocated, %s active, %s reserved",
				s.Units.Delta(allocated), s.Units.Delta(active), s.Units.Delta(tot.LawReserved)), bad})
		}
	}
	return lines
}

func losses(s *leaf.State) []line {
	all := allLosses(s.Timeline)
	if len(all) == 0 {
		return []line{{"none", "everything in the source is in the trace", good}}
	}
	var lines []line
	for _, want := range []traces.Severity{traces.Fault, traces.DataLoss, traces.Info} {
		for _, l := range all {
			if l.Severity != want {
				continue
			}
			tn := dim
			switch l.Severity {
			case traces.DataLoss:
				tn = warn
			case traces.Fault:
				tn = bad
			}
			text := leaf.Count(l.Count) + " × " + strings.ReplaceAll(l.Name, "_", " ")
			if l.Detail != "" {
				text += ": " + l.Detail
			}
			lines = append(lines, line{strings.ReplaceAll(l.Severity.String(), "_", " "), text, tn})
		}
	}
	return lines
}

// deviceName is the name that the other views have for a device.
func deviceName(d traces.Device) string { return leaf.KindName(d.Kind) + " " + strconv.Itoa(d.Ordinal) }

func devices(s *leaf.State) []line {
	var lines []line
	for _, d := range s.Timeline.Devices {
		tot := &d.Totals
		var parts []string
		if d.Info.Name != "" {
			parts = append(parts, d.Info.Name)
		}
		if d.Info.TotalBytes > 0 {
			parts = append(parts, s.Units.Bytes(d.Info.TotalBytes))
		}
		if s.Timeline.Trace.OneMoment() {
			parts = append(parts, timeline.Counted(d.Allocs.Len(), "block"))
		} else {
			parts = append(parts, timeline.Counted(tot.Events, "event"),
				timeline.Counted(tot.Allocations, "allocation"))
		}
		if tot.Segments > 0 {
			parts = append(parts, timeline.Counted(tot.Segments, "segment"))
		}
		if tot.PeakAllocated > 0 {
			most := "peak "
			if s.Timeline.Trace.OneMoment() {
				most = "allocated "
			}
			parts = append(parts, most+s.Units.Bytes(tot.PeakAllocated))
		}
		if held := tot.PeakReserved.Or(0); held > 0 {
			parts = append(parts, "reserved "+s.Units.Bytes(held))
		}
		if tot.OOMs > 0 {
			parts = append(parts, fmt.Sprintf("%d out of memory", tot.OOMs))
		}
		lines = append(lines, line{deviceName(d.Info), strings.Join(parts, " · "), plain})
		if len(lines) == longest {
			return append(lines, line{"", fmt.Sprintf("… %d more", len(s.Timeline.Devices)-longest), dim})
		}
	}
	return lines
}

func process(t *traces.Trace) []line {
	var lines []line
	p := t.Process
	if p.Host != "" {
		lines = append(lines, line{"host", p.Host, plain})
	}
	if p.PID.IsKnown() {
		lines = append(lines, line{"pid", p.PID.String(), plain})
	}
	if p.Rank.IsKnown() {
		text := p.Rank.String()
		if p.WorldSize.Or(0) > 0 {
			text += " of " + p.WorldSize.String()
		}
		lines = append(lines, line{"rank", text, plain})
	}
	if t.OneMoment() {
		return lines // no clock matters
	}
	if !t.Clock.HasTime {
		return append(lines, line{"clock", "none: events are counted instead", warn})
	}
	if t.Clock.Epoch != 0 {
		lines = append(lines, line{"begins", time.Unix(0,
			t.Clock.Epoch).UTC().Format("2006-01-02 15:04:05.000 UTC"), plain})
	}
	text := "resolution " + timeline.Duration(max(t.Clock.Resolution, 1))
	if first, last := bounds(t); last > first {
		text += ", " + timeline.Duration(last-first) + " long"
	}
	return append(lines, line{"clock", text, plain})
}

// bounds returns the first and last time of the devices' rows, which are in order within each device.
func bounds(t *traces.Trace) (first, last int64) {
	known := false
	for i := range t.Devices {
		a, b := t.DeviceEvents(traces.DeviceID(i))
		if a == b {
			continue
		}
		lo, hi := t.Events.Time[a], t.Events.Time[b-1]
		if !known {
			first, last, known = lo, hi, true
		}
		first, last = min(first, lo), max(last, hi)
	}
	return first, last
}

func streams(t *traces.Trace) []line {
	if len(t.Streams) <= 1 {
		return nil
	}
	var lines []line
	for i, h := range t.Streams {
		if i == longest {
			return append(lines, line{"", leaf.Count(int64(len(t.Streams)-longest)) + " more", dim})
		}
		text := fmt.Sprintf("handle 0x%x", h)
		if i == 0 {
			text = "the default stream"
		}
		lines = append(lines, line{strconv.Itoa(i), text, plain})
	}
	return lines
}

func contents(s *leaf.State) []line {
	t := s.Timeline.Trace
	var lines []line
	add := func(label string, n int, unit string) {
		if n > 0 {
			lines = append(lines, line{label, leaf.Count(int64(n)) + unit, plain})
		}
	}
	if !t.OneMoment() {
		add("events", t.Events.Len(), "")
	}
	add("ops", len(t.Ops), "")
	add("accesses", len(t.Accesses), "")
	add("marks", len(t.Marks), "")
	add("stacks", t.Stacks.Len(), ", made of "+leaf.Count(int64(len(t.Frames)))+" frames")
	if t.Final.Known {
		if n := len(t.Final.Segments); n > 0 {
			text := timeline.Counted(n, "segment") + ", " + timeline.Counted(len(t.Final.Blocks), "block")
			lines = append(lines, line{"final state", text, plain})
		}
	}
	for i, c := range t.Counters {
		if i == longest {
			break
		}
		add("counter", len(c.Value), " samples of "+t.Text(c.Name))
	}
	return lines
}

func settings(list []traces.Setting) []line {
	var lines []line
	for i, x := range list {
		if i == longest {
			return append(lines, line{"", leaf.Count(int64(len(list)-longest)) + " more", dim})
		}
		value := x.Value
		if len(value) > 400 {
			value = value[:400] + "…"
		}
		lines = append(lines, line{x.Key, value, plain})
	}
	return lines
}
