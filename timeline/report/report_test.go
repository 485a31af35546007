package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// training builds a trace of n equal training steps on each of the devices; every name holds the given text.
func training(n, devices int, text string) *traces.Trace {
	b := traces.NewBuilder()
	b.T.Source = traces.Source{Format: "test", Path: text + ".pickle", Bytes: 10}
	for d := range devices {
		dev := b.Device(traces.DeviceGPU, d)
		stack := func(fn string) traces.StackID {
			return b.Stack([]traces.FrameID{b.Frame(traces.Frame{File: b.String(text + ".py"),
				Func: b.String(fn + text), Line: 3})})
		}
		now := int64(1000)
		emit := func(a traces.Action, addr uint64, size int64, s traces.StackID) {
			now += 100
			b.Event(traces.Event{Time: now, Addr: addr, Size: size, Stack: s, Device: dev, Action: a})
		}
		emit(traces.SegmentAlloc, 1<<20, 1<<20, stack("init"))
		emit(traces.Alloc, 1<<20, 1000, stack("init"))
		for i := range n {
			start := now
			emit(traces.Alloc, 1<<20+1024, 5000, stack("forward"))
			emit(traces.FreeRequested, 1<<20+1024, 5000, stack("forward"))
			emit(traces.FreeCompleted, 1<<20+1024, 5000, stack("forward"))
			b.T.Marks = append(b.T.Marks, traces.Mark{Start: start, End: now,
				Name: b.String(fmt.Sprint("ProfilerStep#", i)),
				Kind: traces.MarkIteration, Device: dev})
		}
		b.T.Final.Known = true
		first := int32(len(b.T.Final.Blocks))
		b.T.Final.Blocks = append(b.T.Final.Blocks,
			traces.Block{Address: 1 << 20, Size: 1024, Requested: maybe.Known(1000),
				State: traces.BlockAllocated,
				Count: 1, Stack: stack("init")},
			traces.Block{Address: 1<<20 + 1024, Size: 1<<20 - 1024, State: traces.BlockInactive, Count: 1,
				Stack: traces.NoStack})
		b.T.Final.Segments = append(b.T.Final.Segments, traces.Segment{Address: 1 << 20, TotalSize: 1 << 20,
			AllocatedSize: 1024, ActiveSize: 1024,
			FirstBlock: first, EndBlock: first + 2, Device: dev, Stack: traces.NoStack})
	}
	return b.Finish()
}

