package figure

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// run builds a device with a level floor of parameters, n quiet steps and one spike that lasts a single
// event.
func run(t testing.TB, n int, name string) *timeline.Device {
	t.Helper()
	b := traces.NewBuilder()
	b.T.Source = traces.Source{Format: "test", Path: name}
	dev := b.Device(traces.DeviceGPU, 0)
	stack := func(fn string) traces.StackID {
		return b.Stack([]traces.FrameID{
			b.Frame(traces.Frame{File: b.String("model.py"), Func: b.String(fn + name), Line: 7}),
			b.Frame(traces.Frame{File: b.String("train;ing.py"), Func: b.String("main"), Line: 9}),
		})
	}
	param, act := b.Detail(traces.Detail{Category: b.String("parameter"), ForwardStack: traces.NoStack}),
		b.Detail(traces.Detail{Category: b.String("activation"), ForwardStack: traces.NoStack})
	now := int64(0)
	emit := func(a traces.Action, addr uint64, size int64, s traces.StackID, d traces.DetailID) {
		now += 1000
		b.Event(traces.Event{Time: now, Addr: addr, Size: size, Stack: s, Detail: d, Device: dev, Action: a})
	}
	emit(traces.SegmentAlloc, 1<<30, 1<<30, traces.NoStack, 0)
	emit(traces.Alloc, 1<<30, 10<<20, stack("init"), param)
	for i := range n {
		size := int64(1 << 20)
		if i == n/2 {
			size = 100 << 20
		}
		emit(traces.Alloc, 2<<30, size, stack("forward"), act)
		emit(traces.Free, 2<<30, size, stack("forward"), 0)
	}
	tl, err := timeline.Build(t.Context(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Devices[0]
}

func TestAPeakOfOneEventIsInTheChartAtAnyWidth(t *testing.T) {
	d := run(t, 20_000, "spike")
	for _, columns := range []int{10, 333, 1200} {
		c, err := newChart(t.Context(), d, columns, Options{})
		if err != nil {
			t.Fatal(err)
		}
		highest, at := int64(0), -1
		for i, col := range c.Columns {
			sum := int64(0)
			for _, v := range col.By {
				sum += v
			}
			if sum != col.Allocated {
				t.Fatalf("column %d of %d: categories sum to %d, allocated %d", i, columns, sum,
					col.Allocated)
			}
			if col.Allocated > highest {
				highest, at = col.Allocated, i
			}
		}
		if highest != 110<<20 || at != c.Peak {
			t.Errorf("%d columns: highest %d in column %d, peak marked in %d; want %d", columns, highest, at,
				c.Peak, 110<<20)
		}
	}
}

// hostile is a name that would break out of every format if it were not escaped.
const hostile = "</script><svg onload=alert(1)>|`*_\x1b[2J\"'&;\n.py"

func TestSVGIsWellFormedWhateverTheNames(t *testing.T) {
	var b bytes.Buffer
	if err := SVG(t.Context(), &b, run(t, 50, hostile), Options{}); err != nil {
		t.Fatal(err)
	}
	dec := xml.NewDecoder(&b)
	elements := map[string]int{}
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok {
			elements[e.Name.Local]++
			for _, a := range e.Attr {
				if strings.HasPrefix(strings.ToLower(a.Name.Local), "on") {
					t.Errorf("<%s> has %s", e.Name.Local, a.Name.Local)
				}
			}
		}
	}
	if elements["svg"] != 1 || elements["script"] != 0 || elements["path"] < 5 || elements["text"] < 10 {
		t.Errorf("elements %v", elements)
	}
}

func TestTextFiguresHoldNoControlCharactersOfTheFile(t *testing.T) {
	d := run(t, 50, "\x1b]0;owned\x07\u009b31m\nline\u202egnp")
	for name, figure := range map[string]func(context.Context, io.Writer, *timeline.Device, Options) error{
		"folded": Folded, "csv": CSV, "events": CSVEvents, "stacks": CSVStacks, "markdown": Markdown,
		"json": JSON, "svg": SVG,
	} {
		var b bytes.Buffer
		if err := figure(t.Context(), &b, d, Options{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "owned") {
			t.Errorf("%s: the test shows nothing: the name is not in it", name)
		}
		if i := strings.IndexFunc(b.String(), func(r rune) bool {
			return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
		}); i >= 0 {
			t.Errorf("%s holds a control character: %q", name, b.String()[i:min(i+40, b.Len())])
		}
		if name != "markdown" && strings.Contains(b.String(), "31m\nline") {
			t.Errorf("%s: a name ends a line", name)
		}
	}
}

func TestHTMLNeedsNoNetworkAndHoldsNamesAsText(t *testing.T) {
	var b bytes.Buffer
	d := run(t, 50, hostile)
	if err := HTML(t.Context(), &b, []*timeline.Device{d}, Options{}); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	outside := regexp.MustCompile(`(?i)(src|href)\s*=|url\((?:["']?)(?:https?:)?//|@import|fetch\(|XMLHttpRequest|<link|<iframe`)
	if m := outside.FindString(page); m != "" {
		t.Errorf("the page asks for something outside: %q", m)
	}
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d scripts, want the data and the page's own", n)
	}
	if strings.Contains(page, "onload=alert(1)>") {
		t.Error("a name from the trace is markup")
	}
	data := page[strings.Index(page, `json">`)+6:]
	var hover hoverData
	if err := json.Unmarshal([]byte(data[:strings.Index(data, "</script>")]), &hover); err != nil {
		t.Fatal(err)
	}
	if len(hover.Columns) != 800 || len(hover.Categories) != 2 {
		t.Errorf("%d columns of %v", len(hover.Columns), hover.Categories)
	}
}

// TestNamesAreBoundedInPictures checks that neither a name of a hundred thousand letters nor five hundred
// combining marks on one letter covers the page, and that both ends of a name stay.
func TestNamesAreBoundedInPictures(t *testing.T) {
	name := strings.Repeat("x", 50_000) + "a" + strings.Repeat("\u0301", 500) + strings.Repeat("y", 50_000) +
		"end"
	d := run(t, 20, name)
	var plain, page bytes.Buffer
	if err := HTML(t.Context(), &plain, []*timeline.Device{run(t, 20, "")}, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := HTML(t.Context(), &page, []*timeline.Device{d}, Options{}); err != nil {
		t.Fatal(err)
	}
	if more := page.Len() - plain.Len(); more > 20_000 {
		t.Errorf("the page grows by %d bytes", more)
	}
	if strings.Contains(page.String(), strings.Repeat("\u0301", maxMarks+1)) {
		t.Errorf("more than %d marks stand on one letter", maxMarks)
	}
	if !strings.Contains(page.String(), "initxxx") || !strings.Contains(page.String(), "yyyend") {
		t.Error("an end of the name is gone")
	}
	want := "e" + strings.Repeat("\u0301", maxMarks)
	if got := bounded(want + "\u0301"); got != want {
		t.Errorf("marks: %q", got)
	}
}

func TestPNGShowsEveryCategoryInItsColour(t *testing.T) {
	var b bytes.Buffer
	if err := PNG(t.Context(), &b, run(t, 50, "x"), Options{Width: 600, Height: 400}); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if img.Bounds().Dx() != 1200 || img.Bounds().Dy() != 800 {
		t.Errorf("size %v, want two pixels a CSS pixel", img.Bounds())
	}
	count := map[string]int{}
	for y := range 800 {
		for x := range 1200 {
			r, g, bl, _ := img.At(x, y).RGBA()
			count[fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, bl>>8)]++
		}
	}
	for _, c := range []timeline.Category{timeline.Parameter, timeline.Activation} {
		if count[hex(light.category[c])] < 100 {
			t.Errorf("%s has %d pixels", c, count[hex(light.category[c])])
		}
	}
}

func TestFoldedStacksSumToThePeak(t *testing.T) {
	d := run(t, 50, "x")
	var b bytes.Buffer
	if err := Folded(t.Context(), &b, d, Options{}); err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		at := strings.LastIndexByte(line, ' ')
		n, err := strconv.ParseInt(line[at+1:], 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if frames := strings.Split(line[:at], ";"); len(frames) != 2 ||
			!strings.HasPrefix(frames[0], "main train:ing.py") {
			t.Errorf("frames %q, want main first", frames)
		}
		sum += n
	}
	if sum != d.Totals.PeakAllocated {
		t.Errorf("sum %d, peak %d", sum, d.Totals.PeakAllocated)
	}
}

func TestCSVHasARowForEachAllocationAndEvent(t *testing.T) {
	d := run(t, 50, hostile)
	for _, c := range []struct {
		write func(context.Context, io.Writer, *timeline.Device, Options) error
		rows  int
	}{{CSV, 51}, {CSVEvents, 102}, {CSVStacks, 4}} {
		var b bytes.Buffer
		if err := c.write(t.Context(), &b, d, Options{}); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if len(rows)-1 != c.rows {
			t.Errorf("%d rows, want %d: %v", len(rows)-1, c.rows, rows[0])
		}
	}
}

func TestCSVOfAStretchHoldsTheAllocationsAliveInIt(t *testing.T) {
	from, _ := report.ParsePosition("10")
	to, _ := report.ParsePosition("12")
	var b bytes.Buffer
	if err := CSV(t.Context(), &b, run(t, 50, "x"), Options{Options: report.Options{From: from, To: to}}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows)-1 != 2 {
		t.Errorf("%d rows, %v; want the parameter and one activation", len(rows)-1, err)
	}
}

func TestJSONHoldsStatsAllocationsAndTheirStacks(t *testing.T) {
	var b bytes.Buffer
	d := run(t, 50, hostile)
	if err := JSON(t.Context(), &b, d, Options{}); err != nil {
		t.Fatal(err)
	}
	var v struct {
		SchemaVersion int `json:"schema_version"`
		Stats         report.Stats
		Allocations   []allocation
		Stacks        [][]string
	}
	if err := json.Unmarshal(b.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if v.SchemaVersion != 2 || len(v.Allocations) != 51 || len(v.Stacks) != 2 || *v.Stats.Devices[0].PeakAllocated != 110<<20 {
		t.Errorf("schema %d, %d allocations, %d stacks", v.SchemaVersion, len(v.Allocations), len(v.Stacks))
	}
	for _, a := range v.Allocations {
		if a.StackID < 0 || a.StackID >= len(v.Stacks) || a.Start == nil {
			t.Fatalf("allocation %+v", a)
		}
	}
}

func TestEveryFigureStopsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := run(t, 50_000, "x")
	cancel()
	figures := map[string]func(context.Context, io.Writer, *timeline.Device, Options) error{
		"svg": SVG, "png": PNG, "folded": Folded, "csv": CSV, "events": CSVEvents, "stacks": CSVStacks, "json": JSON,
		"markdown": Markdown,
		"html": func(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
			return HTML(ctx, w, []*timeline.Device{d}, o)
		},
	}
	for name, write := range figures {
		if err := write(ctx, io.Discard, d, Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATraceWithoutEventsStillHasAFigure(t *testing.T) {
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	b.T.Final = traces.State{Known: true, Segments: []traces.Segment{{Address: 1 << 20, TotalSize: 1 << 20,
		AllocatedSize: 512, ActiveSize: 512,
		EndBlock: 2, Device: dev, Stack: traces.NoStack}}, Blocks: []traces.Block{
		{Address: 1 << 20, Size: 512, Requested: maybe.Known(500), State: traces.BlockAllocated,
			Count: 1, Stack: traces.NoStack},
		{Address: 1<<20 + 512, Size: 1<<20 - 512, Count: 1, Stack: traces.NoStack}}}
	tl, err := timeline.Build(t.Context(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := SVG(t.Context(), &out, tl.Devices[0], Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "one moment") {
		t.Error("the figure does not say why it has no chart")
	}
}

func TestTicksAreRoundInTheUnitAndFew(t *testing.T) {
	for _, top := range []int64{1, 7, 1023, 1024, 5000, 1 << 20, 3<<30 + 12345, 80 << 30, 1 << 50} {
		for _, u := range []timeline.Units{timeline.IEC, timeline.SI, timeline.Raw} {
			list := ticks(top, u)
			if len(list) == 0 || list[0] != 0 || len(list) > 10 || list[len(list)-1] > top {
				t.Errorf("ticks(%d, %d) = %v", top, u, list)
			}
		}
	}
}

func BenchmarkHTML(b *testing.B) {
	d := run(b, 200_000, "x")
	for b.Loop() {
		if err := HTML(b.Context(), io.Discard, []*timeline.Device{d}, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPNG(b *testing.B) {
	d := run(b, 200_000, "x")
	for b.Loop() {
		if err := PNG(b.Context(), io.Discard, d, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
