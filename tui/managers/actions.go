package managers

import (
	"context"
	"io"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/planview"
)

func (v *View) onKey(s *leaf.State, st *setup, msg tea.KeyPressMsg) (tea.Cmd, bool) {
	k := &v.keys
	switch {
	case key.Matches(msg, k.toggle):
		if r := v.ranking.current(); r != nil {
			v.ranking.follow()
			v.planning.toggle(&v.managers[r.manager])
			return tea.Batch(v.refresh(s), v.plan(s)), true
		}
	case key.Matches(msg, k.all):
		v.managers.toggleAll()
		v.planning.stop()
		v.planning.stopped = false
		return tea.Batch(v.refresh(s), v.plan(s)), true
	case key.Matches(msg, k.less):
		return v.setBudget(s, v.budget.next(st, sign(msg)), false), true
	case key.Matches(msg, k.further):
		return v.setBudget(s, v.budget.next(st, 5*sign(msg)), false), true
	case key.Matches(msg, k.budget):
		return v.budget.ask(s.Units, st), true
	case key.Matches(msg, k.batch) && v.search.with != nil:
		q := question{st, v.budget.bytes}
		return v.search.ask(s, q, v.planning.answersTo(q).err != nil), true
	case key.Matches(msg, k.inside):
		return v.look(s), true
	case key.Matches(msg, k.compare):
		q, r, why := v.selected(s)
		if r == nil {
			return why, true
		}
		return v.planning.pickBeside(s.Units, q, v.managers, v.ranking.rows, v.ranking.chosen,
			v.ranking.keys()), true
	case key.Matches(msg, k.write):
		q, r, why := v.selected(s)
		if r == nil {
			return why, true
		}
		return writePlan(q.setup.p, &r.Result), true
	case key.Matches(msg, k.hardware):
		return v.subject.pick(), true
	case key.Matches(msg, k.target):
		return v.measuring.pick(), true
	case key.Matches(msg, k.train):
		return v.train(s), true
	case key.Matches(msg, k.measure) && v.measuring.target != "":
		return v.measure(s), true
	case key.Matches(msg, k.again):
		v.planning.again(question{st, v.budget.bytes})
		return tea.Batch(v.refresh(s), v.plan(s)), true
	case key.Matches(msg, k.stop) && v.planning.run != nil:
		v.planning.halt()
		return v.refresh(s), true
	case key.Matches(msg, k.stop) && v.training.beginning() != nil:
		v.training.end()
		return nil, true
	case key.Matches(msg, k.stop) && v.measuring.running():
		v.measuring.stop()
		return nil, true
	case key.Matches(msg, k.stop) && v.search.running():
		v.search.stop()
		return nil, true
	case key.Matches(msg, k.charts):
		v.charts.pareto = !v.charts.pareto
		return nil, true
	default:
		return nil, false
	}
	return nil, true
}

// onMouse handles clicks outside the table's own: the slider, the switches, the charts.
func (v *View) onMouse(s *leaf.State, st *setup, msg tea.MouseMsg) (tea.Cmd, bool) {
	if to, ok := v.budget.mouse(st, msg); ok {
		return v.setBudget(s, to, false), true
	}
	m := msg.Mouse()
	if _, click := msg.(tea.MouseClickMsg); !click || m.Button != tea.MouseLeft {
		return nil, false
	}
	if x, w, ok := v.ranking.table.ColumnAt(colOn); ok && m.X >= x && m.X < x+w {
		if i := v.ranking.table.RowAt(m.Y); i >= 0 && i < len(v.ranking.rows) {
			v.ranking.table.Select(i)
			v.ranking.follow()
			v.planning.toggle(&v.managers[v.ranking.rows[i].manager])
			return tea.Batch(v.refresh(s), v.plan(s)), true
		}
	}
	if k, ok := v.charts.spotAt(m.X, m.Y); ok {
		v.ranking.choose(k)
		return nil, true
	}
	return nil, false
}