func build(t *testing.T, tr *traces.Trace) *timeline.Timeline {
	t.Helper()
	tl, err := timeline.Build(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func stats(t *testing.T, tl *timeline.Timeline, o Options) *Stats {
	t.Helper()
	s, err := NewStats(t.Context(), tl, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// contract is the documented form of stats --json: key, and the kind of JSON value. Keys may be added, none
// renamed.
var contract = map[string]string{
	"schema_version": "number", "source.format": "string", "source.path": "string", "source.bytes": "number",
	"source.rank": "number|null",
	"kind":        "string", "complete": "bool", "losses": "array", "devices": "array",
	"devices.device": "number", "devices.events": "number", "devices.allocations": "number",
	"devices.ooms":    "number",
	"devices.streams": "number", "devices.segments": "number",
	"devices.start_allocated_bytes": "number|null", "devices.start_active_bytes": "number|null",
	"devices.start_reserved_bytes": "number|null",
	"devices.end_allocated_bytes":  "number|null", "devices.end_active_bytes": "number|null",
	"devices.end_reserved_bytes":   "number|null",
	"devices.peak_allocated_bytes": "number|null", "devices.peak_active_bytes": "number|null",
	"devices.peak_reserved_bytes":             "number|null",
	"devices.start_allocated_requested_bytes": "number|null",
	"devices.start_active_requested_bytes":    "number|null",
	"devices.end_allocated_requested_bytes":   "number|null",
	"devices.end_active_requested_bytes":      "number|null",
	"devices.peak_allocated_requested_bytes":  "number|null",
	"devices.peak_active_requested_bytes":     "number|null",
	"devices.peak_time_ns":                    "number|null", "devices.peak_event": "number|null",
	"devices.exactness":        "string",
	"devices.exactness_reason": "string",
	"devices.fragmentation.at": "string", "devices.fragmentation.internal_bytes": "number",
	"devices.fragmentation.stranded_bytes": "number",
	"devices.fragmentation.cached_bytes":   "number", "devices.fragmentation.pending_free_bytes": "number",
	"devices.fragmentation.largest_free_bytes": "number",
	"devices.peak.by_category.name":            "string", "devices.peak.by_category.bytes": "number",
	"devices.peak.by_category.inferred": "bool",
	"devices.peak.by_stack.stack":       "array", "devices.peak.by_stack.bytes": "number",
	"devices.peak.by_stack.blocks": "number",
	"devices.peak.by_module":       "array", "devices.peak.by_size": "array",
	"devices.iterations.index": "number", "devices.iterations.start_ns": "number|null",
	"devices.iterations.end_ns":               "number|null",
	"devices.iterations.peak_allocated_bytes": "number", "devices.iterations.source": "string",
	"devices.iterations.peak_allocated_requested_bytes": "number|null",
}

func TestStatsJSONKeepsItsContract(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, stats(t, build(t, training(3, 1, "x")), Options{})); err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	for key, want := range contract {
		got := kindAt(v, strings.Split(key, "."))
		if !strings.Contains("|"+want+"|", "|"+got+"|") {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
}

// kindAt returns the kind of the value at a path, through the first element of arrays; "missing" if the path
// ends early.
func kindAt(v any, path []string) string {
	for _, k := range path {
		if list, ok := v.([]any); ok {
			if len(list) == 0 {
				return "missing"
			}
			v = list[0]
		}
		m, ok := v.(map[string]any)
		if !ok {
			return "missing"
		}
		if v, ok = m[k]; !ok {
			return "missing"
		}
	}
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

func TestIterationsAndPeakCountFromTheTracesFirstEvent(t *testing.T) {
	d := stats(t, build(t, training(3, 1, "x")), Options{}).Devices[0]
	if d.PeakTime == nil || *d.PeakTime != 200 || *d.PeakEvent != 2 || *d.PeakAllocated != 6144 {
		t.Errorf("peak %v at %v, event %v; want 6144 at 200, event 2", *d.PeakAllocated, d.PeakTime,
			d.PeakEvent)
	}
	if len(d.Iterations) != 3 || *d.Iterations[0].Start != 100 {
		t.Errorf("iterations %+v, want three, the first from 100", d.Iterations)
	}
}

func TestPartsOfReservedSumToReservedAtPeakAndEnd(t *testing.T) {
	d := stats(t, build(t, training(3, 1, "x")), Options{}).Devices[0]
	for _, f := range []*Fragmentation{d.Fragmentation, d.AtEnd} {
		if sum := f.ActiveRequested + f.Internal + f.Stranded + f.Cached; sum != f.Reserved ||
			f.Reserved != 1<<20 {
			t.Errorf("at the %s: parts sum to %d, reserved %d", f.At, sum, f.Reserved)
		}
	}
}

func TestAStretchHasItsOwnStartPeakAndEnd(t *testing.T) {
	from, err1 := ParsePosition("2")
	to, err2 := ParsePosition("3")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	d := stats(t, build(t, training(3, 1, "x")), Options{From: from, To: to}).Devices[0]
	if d.Events != 1 || d.Allocations != 1 || *d.StartAllocated != 1024 || *d.PeakAllocated != 6144 ||
		*d.EndAllocated != 6144 {
		t.Errorf("got %d events, %d allocations, start %d, peak %d, end %d; want 1, 1, 1024, 6144, 6144",
			d.Events, d.Allocations, *d.StartAllocated, *d.PeakAllocated, *d.EndAllocated)
	}
	if *d.StartAllocatedRequested != 1000 || *d.PeakAllocatedRequested != 6000 ||
		*d.EndActiveRequested != 6000 {
		t.Errorf("requested: start %d, peak %d, end active %d; want 1000, 6000, 6000",
			*d.StartAllocatedRequested, *d.PeakAllocatedRequested, *d.EndActiveRequested)
	}
}

func TestAStretchMayStartAtItsPeak(t *testing.T) {
	from, _ := ParsePosition("3") // the free, just after the peak
	d := stats(t, build(t, training(1, 1, "x")), Options{From: from}).Devices[0]
	if *d.PeakAllocated != 6144 || *d.PeakEvent != 2 {
		t.Errorf("peak %d at event %d, want 6144 at the event before the stretch", *d.PeakAllocated,
			*d.PeakEvent)
	}
}

func TestReportsPrintNoControlCharactersOfTheFile(t *testing.T) {
	evil := "\x1b]0;owned\x07\u009b31m\nline\u202egnp.exe\u2066\u200f\u2028![x](http://x)"
	tl := build(t, training(3, 2, evil))
	var b bytes.Buffer
	if err := stats(t, tl, Options{}).WriteText(&b, Options{}); err != nil {
		t.Fatal(err)
	}
	o, err := NewOOM(t.Context(), tl, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.WriteText(&b, Options{}); err != nil {
		t.Fatal(err)
	}
	d, err := NewDiff(t.Context(), tl, tl, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteText(&b, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteMarkdown(&b, Options{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(EscapeMarkdown(evil), "![") {
		t.Errorf("a name is an image in Markdown: %s", EscapeMarkdown(evil))
	}
	for _, v := range []any{stats(t, tl, Options{}), o, d} {
		var j bytes.Buffer
		if err := WriteJSON(&j, v); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(j.Bytes()) || !strings.Contains(j.String(),
			`\u009b31m\nline\u202egnp.exe\u2066\u200f\u2028!`) {
			t.Errorf("JSON is not valid or does not hold the name: %.300q", j.String())
		}
		b.Write(j.Bytes())
	}
	for _, r := range b.String() {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028') {
			t.Fatalf("control character %U in\n%q", r, b.String())
		}
	}
	if !strings.Contains(b.String(), "owned") {
		t.Error("the test shows nothing: the name is not in the report")
	}
}

func TestAnAutopsyNamesTheDeviceUnlessItIsTheFirst(t *testing.T) {
	b := traces.NewBuilder()
	b.Event(traces.Event{Time: 1, Addr: 1 << 20, Size: 1 << 30, Action: traces.OOM, Stack: traces.NoStack,
		Device: b.Device(traces.DeviceGPU, 1)})
	o, err := NewOOM(t.Context(), build(t, b.Finish()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := o.WriteText(&text, Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text.String(), "gpu 1: ") {
		t.Errorf("the report begins with %.60q", text.String())
	}
}

func TestAnEmptyStretchIsExplained(t *testing.T) {
	from, err := ParsePosition("9999")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Resolve(build(t, training(1, 1, "x")).Devices[0], from, Position{})
	if err == nil || !strings.Contains(err.Error(), "between 9999 and the end") {
		t.Errorf("got %v", err)
	}
}

func TestASCIIReportsAreASCII(t *testing.T) {
	var b bytes.Buffer
	o := Options{ASCII: true}
	if err := stats(t, build(t, training(3, 1, "größe·µ→")), o).WriteText(&b, o); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.String() {
		if r > 126 {
			t.Fatalf("%q in\n%s", r, b.String())
		}
	}
}

func TestDevices(t *testing.T) {
	gpu0, gpu1 := traces.Device{Kind: traces.DeviceGPU}, traces.Device{Kind: traces.DeviceGPU, Ordinal: 1}
	cpu, host := traces.Device{Kind: traces.DeviceCPU}, traces.Device{Kind: traces.DeviceHost}
	for _, c := range []struct {
		text string
		want []bool // gpu0, gpu1, cpu, host
	}{
		{"", []bool{true, true, true, true}},
		{"all", []bool{true, true, true, true}},
		{"0", []bool{true, false, false, false}},
		{"cuda", []bool{true, true, false, false}},
		{"1,cpu", []bool{false, true, true, false}},
		{"cuda:1, host", []bool{false, true, false, true}},
	} {
		d, err := ParseDevices(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got := []bool{d.has(gpu0), d.has(gpu1), d.has(cpu), d.has(host)}; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q selects %v, want %v", c.text, got, c.want)
		}
	}
	for _, bad := range []string{"-1", "npu", "0,,1", "1.5"} {
		if _, err := ParseDevices(bad); err == nil {
			t.Errorf("%q is taken for a device", bad)
		}
	}
}

func TestParsePosition(t *testing.T) {
	for text, want := range map[string]Position{
		"":            {},
		"12":          {"12", positionEvent, 12},
		"#12":         {"#12", positionEvent, 12},
		"it3":         {"it3", positionIteration, 3},
		"iteration 3": {"iteration 3", positionIteration, 3},
		"step:3":      {"step:3", positionIteration, 3},
		"1.5s":        {"1.5s", positionTime, 1_500_000_000},
		"20us":        {"20us", positionTime, 20_000},
	} {
		if got, err := ParsePosition(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, bad := range []string{"-3", "it", "it-1", "-2s", "later", "1.5"} {
		if got, err := ParsePosition(bad); err == nil {
			t.Errorf("%q is taken for %+v", bad, got)
		}
	}
}

func TestThresholds(t *testing.T) {
	change := 0.1
	metrics := []Metric{{Name: "peak", Unit: "bytes", A: 1000, B: 1100, Delta: 100, Change: &change},
		{Name: "blocks",
			Unit: "count", A: 0, B: 5, Delta: 5},
		{Name: "step", Unit: "ns", A: 2e6, B: 1e6, Delta: -1e6, Change: ptr(-0.5)}}
	for text, want := range map[string]bool{
		"peak>+9%": true, "peak>+10%": false, "peak>=+10%": true, "peak<+10%": false, "peak<=+10%": true,
		"peak>9%": true, "peak>10%": false,
		"peak>+99B": true, "peak>+1KiB": false, "peak>1KiB": true, "peak>1.1KiB": false, "peak > +5 %": true,
		"blocks>+1000%": true, "blocks>4": true, "blocks>5": false, "blocks<6": true,
		"step<-40%": true, "step<-0.9ms": true, "step<-1ms": false, "step>3ms": false,
	} {
		list, err := ParseThresholds([]string{text})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		c, err := list[0].check(metrics)
		if err != nil || c.Failed != want {
			t.Errorf("%q: failed %v, %v; want %v", text, c.Failed, err, want)
		}
	}
	if list, err := ParseThresholds([]string{"peak>+1%, blocks>3", "step>+1%"}); err != nil ||
		len(list) != 3 {
		t.Errorf("a list is %d thresholds, %v; want 3", len(list), err)
	}
	for _, bad := range []string{"peak", ">3", "peak>", "peak==3", "PEAK>3", "peak>+-3",
		"peak>+1.2.3%"} {
		if list, err := ParseThresholds([]string{bad}); err == nil {
			t.Errorf("%q is taken for %+v", bad, list)
		}
	}
}

func ptr(v float64) *float64 { return &v }

func TestStatsHoldOnlyWhatJSONCanExpress(t *testing.T) {
	// A trend through one point, or none, has no interval: infinities must not reach the encoder.
	for n := range 4 {
		var b bytes.Buffer
		if err := WriteJSON(&b, stats(t, build(t, training(n, 1, "x")), Options{})); err != nil {
			t.Errorf("%d steps: %v", n, err)
		}
	}
	if finite(1, math.Inf(1)) || finite(math.NaN()) || !finite(0, -1) {
		t.Error("finite does not notice")
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 12: "12", 999: "999", 1000: "1,000", -1234567: "-1,234,567",
		math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %q, want %q", n, got, want)
		}
	}
}
