package managers

import (
	"cmp"
	"math"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/tui/table"
)

// ranking is the rows of the table from best to worst, which of them is chosen, and which is the answer. It
// knows no other part of the view.
type ranking struct {
	table  *table.Table
	height int // of the last Draw
	rows   []row
	shown  map[string][]result // the latest results of each manager, whatever the budget
	chosen rowKey
	picked bool // the user chose it: until then the answer is chosen
	winner rowKey
	// measured returns what the training measured of a row's plan, nil for nothing.
	measured func(q question, r *row) *replay.Result
}

// The columns.
const (
	colOn = iota
	colName
	colAfter
	colExecutor
	colFits
	colFootprint
	colBar
	colOver
	colStep
	colOverhead
	colMeasured
	colMeasuredOverhead
	colStall
	colOut
	colIn
	colRecompute
	colBatch
	colPlanned
)

// leastName is the least width of the column with the managers' names.
const leastName = 16

func newRanking() ranking {
	nobody := rowKey{manager: -1}
	unmeasured := func(question, *row) *replay.Result { return nil }
	return ranking{measured: unmeasured, shown: map[string][]result{}, chosen: nobody, winner: nobody,
		table: table.New(
			table.Column{Title: "on", Width: 2},
			table.Column{Title: "manager", Width: leastName, Max: 22, Sortable: true},
			table.Column{Title: "after", Width: 10, Max: 18, Drop: 9},
			table.Column{Title: "runs", Width: 13, Drop: 10},
			table.Column{Title: "fits", Width: 4},
			table.Column{Title: "footprint", Width: 9, Max: 10, Right: true, Sortable: true},
			table.Column{Title: "", Width: 8, Max: 30, Drop: 3},
			table.Column{Title: "above min", Width: 10, Right: true, Drop: 8, Sortable: true},
			table.Column{Title: "step", Width: 7, Max: 10, Right: true, Sortable: true},
			table.Column{Title: "overhead", Width: 8, Max: 10, Right: true, Sortable: true},
			table.Column{Title: "", Width: 9, Max: 10, Right: true, Sortable: true},
			table.Column{Title: "overhead", Width: 8, Max: 10, Right: true, Sortable: true},
			table.Column{Title: "stall", Width: 7, Right: true, Drop: 2, Sortable: true},
			table.Column{Title: "out", Width: 8, Right: true, Drop: 4, Sortable: true},
			table.Column{Title: "in", Width: 8, Right: true, Drop: 5, Sortable: true},
			table.Column{Title: "re-run", Width: 7, Right: true, Drop: 6, Sortable: true},
			table.Column{Title: "batch", Width: 6, Max: 8, Right: true, Sortable: true},
			table.Column{Title: "planning", Width: 8, Right: true, Drop: 7, Sortable: true},
		)}
}

// refresh rebuilds the rows from the answers to a question. more returns a figure of a column that others
// know, for sorting.
func (k *ranking) refresh(q question, a *answers, all roster, more func(r *row, col int) (float64, bool)) {
	k.rows = k.rows[:0]
	for i := range all {
		k.add(i, &all[i], a, q.setup.p.Serve(all[i].Info))
	}
	k.judge()
	for i := range k.rows {
		k.rows[i].see(k.measured(q, &k.rows[i]))
	}
	k.number()
	k.rank(q.budget > 0)
	k.sort(more)
	k.table.SetRows(len(k.rows))
	if k.winner = answerRow(a.comparison(q, all), all); !k.picked {
		switch least := k.least(); {
		case k.winner.manager >= 0:
			k.chosen = k.winner
		case q.budget > 0 && least.manager >= 0:
			k.chosen = least
		}
	}
	k.reselect()
}

