package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/managers/combine"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// told is a comparison of many managers under a budget that some of them meet.
func told(t *testing.T, share int64) *replay.Comparison {
	t.Helper()
	p := plantest.Chain(12, 8<<20, 4_000_000)
	peak, _ := p.PeakLive()
	return compared(t, p, peak*share/100)
}

func text(t *testing.T, c *replay.Comparison, o replay.TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.WriteText(&b, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	c := told(t, 70)
	for _, width := range []int{72, 80, 100, 132} {
		for line := range strings.Lines(text(t, c, replay.TextOptions{Width: width, Notes: true})) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width &&
				strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("at %d columns a line has %d:\n%s", width, n, line)
			}
		}
	}
}

func TestANarrowTerminalNamesTheColumnsLeftOut(t *testing.T) {
	c := told(t, 70)
	wide, narrow := text(t, c, replay.TextOptions{}), text(t, c, replay.TextOptions{Width: 72})
	if strings.Contains(wide, "no room for") || !strings.Contains(wide, "planned in") {
		t.Errorf("piped output leaves columns out:\n%s", wide)
	}
	head, rest, _ := strings.Cut(narrow[strings.Index(narrow, "manager "):], "\n")
	if strings.Contains(head, "planned in") || !strings.Contains(head, "overhead") ||
		!strings.Contains(strings.Join(strings.Fields(rest), " "), "planned in: widen") {
		t.Errorf("the heading is %q in\n%s", head, narrow)
	}
}

func TestASCIITextIsASCII(t *testing.T) {
	for i, b := range []byte(text(t, told(t, 70), replay.TextOptions{ASCII: true, Notes: true})) {
		if b >= utf8.RuneSelf {
			t.Fatalf("byte %d is %#x", i, b)
		}
	}
}

func TestTheTableOpensWithTodaysAllocatorAndThenTheFastestThatFits(t *testing.T) {
	c := told(t, 70)
	var order []string
	for line := range strings.Lines(text(t, c, replay.TextOptions{})) {
		if f := strings.Fields(line); len(f) > 3 && (f[3] == "✓" || f[3] == "✗") {
			order = append(order, f[0]+" "+f[3])
		}
	}
	best, ok := c.Best("sim")
	if !ok || len(order) < 3 || order[0] != "caching ✗" || order[1] != best.Info.Name+" ✓" {
		t.Errorf("the fastest is %s, but the table is %v", best.Info.Name, order)
	}
	fits := slices.IndexFunc(order[1:], func(s string) bool { return strings.HasSuffix(s, "✗") })
	if fits < 0 || slices.ContainsFunc(order[1+fits:],
		func(s string) bool { return strings.HasSuffix(s, "✓") }) {
		t.Errorf("plans that fit and plans that do not are mixed: %v", order)
	}
}

func TestSentencesAnswerTheNextQuestion(t *testing.T) {
	says := func(s string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(s, w) {
				t.Errorf("%q lacks %q", s, w)
			}
		}
	}
	says(told(t, 150).Sentence(timeline.IEC), "To fit in ", "PyTorch's caching allocator fits as it is")
	onCPU := told(t, 150)
	onCPU.Problem.Source = &timeline.Device{Info: traces.Device{Kind: traces.DeviceCPU}}
	held := timeline.IEC.Bytes(onCPU.Problem.Held())
	says(onCPU.Sentence(timeline.IEC), "A step fits in ", " as it is: it holds "+held+" at its peak.")
	c := told(t, 0)
	says(c.Sentence(timeline.IEC), "At no cost in step time, ",
		"Set a budget to see what going lower would cost.")
	p := *plantest.Chain(12, 8<<20, 4_000_000)
	p.Kind = 1 // lifetimes
	life := compared(t, &p, 0)
	says(life.Sentence(timeline.IEC), "as much as is alive at the peak",
		"To swap or recompute, record whole steps", "gmemtop describe")
	if s := life.Sentence(timeline.IEC); strings.Contains(s, "Set a budget") {
		t.Errorf("a budget would change nothing, but the sentence is %q", s)
	}
	c = told(t, 70)
	for i := range c.Results {
		if c.Results[i].Executor == plan.TorchEager {
			c.Results[i].Fits = false
		}
	}
	for i := range c.Results { // the largest batch comes first
		r := &c.Results[i]
		r.MaxBatchKnown, r.MaxBatch, r.MaxBatchInferred = r.Available, i, true
	}
	says(c.Sentence(timeline.IEC), "The largest batch in ", " with caching. To fit in ")
}

