package replay_test

import (
	"bytes"
	"context"
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
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("at %d columns a line has %d:\n%s", width, n, line)
			}
		}
	}
}

func TestANarrowTerminalNamesTheColumnsThatItHasNoRoomFor(t *testing.T) {
	c := told(t, 70)
	wide, narrow := text(t, c, replay.TextOptions{}), text(t, c, replay.TextOptions{Width: 72})
	if strings.Contains(wide, "no room for") || !strings.Contains(wide, "planned in") {
		t.Errorf("piped output leaves columns out:\n%s", wide)
	}
	head, rest, _ := strings.Cut(narrow[strings.Index(narrow, "manager "):], "\n")
	if strings.Contains(head, "planned in") || !strings.Contains(head, "overhead") || !strings.Contains(strings.Join(strings.Fields(rest), " "), "planned in: widen") {
		t.Errorf("the head is %q in\n%s", head, narrow)
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
		if f := strings.Fields(line); len(f) > 3 && (f[2] == "✓" || f[2] == "✗") {
			order = append(order, f[0]+" "+f[2])
		}
	}
	best, ok := c.Best("sim")
	if !ok || len(order) < 3 || order[0] != "caching ✗" || order[1] != best.Info.Name+" ✓" {
		t.Errorf("the fastest is %s and the table is %v", best.Info.Name, order)
	}
	fits := slices.IndexFunc(order[1:], func(s string) bool { return strings.HasSuffix(s, "✗") })
	if fits < 0 || slices.ContainsFunc(order[1+fits:], func(s string) bool { return strings.HasSuffix(s, "✓") }) {
		t.Errorf("what fits and what does not are mixed: %v", order)
	}
}

func TestSentencesSayWhatAStrangerWouldAskNext(t *testing.T) {
	says := func(s string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(s, w) {
				t.Errorf("%q lacks %q", s, w)
			}
		}
	}
	says(told(t, 150).Sentence(timeline.IEC), "To fit in ", "PyTorch's caching allocator fits as it is")
	c := told(t, 0)
	says(c.Sentence(timeline.IEC), "Without loss of time the least memory is ", "Set a budget to see what less would cost.")
	p := *plantest.Chain(12, 8<<20, 4_000_000)
	p.Kind = 1 // lifetimes
	life := compared(t, &p, 0)
	says(life.Sentence(timeline.IEC), "all that is alive at the peak", "Less takes swapping or recompute", "gmemtop describe")
	if s := life.Sentence(timeline.IEC); strings.Contains(s, "Set a budget") {
		t.Errorf("a budget would change nothing, and it says %q", s)
	}
	c = told(t, 70)
	for i := range c.Results {
		if c.Results[i].Executor == plan.TorchEager {
			c.Results[i].Fits = false
		}
	}
	for i := range c.Results { // what was found of the largest batch comes first
		r := &c.Results[i]
		r.MaxBatchKnown, r.MaxBatch, r.MaxBatchInferred = r.Available, i, true
	}
	says(c.Sentence(timeline.IEC), "The largest batch in ", " with caching. To fit in ")
}

func TestEagerPlansThatDoNotFitAreNamedWithTheLeastOfThem(t *testing.T) {
	p := plantest.Chain(12, 8<<20, 4_000_000)
	peak, _ := p.PeakLive()
	c, err := replay.Compare(context.Background(), p, append(pool.All(), combine.All()...), replay.Options{Budget: peak * 7 / 10, Seed: 1,
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
	if s := c.Sentence(timeline.IEC); !strings.Contains(s, "As PyTorch runs plans today none fits, the least being ") {
		t.Errorf("it says %q", s)
	}
}

func TestProgressTellsWhenEachManagerBegins(t *testing.T) {
	p := plantest.Chain(8, 1<<20, 1000)
	begun, done := map[string]bool{}, map[string]bool{}
	_, err := replay.Compare(context.Background(), p, pool.All(), replay.Options{Update: func(u replay.Progress) {
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
