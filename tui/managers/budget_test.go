package managers

import (
	"context"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func TestABudgetMovesInWholeSteps(t *testing.T) {
	st := &setup{held: 1000}
	for _, c := range []struct {
		from, want int64
		by         int
	}{
		{0, 1000, -5}, {700, 710, 1}, {700, 690, -1}, {703, 750, 5}, {703, 700, -5},
		{10, 10, -1}, {1500, 1500, 5},
	} {
		if got := (&budget{bytes: c.from}).next(st, c.by); got != c.want {
			t.Errorf("%d by %d is %d, want %d", c.from, c.by, got, c.want)
		}
	}
}

func TestABudgetRestsSinceItsLastChange(t *testing.T) {
	st := &setup{held: 1000}
	b := &budget{}
	first := b.set(st, 700, true)
	last := b.set(st, 600, true)
	if b.rested(first) || b.rested(settledMsg{&budget{}, last.number}) || !b.moving {
		t.Error("it rests though it moved since")
	}
	if !b.rested(last) || b.moving || b.bytes != 600 {
		t.Errorf("it does not rest: %v", b)
	}
}

func TestABudgetStaysWithATrainingFromStepToStep(t *testing.T) {
	step := func(rank int) *setup {
		d := viewtest.Training{Iterations: 2, Rank: rank}.Timeline(t).Main()
		return &setup{device: d, p: plantest.Chain(4, 1<<20, 1e6), held: 1000, floor: 300}
	}
	b := &budget{}
	if !b.settle(step(-1), false) || b.bytes != 700 {
		t.Errorf("it opens with %d", b.bytes)
	}
	b.bytes = 555
	if b.settle(step(-1), false) || b.bytes != 555 {
		t.Errorf("with the next step it is %d", b.bytes)
	}
	if !b.settle(step(3), false) || b.bytes != 700 {
		t.Errorf("another rank takes %d over", b.bytes)
	}
}

func TestABudgetIsDragged(t *testing.T) {
	st := &setup{held: 1000}
	b := &budget{bytes: 700, scale: 1000, slider: canvas.Rect{X: 10, Y: 5, W: 101, H: 1}}
	for i, c := range []struct {
		msg tea.MouseMsg
		to  int64
		ok  bool
	}{
		{tea.MouseMotionMsg{X: 40, Y: 5}, 0, false},
		{tea.MouseClickMsg{X: 40, Y: 6, Button: tea.MouseLeft}, 0, false},
		{tea.MouseClickMsg{X: 40, Y: 5, Button: tea.MouseRight}, 0, false},
		{tea.MouseClickMsg{X: 40, Y: 5, Button: tea.MouseLeft}, 300, true},
		{tea.MouseMotionMsg{X: 60, Y: 1}, 500, true},
		{tea.MouseMotionMsg{X: 0, Y: 5}, 10, true},
		{tea.MouseReleaseMsg{X: 60, Y: 5}, 700, true}, // stays: the View set nothing
		{tea.MouseMotionMsg{X: 60, Y: 5}, 0, false},
		{tea.MouseReleaseMsg{X: 60, Y: 5}, 700, false},
	} {
		if to, ok := b.mouse(st, c.msg); ok != c.ok || ok && to != c.to {
			t.Errorf("%d: %d, %v; want %d, %v", i, to, ok, c.to, c.ok)
		}
	}
}

// hardware is a planner that knows two.
type hardware struct{ Planner }

func (hardware) Hardware() []plan.Hardware {
	return []plan.Hardware{{Name: "Fast"}, {Name: "Slow"}}
}

func (hardware) Problem(
	_ context.Context, _ *timeline.Device, h plan.Hardware,
) (*plan.Problem, error) {
	p := plantest.Chain(4, 1<<20, 1e6)
	p.Hardware = h
	return p, nil
}

func TestASubjectIsOneDeviceOnOneHardware(t *testing.T) {
	x := subject{with: hardware{}}
	a, b := new(timeline.Device), new(timeline.Device)
	if !x.setups.Take(x.ask(a)()) || x.setup(a) == nil || x.setup(b) != nil {
		t.Error("a setup is about another device")
	}
	if x.ask(a) != nil {
		t.Error("what is known is asked for")
	}
	choice := x.pick()().(leaf.PickMsg).Choices[1]
	if x.hardware = choice.Msg.(hardwareMsg).index; choice.Title != "  Slow" || x.setup(a) != nil {
		t.Errorf("under %v the setup of the first hardware stands", choice)
	}
	if x.setups.Take(x.ask(a)()); x.setup(a).hardware != "Slow" {
		t.Errorf("it is planned for %s", x.setup(a).hardware)
	}
}
