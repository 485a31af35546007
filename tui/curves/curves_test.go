package curves

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// spike returns a curve that is flat except for one value.
func spike(at int) []int64 {
	v := make([]int64, Samples)
	for i := range v {
		v[i] = 10
	}
	v[at] = 1000
	return v
}

func top(values []int64) int64 {
	best := None
	for _, v := range values {
		best = max(best, v)
	}
	return best
}

func TestASpikeOfOneSampleIsVisibleAtEveryWidth(t *testing.T) {
	for _, at := range []int{0, 1, 255, Samples - 1} {
		for _, w := range []int{1, 7, 100, Samples, Samples + 1, 3 * Samples} {
			p := Plot{Curves: []Curve{{High: spike(at)}}}
			if got := top(p.fitted(w).Curves[0].High); got != 1000 {
				t.Errorf("in column %d of %d the spike is %d", at, w, got)
			}
		}
	}
}

func TestTheBandShowsItsMinimum(t *testing.T) {
	low := make([]int64, Samples)
	for i := range low {
		low[i] = 500
	}
	low[200] = 1
	p := Plot{Curves: []Curve{{High: spike(3), Low: low}}}
	least := int64(1 << 60)
	for _, v := range p.fitted(30).Curves[0].Low {
		least = min(least, v)
	}
	if least != 1 {
		t.Errorf("the minimum of the band is %d", least)
	}
}

func TestACurveIsNotDrawnWhereItDoesNotExist(t *testing.T) {
	v := make([]int64, Samples)
	for i := range v {
		v[i] = None
		if i < Samples/2 {
			v[i] = 5
		}
	}
	for _, th := range []*theme.Theme{theme.Dark(), theme.Mono()} {
		s := &leaf.State{Display: leaf.Display{Theme: th}}
		c := canvas.New(80, 10, canvas.NoColor, false)
		p := Plot{Curves: []Curve{{High: v, Mark: '*'}}, High: 10}
		area := p.Draw(s, c, c.Bounds())
		drawn := func(from, to int) bool {
			for x := from; x < to; x++ {
				for y := range area.H {
					if r := c.At(area.X+x, area.Y+y).Rune; r >= 0x2800 || r == '*' {
						return true
					}
				}
			}
			return false
		}
		if !drawn(0, area.W/2) || drawn(area.W/2+1, area.W) {
			t.Errorf("theme %s: the curve is not drawn over the first half alone\n%s", th.Name,
				ansi.Strip(c.String()))
		}
	}
}

func TestAPlotWithoutRoomDrawsNothing(t *testing.T) {
	p := Plot{Curves: []Curve{{High: spike(9)}}}
	c := canvas.New(80, 12, canvas.NoColor, false)
	dark := &leaf.State{Display: leaf.Display{Theme: theme.Dark()}}
	if area := p.Draw(dark, c, c.Bounds()); area.H != 10 || area.W == 0 {
		t.Errorf("the plot is in %+v", area)
	}
	if p.Draw(dark, c, canvas.Rect{W: 10, H: 2}) != (canvas.Rect{}) {
		t.Error("a plot was drawn where there is no room")
	}
}

func TestSamplesOfARecordingReachItsPeak(t *testing.T) {
	d := viewtest.Training{Iterations: 3, Layers: 9}.Timeline(t).Main()
	for _, n := range []int{1, 17, Samples} {
		if got := top(Sample(d, d.Allocated, d.Full(0), 0, n)); got != d.Totals.PeakAllocated {
			t.Errorf("in %d samples the peak is %d of %d", n, got, d.Totals.PeakAllocated)
		}
	}
}

func TestTheXAxisCountsFromItsOrigin(t *testing.T) {
	p := Plot{Curves: []Curve{{High: spike(9)}}, Span: 10_000_000, Origin: 5_000_000}
	c := canvas.New(100, 8, canvas.NoColor, false)
	p.Draw(&leaf.State{Display: leaf.Display{Theme: theme.Dark()}}, c, c.Bounds())
	text := ansi.Strip(c.String())
	for _, want := range []string{"−4 ms", "−2 ms", "2 ms", "4 ms"} {
		if !strings.Contains(text, want) {
			t.Errorf("the axis has no %q\n%s", want, text)
		}
	}
}