// judge determines for each row whether PyTorch can run it today.
func (k *ranking) judge() {
	eager := func(r row) bool { return r.of == plan.TorchEager }
	mixed := slices.ContainsFunc(k.rows, eager)
	for i := range k.rows {
		r := &k.rows[i]
		r.stands = eager(*r) || !slices.ContainsFunc(k.rows, func(x row) bool {
			return x.manager == r.manager && eager(x)
		})
		r.theory = mixed && r.runs() == replay.InTheory
	}
}

// add adds the rows of a manager; err says why the recording does not suffice for it.
func (k *ranking) add(i int, m *manager, a *answers, err error) {
	list, known := a.by[m.Info.Name]
	if known {
		k.shown[m.Info.Name] = list
	} else if err == nil {
		list = k.shown[m.Info.Name]
	}
	r := row{manager: i, m: m, served: err == nil, stale: !known && len(list) > 0, why: whyNot(err)}
	if len(list) == 0 {
		k.rows = append(k.rows, r)
	}
	for n := range list {
		r.result, r.of = &list[n], list[n].Executor
		if err == nil && !list[n].Available {
			r.why = list[n].Reason
		} else {
			r.why = whyNot(err)
		}
		k.rows = append(k.rows, r)
	}
}

// rank sorts the rows for a reader who needs memory: today's memory management, then the results, best first
// (see [replay.Rank]), then the managers that are on and have none yet, or one for another budget, those that
// are off, and those for which the recording does not suffice.
func (k *ranking) rank(budget bool) {
	class := func(r *row) int {
		m := r.m
		switch {
		case !r.served && m.On:
			return 5
		case !r.served:
			return 6
		case r.result != nil && r.result.Available && m.Info.Name == replay.Today:
			return 0
		case r.planned():
			return 1
		case m.On && r.stale && r.result.Available:
			return 2
		case m.On && r.result == nil:
			return 2
		case r.result != nil:
			return 3
		}
		return 4
	}
	slices.SortStableFunc(k.rows, func(a, b row) int {
		if d := cmp.Compare(class(&a), class(&b)); d != 0 || a.result == nil || b.result == nil {
			return d
		}
		fits := func(r *row) bool { return !budget || r.at.Fits }
		if fits(&a) && fits(&b) && today(&a, &b) != 0 {
			return today(&a, &b)
		}
		return replay.Rank(&a.at, &b.at, budget)
	})
}

// today puts rows that PyTorch can run today before those that an ideal executor could.
func today(a, b *row) int {
	switch {
	case a.theory == b.theory:
		return 0
	case b.theory:
		return -1
	}
	return 1
}

// Marks of rows that are not on the frontier, and of those that no digit is left for.
const (
	otherMark = '•'
	lastMark  = '+'
)

// number gives the rows of the frontier, on which no other takes less memory and is as fast, the digits from
// 1 on, the smallest first. The others are all alike, and so are rows in theory: they would take the digits
// from what PyTorch can run.
func (k *ranking) number() {
	var list []*row
	for i := range k.rows {
		r := &k.rows[i]
		if r.mark = otherMark; r.planned() && r.m.on && !r.theory {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b *row) int {
		x, y := &a.at.Measurement, &b.at.Measurement
		return cmp.Or(cmp.Compare(x.Footprint, y.Footprint),
			cmp.Compare(a.at.Overhead, b.at.Overhead))
	})
	mark, fastest := '1', math.Inf(1)
	for _, r := range list {
		if r.at.Overhead >= fastest {
			continue
		}
		fastest, r.mark = r.at.Overhead, mark
		if mark++; mark > '9' {
			mark = lastMark
		}
	}
}

// answerRow is the row of the result that the sentence names.
func answerRow(c *replay.Comparison, all roster) rowKey {
	best, ok := c.Answer()
	if !ok {
		return rowKey{manager: -1}
	}
	i := slices.IndexFunc(all, func(m manager) bool { return m.Info.Name == best.Info.Name })
	return rowKey{i, best.Executor}
}

