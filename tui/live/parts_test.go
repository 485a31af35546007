package live

import (
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/gmemtop/gmemtop/traces/maybe"
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
