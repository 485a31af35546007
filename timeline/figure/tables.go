package figure

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// checkEvery is how many rows a table writes between checks of its context.
const checkEvery = 1 << 14

// Folded writes the stacks that hold the peak, or what is allocated at o.At, one a line, outermost frame
// first, with their rounded bytes: the input of flamegraph.pl, speedscope and inferno.
func Folded(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
	at, err := momentOf(d, o)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	for _, g := range sites.Breakdown(d, at, sites.ByStack) {
		if err := ctx.Err(); err != nil {
			return err
		}
		frames := report.StackText(d.Timeline().Places(), g.Stack)
		if len(frames) == 0 {
			frames = []string{g.Name}
		}
		for i, f := range frames {
			if i > 0 {
				out.WriteByte(';')
			}
			out.WriteString(foldedFrame(f))
		}
		fmt.Fprintf(out, " %d\n", g.Bytes)
	}
	return out.Flush()
}

// foldedFrame keeps a frame from being read as two: semicolons separate frames, line ends separate stacks.
func foldedFrame(s string) string { return strings.ReplaceAll(report.Printable(s), ";", ":") }

// peakOf returns the selected stretch and the moment within it at which allocated bytes are largest.
func peakOf(d *timeline.Device, o Options) (report.Span, timeline.Moment, error) {
	span, err := report.Resolve(d, o.From, o.To)
	if err != nil {
		return span, timeline.Start, err
	}
	if span.Whole {
		return span, d.Totals.PeakAt, nil
	}
	return span, d.Allocated.Range(span.First, span.End).MaxAt, nil
}

// momentOf returns the moment that o.At names, and the peak if it names none.
func momentOf(d *timeline.Device, o Options) (timeline.Moment, error) {
	span, err := report.Resolve(d, o.From, o.To)
	if err != nil {
		return timeline.Start, err
	}
	return o.At.In(d, span)
}

// allocation is one lifetime as the tables print it. Nil times are outside the recording.
type allocation struct {
	Name      string `json:"name"`
	Device    string `json:"device"`
	Address   string `json:"address"`
	Bytes     int64  `json:"bytes"` // rounded
	Requested int64  `json:"requested_bytes"`
	Stream    uint64 `json:"stream"`
	StartNs   *int64 `json:"start_ns"`
	FreedNs   *int64 `json:"free_requested_ns"`
	EndNs     *int64 `json:"end_ns"`
	Start     *int64 `json:"start_event"`
	Freed     *int64 `json:"free_requested_event"`
	End       *int64 `json:"end_event"`
	Category  string `json:"category"`
	Inferred  bool   `json:"category_inferred"`
	Module    string `json:"module"`
	Site      string `json:"site"`
	StackID   int    `json:"stack"`
	stackText traces.StackID
}