func TestEagerPlansThatDoNotFitAreNamedWithTheLeastOfThem(t *testing.T) {
	p := plantest.Chain(12, 8<<20, 4_000_000)
	peak, _ := p.PeakLive()
	c, err := replay.Compare(context.Background(), p, append(pool.All(), combine.All()...),
		replay.Options{Budget: peak * 7 / 10, Seed: 1,
			Eager: func(_ context.Context, p *plan.Problem, pl *plan.Plan) (*plan.Plan, error) {
				keep, err := pool.Exact().Plan(context.Background(), p, plan.Request{})
				if err == nil {
					keep.Executor = plan.TorchEager
				}
				return keep, err
			}})
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Sentence(timeline.IEC); !strings.Contains(s,
		"None of the plans that PyTorch can run today fits: the smallest needs ") {
		t.Errorf("it says %q", s)
	}
}

func TestProgressReportsWhenEachManagerBegins(t *testing.T) {
	p := plantest.Chain(8, 1<<20, 1000)
	begun, done := map[string]bool{}, map[string]bool{}
	_, err := replay.Compare(context.Background(), p, pool.All(),
		replay.Options{Update: func(u replay.Progress) {
			switch {
			case u.Done && !begun[u.Manager]:
				t.Errorf("%s is done before it began", u.Manager)
			case u.Began.IsZero():
				t.Errorf("%s does not say when it began", u.Manager)
			case !u.Done && done[u.Manager]:
				t.Errorf("%s goes on after it was done", u.Manager)
			}
			begun[u.Manager] = true
			done[u.Manager] = done[u.Manager] || u.Done
		}})
	if err != nil || len(done) != len(pool.All()) {
		t.Errorf("%v; %d of %d were done", err, len(done), len(pool.All()))
	}
}

// TestEveryColumnHoldsItsFigure reads the row of a plan that swaps and recomputes, and that of an allocator.
func TestEveryColumnHoldsItsFigure(t *testing.T) {
	p := plantest.Chain(12, 8<<20, 4_000_000)
	p.Hardware.D2H.BytesPerSecond /= 4 // so that recomputing pays and copies are waited for
	p.Hardware.H2D.BytesPerSecond /= 4
	peak, _ := p.PeakLive()
	c := compared(t, p, peak/2)
	rows := map[string]string{}
	head := ""
	for line := range strings.Lines(text(t, c, replay.TextOptions{Units: timeline.IEC})) {
		f := strings.Fields(line)
		switch {
		case len(f) > 3 && f[0] == "manager":
			head = strings.Join(f, " ")
		case len(f) > 3 && (f[3] == "✓" || f[3] == "✗"):
			rows[f[0]] = strings.Join(f, " ")
		}
	}
	const want = "manager runs fits footprint " +
		"above min step overhead stall out in recompute planned in"
	if head != want {
		t.Errorf("the head is %q, want %q", head, want)
	}
	looked := 0
	for i := range c.Results {
		r := &c.Results[i]
		m := &r.Measurement
		if !r.Available || r.Executor != plan.Ideal {
			continue
		}
		some := func(n int64, s string) string {
			if n == 0 {
				return "–"
			}
			return s
		}
		var bytes []int64
		for k := range c.Results {
			if c.Results[k].Available {
				bytes = append(bytes, c.Results[k].Measurement.Footprint)
			}
		}
		unit, print := replay.FootprintColumn(timeline.IEC, bytes)
		runs := "in theory"
		if len(r.Plan.Absences) == 0 { // an allocator, which moves nothing
			runs = "in PyTorch"
		}
		want := strings.Join([]string{r.Info.Name, runs,
			map[bool]string{true: "✓", false: "✗"}[r.Fits],
			print(m.Footprint), unit, some(r.Plan.LowerBound,
				fmt.Sprintf("%.2f %%", 100*(float64(m.Footprint)/float64(r.Plan.LowerBound)-1))),
			timeline.Duration(m.StepTime), replay.Percent(r.Overhead),
			some(m.Stall, timeline.Duration(m.Stall)), some(m.SwappedOut, timeline.IEC.Bytes(m.SwappedOut)),
			some(m.SwappedIn, timeline.IEC.Bytes(m.SwappedIn)),
			some(m.RecomputeTime, timeline.Duration(m.RecomputeTime)),
			timeline.Duration(r.Plan.Planning.Nanoseconds())}, " ")
		if got := rows[r.Info.Name]; got != want {
			t.Errorf("the row is %q, want %q", got, want)
		}
		if m.Stall > 0 && m.SwappedOut > 0 && m.RecomputeTime > 0 || r.Info.Name == "caching" &&
			r.Plan.LowerBound > 0 {
			looked++
		}
	}
	if looked < 2 {
		t.Errorf("only %d rows had an explanation", looked)
	}
}