// measure carries out the plans that are on, on the target.
func (v *View) measure(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	if !ok || v.measuring.with == nil {
		return nil
	}
	live := v.measuring.live()
	if t := v.training.now(); t != nil && live {
		return leaf.Send(leaf.ToastMsg{Text: t.name + " is live: T trains without it, then x measures"})
	}
	if v.planning.run != nil || v.budget.moving {
		return leaf.Send(leaf.ToastMsg{
			Text: "measuring needs the machine to itself, and plans are still being made: esc stops that",
		})
	}
	var rows []*row
	for i := range v.ranking.rows {
		if r := &v.ranking.rows[i]; r.planned() && v.managers[r.manager].on {
			rows = append(rows, r)
		}
	}
	start := v.measuring.begin(q, *v.planning.answersTo(q).comparison(q, v.managers), rows)
	if live && start != nil && v.measuring.running() {
		return tea.Batch(start, hold(s))
	}
	return start
}

// train applies the selected plan to the training in place of any other, or takes it away if it is the one in
// use.
func (v *View) train(s *leaf.State) tea.Cmd {
	r := v.ranking.current()
	if r == nil {
		return nil
	}
	if v.training.elsewhere() != "" {
		return v.training.takeAway()
	}
	m, watched := &v.managers[r.manager], v.training.watched() != ""
	if m.Info.Family == plan.Baseline && watched { // describing takes a while, and would lead to nothing
		return leaf.Send(leaf.ToastMsg{Text: m.untrainable(), Error: true})
	}
	if t := v.training.now(); t != nil {
		v.training.end()
		if t.manager == r.manager {
			return nil
		}
	}
	if !watched {
		return leaf.Send(leaf.ToastMsg{Text: howToWatch, Error: true})
	}
	if v.planning.run != nil || v.budget.moving { // planning must not share the machine with a measurement
		v.planning.halt()
		v.planning.stop()
		v.budget.moving = false
	}
	v.measuring.stop()
	v.search.stop()
	v.ranking.follow()
	hw := v.subject.with.Hardware()[v.subject.hardware]
	q, _ := v.question(s)
	start := v.training.begin(r.manager, m.Info.Name, q, hw)
	return tea.Batch(start, hold(s), v.refresh(s))
}

// untrainable says why no training uses a manager.
func (m *manager) untrainable() string {
	return m.Info.Name + " makes no plan that a training can use: choose another manager"
}

// hold keeps the captured step on the screen: the root takes any move, even to the same window, as a wish to
// stay.
func hold(s *leaf.State) tea.Cmd { return leaf.Send(leaf.WindowMsg{Window: s.Window}) }

// selected returns the chosen plan, or the command that says why there is none.
func (v *View) selected(s *leaf.State) (q question, r *result, why tea.Cmd) {
	q, ok := v.question(s)
	if !ok {
		return q, nil, nil
	}
	if r = v.planning.resultOf(q, v.managers, v.ranking.chosen); r != nil {
		return q, r, nil
	}
	if row := v.ranking.current(); row != nil {
		why = row.noPlan(v.planning.answersTo(q).err != nil)
	}
	return q, nil, why
}

// look opens the chosen plan in detail, with other plans beside it.
func (v *View) look(s *leaf.State, beside ...rowKey) tea.Cmd {
	q, r, why := v.selected(s)
	if r == nil {
		return why
	}
	plans := []planview.Plan{{Name: labelOf(v.ranking.rows, v.ranking.chosen), Result: r.Result}}
	for _, k := range beside {
		if r := v.planning.resultOf(q, v.managers, k); r != nil {
			plans = append(plans, planview.Plan{Name: labelOf(v.ranking.rows, k), Result: r.Result})
		}
	}
	v.inside = planview.New(q.setup.p, q.budget, plans)
	return v.inside.Ask(s)
}

// writePlan asks where to save the plan of a result.
func writePlan(p *plan.Problem, r *replay.Result) tea.Cmd {
	pl := r.Plan
	return leaf.Send(leaf.SaveMsg{
		What: "the plan of " + r.Info.Name, Suffix: "." + r.Info.Name + ".plan.json",
		Write: func(_ context.Context, w io.Writer) error { return pl.WriteJSON(w, p) },
	})
}
