package steps_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
)

// step describes a training step of [markedSteps]: it makes and frees a block of peak bytes, which is its
// peak, then one of churn bytes, then small ones, and takes some time.
type step struct {
	peak, churn int64
	blocks      int
	time        int64
}

// markedSteps builds a recording of steps that the source marks.
func markedSteps(t *testing.T, marked []step) *steps.Iterations {
	t.Helper()
	var b strings.Builder
	now := int64(0)
	for k, s := range marked {
		fmt.Fprintf(&b, "at %d\n+ p %d\n- p\n+ q %d\n- q\n", now, s.peak, s.churn)
		fmt.Fprintf(&b, "repeat %d\n+ s 512\n- s\nend\n", s.blocks)
		fmt.Fprintf(&b, "mark iteration %d %d step %d\n", now, now+s.time, k+1)
		now += s.time
	}
	it := steps.Of(timelinetest.Script(t, b.String()).Main())
	if it.Source != steps.FromAnnotations || len(it.List) != len(marked) {
		t.Fatalf("%d steps by %v, want %d that are marked", len(it.List), it.Source, len(marked))
	}
	return it
}

// TestAStepDiffersOnlyBeyondTheTolerance has one of ten equal steps off by a little less than the tolerance,
// then by a little more. The tolerance is 1 % of large figures, 1 MiB of middling ones and 5 % of small ones.
func TestAStepDiffersOnlyBeyondTheTolerance(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name        string
		usual       step
		below, over step // added to the usual figures
		want        string
	}{
		{"peak of 1 GiB", step{1024 * mib, 512 * mib, 4, 1e6},
			step{peak: 10 * mib, churn: -10 * mib}, step{peak: 11 * mib, churn: -11 * mib}, "peak +11.0 MiB"},
		{"peak of 50 MiB", step{50 * mib, 40 * mib, 4, 1e6},
			step{peak: mib - 512, churn: 512 - mib}, step{peak: mib + 512, churn: -512 - mib},
			"peak +1.00 MiB"},
		{"peak of 10 MiB", step{10 * mib, 8 * mib, 4, 1e6},
			step{peak: 500 << 10, churn: -500 << 10}, step{peak: 560 << 10, churn: -560 << 10},
			"peak +560 KiB"},
		{"churn of 2 GiB", step{1200 * mib, 848 * mib, 4, 1e6},
			step{churn: 20 * mib}, step{churn: 21 * mib}, "allocs +21.0 MiB"},
		{"churn of 50 MiB", step{30 * mib, 20*mib - 4*512, 4, 1e6},
			step{churn: mib - 512}, step{churn: mib + 512}, "allocs +1.00 MiB"},
		{"churn of 10 MiB", step{6 * mib, 4*mib - 4*512, 4, 1e6},
			step{churn: 500 << 10}, step{churn: 560 << 10}, "allocs +560 KiB"},
		{"202 allocations", step{50 * mib, 40 * mib, 200, 1e6},
			step{blocks: 2}, step{blocks: 3}, "+3 allocations"},
		{"4 allocations", step{50 * mib, 40 * mib, 2, 1e6},
			step{}, step{blocks: 1}, "+1 allocations"},
		{"time", step{50 * mib, 40 * mib, 2, 1e6},
			step{time: 990_000}, step{time: 1_100_000}, "takes 2.1x"},
	} {
		for _, off := range []struct {
			by   step
			want string
		}{{c.below, ""}, {c.over, c.want}} {
			steps := make([]step, 10)
			for k := range steps {
				steps[k] = c.usual
			}
			x := &steps[7]
			x.peak, x.churn = x.peak+off.by.peak, x.churn+off.by.churn
			x.blocks, x.time = x.blocks+off.by.blocks, x.time+off.by.time
			it := markedSteps(t, steps)
			for k := range it.List {
				want := ""
				if k == 7 {
					want = off.want
				}
				if got := it.List[k].Why(timeline.IEC); got != want {
					t.Errorf("%s, off by %+v: step %d differs in %q, want %q", c.name, off.by, k, got, want)
				}
			}
		}
	}
}

// TestStepsThatScatterWidenTheTolerance has a figure that is in turn usual, a little more and a little less.
// The tolerance is four standard deviations, 5.9 times that little, around the last step that is like most.
func TestStepsThatScatterWidenTheTolerance(t *testing.T) {
	const gib, little = 1 << 30, 64 << 20
	for figure, of := range map[string]func(littles float64) step{
		"peak": func(littles float64) step { // of the same churn
			d := int64(littles * little)
			return step{4*gib + d, 2*gib - d, 2, 1e6}
		},
		"churn": func(littles float64) step {
			return step{4 * gib, gib + int64(littles*little), 2,
				1e6}
		},
		"allocations": func(littles float64) step { return step{4 * gib, gib, 100 + int(littles*6), 1e6} },
	} {
		for _, off := range []struct {
			littles float64
			odd     bool
		}{{4.5, false}, {5.5, true}} {
			steps := make([]step, 21)
			for k := range steps {
				steps[k] = of([]float64{0, 1, -1}[k%3])
			}
			steps[15] = of(off.littles)
			it := markedSteps(t, steps)
			for k := range it.List {
				if got := it.List[k].Odd; got != (k == 15 && off.odd) {
					t.Errorf("%s: step 15 is off by %.1f littles, and step %d is odd: %v (%s)", figure,
						off.littles, k, got, it.List[k].Why(timeline.IEC))
				}
			}
		}
	}
}

