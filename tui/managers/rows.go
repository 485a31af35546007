package managers

import (
	"cmp"
	"context"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// ranking is the View as what puts the rows of its table into an order.
type ranking struct{ *View }

// refresh makes the table's rows anew from what is known, and asks for the sentence.
func (v ranking) refresh(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	if !ok {
		return nil
	}
	a := v.answersTo(q)
	v.rows = v.rows[:0]
	for _, served := range []bool{true, false} {
		for _, on := range []bool{true, false} {
			for i := range v.managers {
				m := &v.managers[i]
				if m.On == on && (q.setup.p.Serve(m.Info) == nil) == served {
					v.addRows(i, a, served)
				}
			}
		}
	}
	v.sort()
	v.table.SetRows(len(v.rows))
	if v.winner = v.findWinner(q, a); !v.picked && v.winner.manager >= 0 {
		v.chosen = v.winner
	}
	v.reselect()
	units := s.Units
	key := sentenceKey{q, v.version, units}
	c := v.comparison(q, a)
	if len(c.Results) == 0 {
		return nil
	}
	return v.sentence.Ask(key, func(context.Context) (string, error) { return c.Sentence(units), nil })
}

func (v ranking) addRows(i int, a *answers, served bool) {
	name := v.managers[i].Info.Name
	list, known := a.by[name]
	if known {
		v.shown[name] = list
	} else if served {
		list = v.shown[name]
	}
	if len(list) == 0 {
		v.rows = append(v.rows, row{manager: i, served: served})
	}
	for k := range list {
		v.rows = append(v.rows, row{manager: i, result: &list[k], stale: !known, served: served, of: list[k].Executor})
	}
}

// comparison gathers the answers to the question of the managers that are on.
func (v ranking) comparison(q question, a *answers) *replay.Comparison {
	c := &replay.Comparison{Problem: q.setup.p, Budget: q.budget, Net: a.net, Baseline: a.baseline}
	for i := range v.managers {
		if m := &v.managers[i]; m.on {
			for _, r := range a.by[m.Info.Name] {
				c.Results = append(c.Results, r.Result)
			}
		}
	}
	return c
}

// findWinner is the row that the sentence is about: the fastest that fits, or without a budget the smallest that costs no time.
func (v ranking) findWinner(q question, a *answers) rowKey {
	none := rowKey{manager: -1}
	var best *result
	who := none
	for i := range v.managers {
		m := &v.managers[i]
		if !m.on {
			continue
		}
		list := a.by[m.Info.Name]
		for k := range list {
			r := &list[k]
			if !r.Available || r.Executor != plan.Ideal || q.budget > 0 && !r.Fits || q.budget == 0 && r.Overhead > noTime {
				continue
			}
			if best == nil || v.better(q, r, best) {
				best, who = r, rowKey{i, r.Executor}
			}
		}
	}
	return who
}

func (v ranking) better(q question, x, y *result) bool {
	a, b := &x.Measurement, &y.Measurement
	if q.budget == 0 {
		return a.Footprint < b.Footprint
	}
	return cmp.Or(cmp.Compare(a.StepTime, b.StepTime), cmp.Compare(a.Footprint, b.Footprint)) < 0
}

// sort puts the rows into the order that the head of the table shows; what has no value comes last.
func (v ranking) sort() {
	if v.table.SortBy < 0 {
		return
	}
	value := func(r *row) (x float64, ok bool) {
		if r.result == nil || !r.result.Available {
			return 0, false
		}
		m := &r.result.Measurement
		switch v.table.SortBy {
		case colFootprint:
			return float64(m.Footprint), true
		case colOver:
			return over(r.result), true
		case colStep:
			return float64(m.StepTime), true
		case colOverhead:
			return r.result.Overhead, true
		case colStall:
			return float64(m.Stall), true
		case colOut:
			return float64(m.SwappedOut), true
		case colIn:
			return float64(m.SwappedIn), true
		case colRecompute:
			return float64(m.RecomputeTime), true
		case colPlanned:
			return float64(r.result.Plan.Planning), true
		}
		return 0, true
	}
	slices.SortStableFunc(v.rows, func(a, b row) int {
		x, xok := value(&a)
		y, yok := value(&b)
		if xok != yok {
			if xok {
				return -1
			}
			return 1
		}
		order := cmp.Compare(x, y)
		if v.table.SortBy == colName {
			order = strings.Compare(v.managers[a.manager].Info.Name, v.managers[b.manager].Info.Name)
		}
		if v.table.Descending {
			return -order
		}
		return order
	})
}

// reselect puts the selection on the chosen row, wherever it is now.
func (v ranking) reselect() {
	for pass := range 2 {
		for i := range v.rows {
			if r := &v.rows[i]; r.manager == v.chosen.manager && (pass == 1 || r.of == v.chosen.executor) {
				v.table.Select(i)
				return
			}
		}
	}
	v.table.Select(0)
	if r := v.current(); r != nil {
		v.chosen = rowKey{r.manager, r.of}
	}
}

// follow chooses the row that is selected.
func (v ranking) follow() {
	if r := v.current(); r != nil {
		v.choose(rowKey{r.manager, r.of})
	}
}
