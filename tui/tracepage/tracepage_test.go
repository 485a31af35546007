package tracepage

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func open(t *testing.T, o viewtest.Training) (*viewtest.Screen, *view) {
	t.Helper()
	v := New().(*view)
	sc := viewtest.Open(t, v, o.Timeline(t))
	sc.Text(120, 36)
	return sc, v
}

func TestGoldens(t *testing.T) {
	for name, o := range map[string]viewtest.Training{
		"complete": {Iterations: 2, Rank: 3},
		"losses":   {Iterations: 2, Losses: true, Pools: true},
		"no-clock": {Iterations: 1, NoClock: true, NoSegments: true},
	} {
		t.Run(name, func(t *testing.T) {
			sc, _ := open(t, o)
			sc.Golden(name)
		})
	}
}

func TestEveryLossIsOnThePageWithItsCount(t *testing.T) {
	sc, _ := open(t, viewtest.Training{Iterations: 2, Losses: true})
	text := sc.Text(160, 80)
	for _, l := range allLosses(sc.State.Timeline) {
		want := leaf.Count(l.Count) + " × " + strings.ReplaceAll(l.Name, "_", " ")
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestScrollingReachesTheLastRowAndNoFurther(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 2, Losses: true})
	sc.Text(80, 16)
	sc.Press("G")
	if at, rows := v.view.YOffset(), v.view.TotalLineCount(); at != rows-v.body.H {
		t.Errorf("the end shows row %d of %d in %d rows", at, rows, v.body.H)
	}
	if text := sc.Text(80, 16); !strings.Contains(text, "vendor") {
		t.Errorf("the last section is not visible at the end\n%s", text)
	}
	sc.Press("down", "g")
	if v.view.YOffset() != 0 {
		t.Errorf("the top shows row %d", v.view.YOffset())
	}
}

func TestScrollKeysAreOfferedOnlyIfThePageScrolls(t *testing.T) {
	sc, v := open(t, viewtest.Training{Iterations: 1})
	sc.Text(120, 90)
	if n := len(v.Bindings(sc.State)); n != 0 {
		t.Errorf("%d keys are offered on a page that fits", n)
	}
	sc.Text(80, 16)
	if len(v.Bindings(sc.State)) == 0 {
		t.Error("no keys are offered although the page does not fit")
	}
}

func BenchmarkDraw(b *testing.B) {
	s, v := viewtest.State(viewtest.Training{Iterations: 2, Losses: true}.Timeline(b)), New()
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
