package managers

import (
	"cmp"
	"errors"
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
	a := v.planning.answersTo(q)
	v.rows = v.rows[:0]
	for i := range v.managers {
		v.addRows(i, a, q.setup.p.Serve(v.managers[i].Info) == nil)
	}
	for i := range v.rows {
		v.rows[i].stands = v.rows[i].of == plan.TorchEager || !slices.ContainsFunc(v.rows, func(r row) bool {
			return r.manager == v.rows[i].manager && r.of == plan.TorchEager
		})
	}
	v.rank(q.budget > 0)
	v.sort(q)
	v.table.SetRows(len(v.rows))
	if v.winner = v.findWinner(q, a); !v.picked {
		switch least := v.least(); {
		case v.winner.manager >= 0:
			v.chosen = v.winner
		case q.budget > 0 && least.manager >= 0:
			v.chosen = least
		}
	}
	v.reselect()
	return v.planning.ask(q, v.managers, s.Units)
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
		v.rows = append(v.rows, row{manager: i, name: name, served: served})
	}
	for k := range list {
		v.rows = append(v.rows, row{manager: i, name: name, result: &list[k], stale: !known, served: served, of: list[k].Executor})
	}
}

// rank puts the rows into the order in which somebody who looks for memory reads them: what memory is managed
// by today, then the results, best first (see [replay.Rank]), then those that are on and have none yet, those
// that are off, and those that the recording does not serve.
func (v ranking) rank(budget bool) {
	class := func(r *row) int {
		m := &v.managers[r.manager]
		switch {
		case !r.served && m.On:
			return 5
		case !r.served:
			return 6
		case r.result != nil && r.result.Available && m.Info.Name == replay.Today:
			return 0
		case r.result != nil && r.result.Available:
			return 1
		case m.On && r.result == nil:
			return 2
		case r.result != nil:
			return 3
		}
		return 4
	}
	slices.SortStableFunc(v.rows, func(a, b row) int {
		if d := cmp.Compare(class(&a), class(&b)); d != 0 || a.result == nil || b.result == nil {
			return d
		}
		return replay.Rank(&a.result.Result, &b.result.Result, budget)
	})
}

// findWinner is the row that the sentence is about: the fastest that fits, or without a budget the smallest
// that costs no time.
func (v ranking) findWinner(q question, a *answers) rowKey {
	var best *result
	who := rowKey{manager: -1}
	for i := range v.managers {
		m := &v.managers[i]
		if !m.on {
			continue
		}
		list := a.by[m.Info.Name]
		for k := range list {
			r := &list[k]
			if !r.Available || q.budget > 0 && !r.Fits || q.budget == 0 && (r.Overhead > noTime || r.Executor != plan.Ideal) {
				continue
			}
			better := best == nil
			if !better {
				d := replay.Rank(&r.Result, &best.Result, q.budget > 0)
				better = d < 0 || d == 0 && r.Executor == plan.Ideal && best.Executor != plan.Ideal
			}
			if better {
				best, who = r, rowKey{i, r.Executor}
			}
		}
	}
	return who
}

// least is the row of the smallest footprint: the one that the sentence names where nothing fits.
func (v ranking) least() rowKey {
	var best *row
	for i := range v.rows {
		r := &v.rows[i]
		if !v.managers[r.manager].on || r.stale || r.result == nil || !r.result.Available {
			continue
		}
		if best == nil || r.result.Measurement.Footprint < best.result.Measurement.Footprint {
			best = r
		}
	}
	if best == nil {
		return rowKey{manager: -1}
	}
	return rowKey{best.manager, best.of}
}

// sort puts the rows into the order that the head of the table shows; what has no value comes last.
func (v ranking) sort(q question) {
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
		case colMeasured, colMeasuredOverhead:
			x, ok := v.measuring.of(q, r)
			ok = ok && x.Available
			if v.table.SortBy == colMeasured {
				return float64(x.Measurement.Footprint), ok
			}
			return x.Overhead, ok
		case colStall:
			return float64(m.Stall), true
		case colOut:
			return float64(m.SwappedOut), true
		case colIn:
			return float64(m.SwappedIn), true
		case colRecompute:
			return float64(m.RecomputeTime), true
		case colBatch:
			n, known := v.search.of(q, r)
			return float64(n), known
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
				v.show(i)
				return
			}
		}
	}
	v.table.Select(0)
	if r := v.current(); r != nil {
		v.chosen = rowKey{r.manager, r.of}
	}
}

// show selects a row. Where nobody scrolled, what is above it is in sight too: today's allocator, as far as
// there is room.
func (v ranking) show(row int) {
	if !v.picked {
		v.table.Select(0)
	}
	v.table.Select(row)
}

// follow chooses the row that is selected.
func (v ranking) follow() {
	if r := v.current(); r != nil {
		v.choose(rowKey{r.manager, r.of})
	}
}

// whyNot says in one clause why a row has no plan.
func (v *View) whyNot(s *leaf.State, r *row) string {
	st := v.setup(s)
	if st == nil {
		return ""
	}
	if err := st.p.Serve(v.managers[r.manager].Info); err != nil {
		var u *plan.Unavailable
		if errors.As(err, &u) {
			return commandFirst(u.Reason)
		}
		return err.Error()
	}
	if r.result != nil && !r.result.Available {
		return r.result.Reason
	}
	return ""
}

// commandFirst puts the command that helps, where a reason ends with one, before what is wrong: it is what a
// narrow row has to show.
func commandFirst(reason string) string {
	if wrong, command, ok := strings.Cut(reason, ": "); ok && strings.HasPrefix(command, "gmemtop ") {
		return command + "; " + wrong
	}
	return reason
}