// rowsOf calls row for each allocation of d that lives within the span, in order of start.
func rowsOf(ctx context.Context, d *timeline.Device, s report.Span, row func(*allocation) error) error {
	type named struct{ site, module string }
	names := map[traces.StackID]named{}
	tr := d.Timeline().Trace
	origin := d.Timeline().Zero()
	moment := func(m timeline.Moment) (event, ns *int64) {
		if m < 0 || m == timeline.Never {
			return nil, nil
		}
		e := int64(m)
		if !tr.Clock.HasTime {
			return &e, nil
		}
		t := d.Time(m) - origin
		return &e, &t
	}
	a := &d.Allocs
	for i := range a.Len() {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if !s.Whole && (a.Start[i] >= s.End || a.End[i] < s.First) {
			continue
		}
		stack := d.Origin(timeline.AllocID(i))
		n, ok := names[stack]
		if !ok {
			n = named{sites.Name(d, stack), sites.Module(d, stack)}
			names[stack] = n
		}
		r := allocation{
			Name: d.UniqueName(timeline.AllocID(i)), Device: report.DeviceName(d.Info),
			Address: "0x" + strconv.FormatUint(a.Addr[i], 16), Bytes: a.Rounded[i],
			Requested: a.Size[i], Stream: tr.Streams[a.Stream[i]], Category: a.Category[i].String(),
			Inferred: a.Inferred[i],
			Module:   n.module, Site: n.site, StackID: int(stack), stackText: stack,
		}
		r.Start, r.StartNs = moment(a.Start[i])
		r.Freed, r.FreedNs = moment(a.Requested[i])
		r.End, r.EndNs = moment(a.End[i])
		if err := row(&r); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// CSV writes every allocation as a row (RFC 4180, with a header). Empty times lie outside the recording.
// Stacks are ids, see [CSVStacks]: a million rows with fifty frames each would repeat a few thousand stacks
// over gigabytes.
func CSV(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
	span, err := report.Resolve(d, o.From, o.To)
	if err != nil {
		return err
	}
	out := csv.NewWriter(w)
	header := []string{"name", "device", "address", "bytes", "requested_bytes", "stream", "start_ns",
		"free_requested_ns",
		"end_ns", "start_event",
		"free_requested_event", "end_event", "category", "category_inferred", "module", "site", "stack"}
	if err := out.Write(header); err != nil {
		return err
	}
	err = rowsOf(ctx, d, span, func(r *allocation) error {
		return out.Write([]string{report.Cell(r.Name), report.Cell(r.Device), r.Address, itoa(r.Bytes),
			itoa(r.Requested), strconv.FormatUint(r.Stream, 10),
			opt(r.StartNs),
			opt(r.FreedNs), opt(r.EndNs), opt(r.Start), opt(r.Freed), opt(r.End), r.Category,
			strconv.FormatBool(r.Inferred),
			report.Cell(r.Module), report.Cell(r.Site),
			itoa(int64(r.stackText))})
	})
	if err != nil {
		return err
	}
	out.Flush()
	return out.Error()
}

// CSVEvents writes every memory event as a row.
func CSVEvents(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
	span, err := report.Resolve(d, o.From, o.To)
	if err != nil {
		return err
	}
	out := csv.NewWriter(w)
	if err := out.Write([]string{"event", "time_ns", "action", "device", "address", "bytes", "stream", "name",
		"stack",
		"site"}); err != nil {
		return err
	}
	tr := d.Timeline().Trace
	known := map[traces.StackID]string{}
	origin := d.Timeline().Zero()
	device := report.Cell(report.DeviceName(d.Info))
	for m := span.First; m < span.End; m++ {
		if int(m)%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e := d.Event(m)
		at, name := "", ""
		site, ok := known[e.Stack]
		if !ok {
			site = report.Cell(sites.Name(d, e.Stack))
			known[e.Stack] = site
		}
		if tr.Clock.HasTime {
			at = itoa(e.Time - origin)
		}
		if id := d.AllocOf(m); id != timeline.NoAlloc {
			name = report.Cell(d.UniqueName(id))
		}
		err := out.Write([]string{itoa(int64(m)), at, e.Action.String(), device,
			"0x" + strconv.FormatUint(e.Addr, 16), itoa(e.Size),
			strconv.FormatUint(tr.Streams[e.Stream], 10), name, itoa(int64(e.Stack)), site})
		if err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func opt(n *int64) string {
	if n == nil {
		return ""
	}
	return itoa(*n)
}

// CSVStacks writes the frames of every stack of the trace, outermost first. The stack column of the other
// tables refers to them.
func CSVStacks(ctx context.Context, w io.Writer, d *timeline.Device, _ Options) error {
	out := csv.NewWriter(w)
	if err := out.Write([]string{"stack", "depth", "function", "file", "line"}); err != nil {
		return err
	}
	tr := d.Timeline().Places()
	for id := range tr.Stacks.Len() {
		if id%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		frames := tr.Stacks.At(traces.StackID(id))
		for depth := range frames {
			fn, file, line := tr.FrameText(frames[len(frames)-1-depth])
			row := []string{strconv.Itoa(id), strconv.Itoa(depth), report.Cell(fn), report.Cell(file),
				strconv.Itoa(line)}
			if err := out.Write(row); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// JSON writes the full stats of the device, its stacks and every allocation as one JSON object; an
// allocation's stack is an index into stacks, -1 for none.
func JSON(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
	span, err := report.Resolve(d, o.From, o.To)
	if err != nil {
		return err
	}
	so := o.Options
	so.Devices = report.OnlyDevice(d.Info)
	stats, err := report.NewStats(ctx, d.Timeline(), so)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	enc := report.NewEncoder(out)
	fmt.Fprintf(out, "{\"schema_version\":%d,\n\"stats\":", report.SchemaVersion)
	if err := enc.Encode(stats); err != nil {
		return err
	}
	ids := map[traces.StackID]int{traces.NoStack: -1}
	var order []traces.StackID
	out.WriteString(",\"allocations\":[\n")
	first := true
	err = rowsOf(ctx, d, span, func(r *allocation) error {
		id, ok := ids[r.stackText]
		if !ok {
			id = len(order)
			ids[r.stackText] = id
			order = append(order, r.stackText)
		}
		r.StackID = id
		if !first {
			out.WriteByte(',')
		}
		first = false
		return enc.Encode(r)
	})
	if err != nil {
		return err
	}
	out.WriteString("],\n\"stacks\":[\n")
	for i, id := range order {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := enc.Encode(report.StackText(d.Timeline().Places(), id)); err != nil {
			return err
		}
	}
	out.WriteString("]}\n")
	return out.Flush()
}
