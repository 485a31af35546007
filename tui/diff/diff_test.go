package diff

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/curves"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func open(t *testing.T, a, b viewtest.Training) (*viewtest.Screen, *view) {
	t.Helper()
	a.Path, b.Path = "before.pickle", "after.pickle"
	v := New().(*view)
	sc := viewtest.Open(t, v, a.Timeline(t), b.Timeline(t))
	sc.Text(120, 36)
	sc.Send(leaf.ChangedMsg{})
	return sc, v
}

func TestGoldens(t *testing.T) {
	small := viewtest.Training{Iterations: 3, Layers: 6}
	for name, b := range map[string]viewtest.Training{
		"larger":   {Iterations: 3, Layers: 6, Scale: 2},
		"deeper":   {Iterations: 4, Layers: 9},
		"same":     small,
		"no-clock": {Iterations: 3, Layers: 6, NoClock: true},
	} {
		t.Run(name, func(t *testing.T) {
			sc, _ := open(t, small, b)
			sc.Golden(name)
		})
	}
	t.Run("one", func(t *testing.T) { viewtest.Open(t, New(), small.Timeline(t)).Golden("one") })
}

func TestSwappingReversesEveryDelta(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, Layers: 6}, viewtest.Training{Iterations: 3, Layers: 9})
	sum := func() (n int64) {
		for _, r := range v.known(sc.State).Sites {
			n += r.B - r.A
		}
		return n
	}
	before := sum()
	sc.Press("S")
	if after := sum(); before == 0 || after != -before {
		t.Errorf("the sites differ by %d, and after swapping by %d", before, after)
	}
	if a, _ := names(sc.State, v.of, 60); !strings.Contains(a, "after.pickle") {
		t.Errorf("A is %s after a swap", a)
	}
}

func TestAStepUnderAPlanIsComparedWithOneWithout(t *testing.T) {
	plain, under := viewtest.Training{Iterations: 2, Scale: 2}.Timeline(t),
		viewtest.Training{Iterations: 2}.Timeline(t)
	v := New().(*view)
	sc := viewtest.Open(t, v, under)
	if ok, _ := v.Available(sc.State); ok {
		t.Error("a single step is compared with nothing")
	}
	sc.State.UnderPlan, sc.State.Basis, sc.State.BasisName = true, plain, "steps 42–43"
	if ok, why := v.Available(sc.State); !ok {
		t.Errorf("it is not available: %s", why)
	}
	sc.Send(leaf.ChangedMsg{})
	if a, b := names(sc.State, v.of, 60); a != "A steps 42–43" || b != "B under a plan" {
		t.Errorf("their names are %s and %s", a, b)
	}
	sc.Golden("under-a-plan")
}

func TestAligningAtThePeaksPutsThemInOneColumn(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 6}, viewtest.Training{Iterations: 4, Layers: 9})
	sc.Press("a")
	_, sh, ok := v.shapes.Value()
	if !ok {
		t.Fatal("there are no curves")
	}
	top := func(vals []int64) int {
		best := 0
		for i, x := range vals {
			if x > vals[best] {
				best = i
			}
		}
		return best
	}
	if a, b := top(sh.a), top(sh.b); max(a-b, b-a) > 1 {
		t.Errorf("A has its peak at half cell %d, B at %d", a, b)
	}
}

func TestCurvesReachTheirPeaks(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Layers: 6}, viewtest.Training{Iterations: 4, Layers: 9})
	for _, key := range []string{"a", "a"} {
		sc.Press(key)
		_, sh, _ := v.shapes.Value()
		for name, c := range map[string]struct {
			vals []int64
			peak int64
		}{"A": {sh.a, v.of.a.Totals.PeakAllocated}, "B": {sh.b, v.of.b.Totals.PeakAllocated}} {
			top := curves.None
			for _, x := range c.vals {
				top = max(top, x)
			}
			if top != c.peak {
				t.Errorf("curve %s reaches %d of %d", name, top, c.peak)
			}
		}
	}
}

func TestEnterShowsThePeakOfTheRecordingWithMore(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 3, Layers: 9}, viewtest.Training{Iterations: 3, Layers: 6})
	x := v.known(sc.State)
	row := 0
	for i, r := range x.Sites {
		if r.A > r.B {
			row = i
			break
		}
	}
	v.sites.Select(row)
	sc.Press("enter")
	if len(sc.Sent) == 0 {
		t.Fatal("enter sent nothing")
	}
	if sc.State.Cursor != v.of.a.Totals.PeakAt {
		t.Errorf("the cursor is at %d, A's peak at %d", sc.State.Cursor, v.of.a.Totals.PeakAt)
	}
}

func TestOneRecordingAloneCannotBeCompared(t *testing.T) {
	s := viewtest.State(viewtest.Training{Iterations: 1}.Timeline(t))
	if ok, why := New().Available(s); ok || !strings.Contains(why, "gmemtop replay A B") {
		t.Errorf("one recording: available %v, %q", ok, why)
	}
}

func BenchmarkDraw(b *testing.B) {
	s := viewtest.State(viewtest.Training{Iterations: 3, Layers: 20}.Timeline(b),
		viewtest.Training{Iterations: 3, Layers: 30}.Timeline(b))
	v := New().(*view)
	sc := viewtest.Screen{View: v, State: s}
	sc.Send(leaf.ChangedMsg{})
	c := canvas.New(200, 56, canvas.TrueColor, false)
	b.ReportAllocs()
	for b.Loop() {
		c.Clear()
		v.Draw(s, c)
		if len(c.String()) == 0 {
			b.Fatal("nothing was drawn")
		}
	}
}

// The chart's legend has the names of both recordings, however long they are.
func TestTheLegendNamesBothRecordings(t *testing.T) {
	a := viewtest.Training{Iterations: 2, Path: "runs/forward_and_backward_memory_snapshot_of_monday.pickle"}.Timeline(t)
	b := viewtest.Training{Iterations: 2, Scale: 2,
		Path: "runs/forward_and_backward_memory_snapshot_of_tuesday.pickle"}.Timeline(t)
	sc := viewtest.Open(t, New(), a, b)
	for _, w := range []int{80, 100, 120} {
		if text := sc.Mono(w, 24); !strings.Contains(text, "_monday.pickle") ||
			!strings.Contains(text, "_tuesday.pickle") {
			t.Errorf("%d columns:\n%s", w, text)
		}
	}
}
