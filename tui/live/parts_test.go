package live

import (
	"math/rand/v2"
	"slices"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/canvas"
)

// stepsTo returns a look at steps 0 to last.
func stepsTo(last int64) *Look {
	l := &Look{}
	for i := range last + 1 {
		l.Steps = append(l.Steps, Step{Index: i})
	}
	return l
}

func TestTheSelectedStepStaysSelected(t *testing.T) {
	x := newStepTable()
	ten, twelve := stepsTo(9), stepsTo(11)
	selected := func(l *Look) int64 {
		st, _ := l.step(x.Selected())
		return st.Index
	}
	x.take(ten, &Look{})
	x.take(twelve, ten)
	if got := selected(twelve); got != 11 {
		t.Errorf("the newest step was selected, but now step %d of 0 to 11 is", got)
	}
	if !x.choose(twelve, 4) || x.choose(twelve, 40) || selected(twelve) != 4 {
		t.Errorf("step %d is chosen, want 4", selected(twelve))
	}
	more := stepsTo(20)
	if x.take(more, twelve); selected(more) != 4 {
		t.Errorf("step %d is selected after more steps came", selected(more))
	}
	other := stepsTo(20)
	other.Chosen = 1
	if x.take(other, more); selected(other) != 20 {
		t.Errorf("step %d of another process is selected", selected(other))
	}
}

func TestTabGivesTheListOfRanksTheKeys(t *testing.T) {
	p := newRanksPane()
	l := &Look{Ranks: []Rank{{ID: 7, Rank: maybe.Known(0)}, {ID: 8, Rank: maybe.Known(1)}}, Chosen: 7}
	p.take(l, &Look{})
	down, enter := tea.KeyPressMsg{Code: tea.KeyDown}, tea.KeyPressMsg{Code: tea.KeyEnter}
	if _, _, ok := p.update(l, down); ok {
		t.Error("it gets keys before tab is pressed")
	}
	p.update(l, tea.KeyPressMsg{Code: tea.KeyTab})
	p.update(l, down)
	if id, chosen, ok := p.update(l, enter); id != 8 || !chosen || !ok {
		t.Errorf("enter chooses %d, %t, %t", id, chosen, ok)
	}
	if p.take(&Look{}, l); p.focus {
		t.Error("it still gets keys although there is only one process")
	}
}

func TestOrdersNameTheProcess(t *testing.T) {
	l := &Look{Ranks: []Rank{{ID: 7, Rank: maybe.Known(0)}, {ID: 8, Rank: maybe.Known(1)}}, Chosen: 8}
	if _, ok := takeOrder(nil, l, tea.KeyPressMsg{}); ok {
		t.Error("a key was taken for an order")
	}
	if cmd, ok := takeOrder(nil, l, chooseMsg{8}); cmd != nil || !ok {
		t.Error("the process on the screen was requested again")
	}
	if l.of() != " of rank 1" || (&Look{}).of() != "" {
		t.Errorf("orders go to %q", l.of())
	}
}

// The chart of all steps covers each of them once, whether it is kept by itself or only summed up, and each
// column is as high as the fullest step under it.
func TestTheChartOfAllStepsCoversThoseThatAreSummedUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		l := &Look{}
		var held []int64 // of each step, in order
		for range random.IntN(20) {
			p := Span{First: int64(len(held)), Steps: 1 + random.Int64N(200),
				Bytes: maybe.Known(random.Int64N(99))}
			l.Rolled = append(l.Rolled, p)
			held = append(held, slices.Repeat([]int64{p.Bytes.Or(0)}, int(p.Steps))...)
		}
		early := len(held)
		for range 1 + random.IntN(600) {
			b := random.Int64N(99)
			l.Steps = append(l.Steps, Step{Index: int64(len(held)), Bytes: maybe.Known(b)})
			held = append(held, b)
		}
		x := chart{whole: true}
		p := x.columns(l, canvas.Rect{W: 1 + random.IntN(150), H: 5})
		next := 0
		for i := range p.count {
			from, to := p.stepsOf(i)
			if i%p.wide > 0 {
				continue // more cells of the same step
			}
			if from != next || to <= from {
				t.Fatalf("column %d is of the steps %d to %d, and %d is next", i, from, to, next)
			}
			next = to
			if k := p.at(i, l, nil, -1); k.bytes != slices.Max(held[from:to]) {
				t.Fatalf("column %d, of the steps %d to %d with %d in spans, is %d high and the fullest "+
					"step %d", i, from, to, early, k.bytes, slices.Max(held[from:to]))
			}
		}
		if next != len(held) || l.seen() != int64(len(held)) {
			t.Fatalf("%d of %d steps are shown, and %d said to have been seen", next, len(held), l.seen())
		}
	}
}

func TestARankWhoseStepsAreAllSummedUpHasTrained(t *testing.T) {
	l := &Look{State: Ended, Word: "it has exited", Title: "train.py", Rolled: []Span{
		{First: 0, Steps: 1000, Bytes: maybe.Known(3 << 30)},
		{First: 1000, Steps: 200, Bytes: maybe.Known(5 << 30)}}}
	const want = "train.py ended: it has exited. It took 1,200 steps, which are too old to be kept one " +
		"by one; they held at most 5.00 GiB."
	if got := l.sentence(timeline.IEC); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
