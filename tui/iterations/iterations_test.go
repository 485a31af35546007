package iterations

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/curves"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func show(t *testing.T, o viewtest.Training) (*viewtest.Screen, *view) {
	t.Helper()
	v := New().(*view)
	sc := viewtest.Open(t, v, o.Timeline(t))
	sc.Text(120, 36)
	sc.Send(leaf.ChangedMsg{})
	return sc, v
}

func TestGoldens(t *testing.T) {
	for name, o := range map[string]viewtest.Training{
		"steady":   {Iterations: 6, Layers: 6},
		"odd":      {Iterations: 8, Layers: 6, Odd: 6},
		"leak":     {Iterations: 9, Layers: 6, Leak: true},
		"one":      {Iterations: 1, Layers: 6},
		"no-clock": {Iterations: 6, Layers: 6, NoClock: true},
		"none":     {Iterations: 0},
	} {
		t.Run(name, func(t *testing.T) {
			sc, _ := show(t, o)
			sc.Golden(name)
		})
	}
}

func TestTheBandContainsEverySteadyStep(t *testing.T) {
	sc, v := show(t, viewtest.Training{Iterations: 8, Layers: 6, Odd: 6})
	_, sh, ok := v.shapes.Value()
	if !ok {
		t.Fatal("there are no curves")
	}
	it := steps.Of(sc.State.Device)
	inBand := 0
	for i := range it.List {
		shape := sh.shape(i)
		within := true
		for k, x := range shape {
			within = within && x == curves.None || within && sh.high[k] != curves.None && x >= sh.low[k] &&
				x <= sh.high[k]
		}
		steady := i >= it.Steady && !it.List[i].Odd
		if steady && !within {
			t.Errorf("steady iteration %d leaves the band", i)
		}
		if it.List[i].Odd && i >= it.Steady && within {
			t.Errorf("the odd iteration %d is within the band", i)
		}
		if steady {
			inBand++
		}
	}
	if inBand != sh.of {
		t.Errorf("the band reports %d steps, but there are %d", sh.of, inBand)
	}
}

func TestThePeakOfACurveIsThePeakOfTheIteration(t *testing.T) {
	sc, v := show(t, viewtest.Training{Iterations: 5, Layers: 6})
	_, sh, _ := v.shapes.Value()
	for i, x := range steps.Of(sc.State.Device).List {
		top := int64(0)
		for _, y := range sh.shape(i) {
			top = max(top, y)
		}
		if top < x.PeakAllocated {
			t.Errorf("the curve of iteration %d reaches %d of its peak %d", i, top, x.PeakAllocated)
		}
	}
}

func TestMovingARowMovesTheCursorToThatStepsPeak(t *testing.T) {
	sc, v := show(t, viewtest.Training{Iterations: 6, Layers: 6})
	sc.Press("g", "down", "down")
	want := steps.Of(sc.State.Device).List[2]
	if sc.State.Cursor != want.PeakAt {
		t.Errorf("the cursor is at event %d, the third step's peak at %d", sc.State.Cursor, want.PeakAt)
	}
	sc.State.Cursor = steps.Of(sc.State.Device).List[4].First
	sc.Send(leaf.ChangedMsg{})
	if v.selected() != 4 {
		t.Errorf("the cursor is in the fifth step, but row %d is selected", v.selected())
	}
}

func TestEnterZoomsToTheStep(t *testing.T) {
	sc, _ := show(t, viewtest.Training{Iterations: 6, Layers: 6})
	sc.Press("g", "down", "enter")
	x := steps.Of(sc.State.Device).List[1]
	w := sc.State.Window
	if w.From > x.Start || w.To < x.Finish || w.To-w.From > 2*(x.Finish-x.Start) {
		t.Errorf("the window is [%d, %d), the step [%d, %d)", w.From, w.To, x.Start, x.Finish)
	}
	if shown, ok := sc.Sent[len(sc.Sent)-1].(leaf.ShowMsg); !ok || shown.View != leaf.Timeline {
		t.Errorf("enter sent %v", sc.Sent)
	}
}

func TestSortingByPeakPutsTheOddStepFirst(t *testing.T) {
	sc, v := show(t, viewtest.Training{Iterations: 8, Layers: 6, Odd: 6})
	sc.ClickOn(120, 36, "peak MiB")
	if v.order[0] != 5 {
		t.Errorf("sorted by peak, iteration %d comes first", v.order[0])
	}
}

func TestTheSentenceNamesTheOddStepAndTheTrend(t *testing.T) {
	sc, v := show(t, viewtest.Training{Iterations: 8, Layers: 6, Odd: 6})
	text := sentence(sc.State, v.known(sc.State))
	if x := &steps.Of(sc.State.Device).List[5]; !strings.Contains(text, x.Name+" differs") {
		t.Errorf("%q does not name the sixth step", text)
	}
	sc, v = show(t, viewtest.Training{Iterations: 9, Layers: 6, Leak: true})
	if text := sentence(sc.State, v.known(sc.State)); !strings.Contains(text, "a leak") {
		t.Errorf("%q does not mention the leak", text)
	}
	if v.leaks.Rows() == 0 {
		t.Fatal("no call site leaks")
	}
	sc.Press("tab", "enter")
	if !strings.Contains(sc.State.QueryText, "log_loss") {
		t.Errorf("enter on the leak filters %q", sc.State.QueryText)
	}
}

func TestOrdinalsAreEnglish(t *testing.T) {
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th",
		13: "13th", 21: "21st", 112: "112th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d became %s", n, got)
		}
	}
}

func TestARecordingWithoutEventsIsNotAvailable(t *testing.T) {
	d := &timeline.Device{}
	if ok, why := New().Available(&leaf.State{Open: leaf.Open{Device: d}}); ok || why == "" {
		t.Error("a recording without events has iterations")
	}
}

func BenchmarkDraw(b *testing.B) {
	s, v := viewtest.State(viewtest.Training{Iterations: 100, Layers: 20, Odd: 50}.Timeline(b)), New().(*view)
	st := find(s.Device)
	sc := viewtest.Screen{View: v, State: s}
	sc.Send(leaf.ChangedMsg{})
	c := canvas.New(200, 56, canvas.TrueColor, false)
	v.Draw(s, c)
	sc.Send(leaf.ChangedMsg{})
	b.ReportMetric(float64(len(st.it.List)), "iterations")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Clear()
		v.table.Select(i % len(st.it.List))
		v.Draw(s, c)
		if len(c.String()) == 0 {
			b.Fatal("nothing was drawn")
		}
	}
}