// TestAStepThatIsUnlikeMostIsOddAmongAFew: while most steps are alike, the spread of the others does not
// widen what counts as usual.
func TestAStepThatIsUnlikeMostIsOddAmongAFew(t *testing.T) {
	const gib = 1 << 30
	var list []step
	for _, thousandths := range []int64{5, 0, 10, 30, 5} { // of the same churn
		d := thousandths * gib / 1000
		list = append(list, step{gib + d, gib - d, 2, 1e6})
	}
	it := markedSteps(t, list)
	for k := range it.List {
		if it.List[k].Odd != (k == 3) {
			t.Errorf("step %d is odd: %v (%s)", k, it.List[k].Odd, it.List[k].Why(timeline.IEC))
		}
	}
}

func TestTwoStepsThatAreAlikeAreSteady(t *testing.T) {
	usual := step{peak: 50 << 20, churn: 40 << 20, blocks: 2, time: 1e6}
	for _, c := range []struct {
		second step
		steady int
	}{{usual, 0}, {step{peak: 90 << 20, churn: 40 << 20, blocks: 2, time: 1e6}, 2}} {
		if it := markedSteps(t, []step{usual, c.second}); it.Steady != c.steady {
			t.Errorf("%+v after %+v: steady from %d, not %d", c.second, usual, it.Steady, c.steady)
		}
	}
}

// TestWhatStaysAfterAStepMakesNoLaterStepUnusual: one step keeps 500 MiB for good. The steps after it begin
// that much higher and rise as they did before, so none of them differs.
func TestWhatStaysAfterAStepMakesNoLaterStepUnusual(t *testing.T) {
	const mib = 1 << 20
	var b strings.Builder
	for k := range 40 {
		if k == 38 {
			fmt.Fprintf(&b, "at %d\n+ kept %d\n", k*1_000_000-2000, 500*mib)
		}
		fmt.Fprintf(&b, "at %d\n+ p %d\n- p\n+ s 512\n- s\n", k*1_000_000, 1024*mib)
		fmt.Fprintf(&b, "mark iteration %d %d step %d\n", k*1_000_000, k*1_000_000+900_000, k+1)
	}
	it := steps.Of(timelinetest.Script(t, b.String()).Main())
	if len(it.List) != 40 {
		t.Fatalf("%d steps", len(it.List))
	}
	for k := range it.List {
		if got := it.List[k].Why(timeline.IEC); got != "" {
			t.Errorf("step %d is unusual: %q", k, got)
		}
	}
}

// A step's sentence has a clause for each difference; steps before the steady ones are warm-up, also where
// nothing differs. Each step is its blocks, as lines of code and MiB.
func TestWhyAStepDiffersNamesTheNewSiteWithTheMostBytes(t *testing.T) {
	const usual = "a40 b20"
	for _, c := range []struct {
		steps string
		why   []string
	}{
		{usual + "|" + usual + "|" + usual + "|a40 b20 d2 c1", []string{"", "", "",
			"peak +3.00 MiB, allocs +3.00 MiB, +2 allocations, 2 new call sites: site d.py:1"}},
		{usual + "|" + usual + "|" + usual + "|a40 b20 d2 c1 c3", []string{"", "", "",
			"peak +6.00 MiB, allocs +6.00 MiB, +3 allocations, 2 new call sites: site c.py:1"}},
		{usual + "|" + usual + "|" + usual + "|a40 b20 d2 c2", []string{"", "", "", // c comes first
			"peak +4.00 MiB, allocs +4.00 MiB, +2 allocations, 2 new call sites: site c.py:1"}},
		{usual + "|" + usual + "|" + usual + "|a38 b20 c2", []string{"", "", "",
			"+1 allocations, 1 new call site: site c.py:1"}},
		{"a3 d2 b40 c20|b40 c20|b40 c20", []string{ // the first of all sites
			"warm-up: rise +5.00 MiB, allocs +5.00 MiB, +2 allocations, 2 new call sites: site a.py:1",
			"", ""}},
		{"a40 b20 c3|" + usual + "|" + usual, []string{
			"warm-up: rise +3.00 MiB, allocs +3.00 MiB, +1 allocations, 1 new call site: site c.py:1",
			"", ""}},
		{usual + "|a40 b20 b5|" + usual + "|" + usual, []string{"",
			"warm-up: rise +5.00 MiB, allocs +5.00 MiB, +1 allocations", "", ""}},
	} {
		var b strings.Builder
		b.WriteString("gpu 0\n")
		for _, s := range "abcd" {
			fmt.Fprintf(&b, "stack %c site %c.py:1 < main t.py:1\n", s, s)
		}
		for k, one := range strings.Split(c.steps, "|") {
			at := k * 1_000_000
			fmt.Fprintf(&b, "at %d\nmark iteration %d %d step %d\n", at, at, at+1_000_000, k+1)
			f := strings.Fields(one)
			for i, x := range f {
				fmt.Fprintf(&b, "+ x%d %sm %c\n", i, x[1:], x[0])
			}
			for i := range f {
				fmt.Fprintf(&b, "- x%d\n", i)
			}
		}
		it := steps.Of(timelinetest.Script(t, b.String()).Main())
		for k := range it.List {
			if got := it.List[k].Why(timeline.IEC); got != c.why[k] {
				t.Errorf("%s: step %d: %q, not %q", c.steps, k, got, c.why[k])
			}
		}
	}
}
