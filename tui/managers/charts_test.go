package managers

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/curves"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// flatly is what charts show of managers that hold the same all the time.
func flatly(all roster, footprints ...int64) *picture {
	s := &leaf.State{Display: leaf.Display{Theme: theme.Dark()}}
	x := &picture{State: s, all: all, winner: rowKey{manager: -1}}
	x.q = question{&setup{p: plantest.Chain(4, 1<<20, 1e6)}, 0}
	x.q.setup.p.HasTimes = true
	for i, n := range footprints {
		r := came(all[i].Info.Name, n, float64(i)/10)[0]
		r.shape = &shape{span: 1e6, usage: make([]int64, curves.Samples)}
		for k := range r.shape.usage {
			r.shape.usage[k] = n
		}
		all[i].on = true
		x.rows = append(x.rows, row{manager: i, m: &all[i], result: &r})
	}
	return x
}

func TestChartsFindWhatLiesUnderTheMouse(t *testing.T) {
	all, _ := some()
	x := flatly(all, 100<<20, 50<<20, 10<<20)
	x.chosen = rowKey{manager: 1}
	list := x.drawn()
	if len(list) != 3 || list[2] != &x.rows[1] || list[1] != &x.rows[0] { // the chosen one over the baseline
		t.Fatalf("drawn are %v", list)
	}
	ch, c := &charts{}, canvas.New(140, 30, canvas.TrueColor, false)
	ch.draw(c, c.Bounds(), x)
	if ch.one || len(ch.spots) != 3 {
		t.Fatalf("%d letters are drawn, one chart: %v", len(ch.spots), ch.one)
	}
	for _, p := range ch.spots {
		if k, ok := ch.spotAt(p.x, p.y); !ok || k != p.of {
			t.Errorf("at its letter %v is %v", p.of, k)
		}
	}
	u := &ch.usage
	top, _ := ch.spotAt(u.area.X+u.area.W/2, u.area.Y)
	bottom, _ := ch.spotAt(u.area.X+u.area.W/2, u.area.Y+u.area.H-1)
	if top.manager != 0 || bottom.manager != 2 {
		t.Errorf("the highest curve is %v, the lowest %v", top, bottom)
	}
	if ch.clear(); len(ch.spots) != 0 {
		t.Error("letters stay that are not drawn any more")
	}
}

func TestOneChartIsDrawnWhereThereIsRoomForOne(t *testing.T) {
	all, _ := some()
	x := flatly(all, 100<<20)
	for _, pareto := range []bool{false, true} {
		ch, c := &charts{pareto: pareto}, canvas.New(80, 14, canvas.TrueColor, false)
		ch.draw(c, c.Bounds(), x)
		if !ch.one || (len(ch.spots) == 1) != pareto {
			t.Errorf("trade-off %v: %d letters, one chart: %v", pareto, len(ch.spots), ch.one)
		}
	}
	none, c := flatly(all), canvas.New(80, 14, canvas.TrueColor, false)
	none.running = true
	(&charts{}).draw(c, c.Bounds(), none)
	text := ansi.Strip(c.String())
	if !strings.Contains(text, "memory over time appears with the first plan") {
		t.Errorf("with no plan it says\n%s", text)
	}
}