// least returns the row with the smallest footprint, which the sentence names if nothing fits.
func (k *ranking) least() rowKey {
	var best *row
	for i := range k.rows {
		r := &k.rows[i]
		if !r.m.on || r.stale || r.result == nil || !r.result.Available {
			continue
		}
		if best == nil || r.at.Measurement.Footprint < best.at.Measurement.Footprint {
			best = r
		}
	}
	if best == nil {
		return rowKey{manager: -1}
	}
	return rowKey{best.manager, best.of}
}

// sort puts the rows into the order that the head of the table shows; what has no value comes last.
func (k *ranking) sort(more func(r *row, col int) (float64, bool)) {
	if k.table.SortBy < 0 {
		return
	}
	value := func(r *row) (x float64, ok bool) {
		if r.result == nil || !r.result.Available {
			return 0, false
		}
		m := &r.at.Measurement
		switch k.table.SortBy {
		case colFootprint:
			return float64(m.Footprint), true
		case colOver:
			return over(r.result), true
		case colStep:
			return float64(m.StepTime), true
		case colOverhead:
			return r.at.Overhead, true
		case colMeasured, colMeasuredOverhead, colBatch:
			return more(r, k.table.SortBy)
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
	slices.SortStableFunc(k.rows, func(a, b row) int {
		x, xok := value(&a)
		y, yok := value(&b)
		if xok != yok {
			if xok {
				return -1
			}
			return 1
		}
		order := cmp.Compare(x, y)
		if k.table.SortBy == colName {
			order = strings.Compare(a.m.Info.Name, b.m.Info.Name)
		}
		if k.table.Descending {
			return -order
		}
		return order
	})
}

// reselect puts the selection on the chosen row, wherever it is now.
func (k *ranking) reselect() {
	for pass := range 2 {
		for i := range k.rows {
			if r := &k.rows[i]; r.manager == k.chosen.manager && (pass == 1 || r.of == k.chosen.executor) {
				k.show(i)
				return
			}
		}
	}
	k.table.Select(0)
	if r := k.current(); r != nil {
		k.chosen = r.key()
	}
}

// show selects a row. Unless the user scrolled, the rows above it stay in sight as far as there is room, down
// from today's allocator.
func (k *ranking) show(row int) {
	if !k.picked {
		k.table.Select(0)
	}
	k.table.Select(row)
}

// follow chooses the row that is selected.
func (k *ranking) follow() {
	if r := k.current(); r != nil {
		k.choose(r.key())
	}
}

// choose has the user choose a row.
func (k *ranking) choose(key rowKey) {
	k.chosen, k.picked = key, true
	k.reselect()
}

// update passes a key or the mouse to the table, and returns what that did.
func (k *ranking) update(msg tea.Msg) table.Kind {
	before := k.table.SortBy
	act := k.table.Update(msg)
	switch act.Kind {
	case table.Sorted:
		// Round through all columns leads back to the order of their worth.
		if _, byKey := msg.(tea.KeyPressMsg); byKey && k.table.SortBy < before {
			k.table.SortBy, k.table.Descending = -1, false
		}
	case table.Moved:
		k.follow()
	}
	return act.Kind
}

// keys returns the keys of all rows, the answer's first.
func (k *ranking) keys() []rowKey {
	list := []rowKey{k.winner}
	for i := range k.rows {
		if key := k.rows[i].key(); key != k.winner {
			list = append(list, key)
		}
	}
	return list
}

// current returns the selected row, nil for none.
func (k *ranking) current() *row {
	if i := k.table.Selected(); i >= 0 && i < len(k.rows) {
		return &k.rows[i]
	}
	return nil
}

// todayTime returns the simulated step time of today's allocator or, without its row, of a step that pays for
// no allocator; 0 if there is neither.
func (k *ranking) todayTime() int64 {
	var list []*row
	for i := range k.rows {
		r := &k.rows[i]
		if r.result == nil || !r.result.Available {
			continue
		}
		if r.m.Info.Name == replay.Today {
			return r.result.Measurement.StepTime
		}
		list = append(list, r)
	}
	return baselineTime(list)
}
