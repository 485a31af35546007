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
	"github.com/gmemtop/gmemtop/tui/table"
)

// hand is the View as what does what keys ask for.
type hand struct{ *View }

func (v hand) onKey(s *leaf.State, msg tea.KeyPressMsg) (tea.Cmd, bool) {
	k := &v.keys
	switch {
	case key.Matches(msg, k.toggle):
		if r := v.ranking.current(); r != nil {
			v.ranking.follow()
			return v.toggle(s, r.manager), true
		}
	case key.Matches(msg, k.all):
		return v.toggleAll(s), true
	case key.Matches(msg, k.less):
		return v.moveBudget(s, sign(msg)), true
	case key.Matches(msg, k.further):
		return v.moveBudget(s, 5*sign(msg)), true
	case key.Matches(msg, k.budget):
		return v.budget.ask(s.Units, v.setup(s)), true
	case key.Matches(msg, k.batch) && v.search.with != nil:
		return v.askSizes(s), true
	case key.Matches(msg, k.inside):
		return v.openRow(s), true
	case key.Matches(msg, k.compare):
		return v.pickOther(s), true
	case key.Matches(msg, k.write):
		return v.write(s), true
	case key.Matches(msg, k.hardware):
		return v.subject.pick(), true
	case key.Matches(msg, k.target):
		return v.measuring.pick(), true
	case key.Matches(msg, k.train):
		return v.train(s), true
	case key.Matches(msg, k.replan) && v.measuring.target != "" && !v.planning.stopped:
		return v.measure(s), true
	case key.Matches(msg, k.replan), key.Matches(msg, k.again):
		return v.replan(s), true
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
		v.pareto = !v.pareto
		return nil, true
	default:
		return nil, false
	}
	return nil, true
}

func (v hand) moveBudget(s *leaf.State, by int) tea.Cmd {
	return v.setBudget(s, v.budget.next(v.setup(s), by), false)
}

// onMouse handles what is no business of the table: the slider, the switches, the charts.
func (v hand) onMouse(s *leaf.State, msg tea.MouseMsg) (tea.Cmd, bool) {
	if to, ok := v.budget.mouse(v.setup(s), msg); ok {
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
			return v.toggle(s, v.ranking.rows[i].manager), true
		}
	}
	if k, ok := (plotter(v)).spotAt(m.X, m.Y); ok {
		v.ranking.choose(k)
		return nil, true
	}
	return nil, false
}

func (v hand) toggle(s *leaf.State, i int) tea.Cmd {
	m := &v.managers[i]
	m.on = !m.on
	if !m.on && v.planning.progressOf(m.Info.Name).planning { // nobody waits for it: the others go on
		v.planning.stop()
	}
	if m.on {
		v.planning.stopped = false
	}
	return tea.Batch(v.refresh(s), v.plan(s))
}

// toggleAll switches all on, or, where all are, back to those that were on at first.
func (v hand) toggleAll(s *leaf.State) tea.Cmd {
	v.managers.toggleAll()
	v.planning.stop()
	v.planning.stopped = false
	return tea.Batch(v.refresh(s), v.plan(s))
}

func (v hand) chooseTarget(s *leaf.State, name string) tea.Cmd {
	v.keys.replan.SetHelp("r", "plan again")
	if name != "" {
		v.keys.replan.SetHelp("r", "run "+place(name))
	}
	return tea.Batch(v.measuring.choose(name), v.refresh(s))
}

// measure has the target carry out the plans that are on.
func (v hand) measure(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	if !ok || v.measuring.with == nil {
		return nil
	}
	live := v.measuring.live()
	if t := v.training.now(); t != nil && live {
		return leaf.Send(leaf.ToastMsg{Text: t.name + " is live: T trains without it, then r measures"})
	}
	if v.planning.run != nil || v.budget.moving {
		return leaf.Send(leaf.ToastMsg{
			Text: "planning is under way, and what is measured must not share the machine: esc stops planning",
		})
	}
	var rows []*row
	for i := range v.ranking.rows {
		if r := &v.ranking.rows[i]; r.planned() && v.managers[r.manager].on {
			rows = append(rows, r)
		}
	}
	start := v.measuring.begin(q, *v.planning.comparison(q, v.managers), rows)
	if live && start != nil && v.measuring.running() {
		return tea.Batch(start, hold(s))
	}
	return start
}

// train has the training go on with the plan under the cursor in place of any other, or without it where it
// is live.
func (v hand) train(s *leaf.State) tea.Cmd {
	r := v.ranking.current()
	if r == nil {
		return nil
	}
	if v.training.elsewhere() != "" {
		return v.training.takeAway()
	}
	m, watched := &v.managers[r.manager], v.training.watched() != ""
	if m.Info.Family == plan.Baseline && watched { // describing takes a while, and would come to nothing
		text := m.Info.Name + " plans nothing that a training could go on with: choose a manager that does"
		return leaf.Send(leaf.ToastMsg{Text: text, Error: true})
	}
	if t := v.training.now(); t != nil {
		v.training.end()
		if t.manager == r.manager {
			return nil
		}
	}
	if !watched {
		return leaf.Send(leaf.ToastMsg{Text: HowToWatch, Error: true})
	}
	if v.planning.run != nil || v.budget.moving { // what is measured must not share the machine with planning
		v.planning.halt()
		v.budget.moving = false
	}
	v.measuring.stop()
	v.search.stop()
	v.ranking.follow()
	hw := v.subject.with.Hardware()[v.subject.hardware]
	start := v.training.begin(r.manager, m.Info.Name, v.budget.bytes, hw)
	return tea.Batch(start, hold(s), v.refresh(s))
}

// hold has the root stay with the captured step that is shown, by a move that moves nothing.
func hold(s *leaf.State) tea.Cmd { return leaf.Send(leaf.WindowMsg{Window: s.Window}) }

// askSizes lets the user type what the recordings' sizes are, to look for the largest.
func (v hand) askSizes(s *leaf.State) tea.Cmd {
	switch q, ok := v.question(s); {
	case !ok:
		return nil
	case q.budget > 0 && v.planning.answersTo(q).err != nil:
		text := "nothing fits in this budget, at any batch size that was recorded"
		return leaf.Send(leaf.ToastMsg{Text: text, Error: true})
	default:
		return v.search.ask(s, q)
	}
}

// findLargest looks for the largest size with the managers that are on and serve the recording.
func (v hand) findLargest(s *leaf.State, msg goalMsg) tea.Cmd {
	q, ok := v.question(s)
	other := otherThan(s)
	if !ok || len(msg.sizes) == 2 && other == nil { // it was closed meanwhile
		return nil
	}
	planner, hw := v.subject.with, v.subject.with.Hardware()[v.subject.hardware]
	names := v.managers.serving(q.setup.p)
	return v.search.begin(q, msg, names, func(ctx context.Context) (*plan.Problem, error) {
		p, _, err := planner.Problem(ctx, other, hw)
		return p, err
	})
}

// replan forgets the answers to the question in force, or goes on where planning was stopped.
func (v hand) replan(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	if !ok {
		return nil
	}
	v.planning.again(q)
	return tea.Batch(v.refresh(s), v.plan(s))
}

func (v hand) onTable(s *leaf.State, msg tea.Msg) tea.Cmd {
	before := v.ranking.table.SortBy
	switch act := v.ranking.table.Update(msg); act.Kind {
	case table.Sorted:
		// Round through all columns leads back to the order of their worth.
		if _, byKey := msg.(tea.KeyPressMsg); byKey && v.ranking.table.SortBy < before {
			v.ranking.table.SortBy, v.ranking.table.Descending = -1, false
		}
		return v.refresh(s)
	case table.Moved:
		v.ranking.follow()
	case table.Opened:
		return v.openRow(s)
	}
	return nil
}

// openRow looks inside of the selected plan, or says why there is none.
func (v hand) openRow(s *leaf.State) tea.Cmd {
	r := v.ranking.current()
	if r == nil {
		return nil
	}
	m := &v.managers[r.manager]
	switch {
	case !r.served:
		return leaf.Send(leaf.ToastMsg{Text: m.Info.Name + ": " + r.why, Error: true})
	case r.result == nil && !m.on:
		return leaf.Send(leaf.ToastMsg{Text: m.Info.Name + " is off: space switches it on"})
	case v.impossible(s):
		return leaf.Send(leaf.ToastMsg{Text: "no plan fits into this budget", Error: true})
	case r.result == nil || r.stale:
		return leaf.Send(leaf.ToastMsg{Text: m.Info.Name + " has no plan for this budget yet"})
	case !r.result.Available:
		return leaf.Send(leaf.ToastMsg{Text: m.Info.Name + ": " + r.result.Reason, Error: true})
	}
	return v.open(s, v.ranking.chosen)
}

// impossible reports whether nothing can meet the budget in force.
func (v hand) impossible(s *leaf.State) bool {
	q, ok := v.question(s)
	return ok && v.planning.answersTo(q).err != nil
}

// open looks inside of one plan or two.
func (v hand) open(s *leaf.State, which ...rowKey) tea.Cmd {
	q, ok := v.question(s)
	if !ok {
		return nil
	}
	var plans []planview.Plan
	for _, k := range which {
		if r := v.resultOf(q, k); r != nil {
			plans = append(plans, planview.Plan{Name: v.managers.label(k), Result: r.Result})
		}
	}
	if len(plans) == 0 {
		return nil
	}
	v.inside = planview.New(q.setup.p, q.budget, plans)
	return v.inside.Ask(s)
}

// pickOther lets the user choose what the selected plan is laid beside: the fastest first.
func (v hand) pickOther(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	if !ok || v.resultOf(q, v.ranking.chosen) == nil {
		return v.openRow(s)
	}
	var choices []leaf.Choice
	add := func(k rowKey) {
		r := v.resultOf(q, k)
		if r == nil || k == v.ranking.chosen {
			return
		}
		detail := s.Units.Bytes(r.Measurement.Footprint)
		if q.setup.p.HasTimes {
			detail += ", step " + replay.Percent(r.Overhead)
		}
		choices = append(choices, leaf.Choice{
			Title: v.managers.label(k), Detail: detail, Msg: insideMsg{[]rowKey{v.ranking.chosen, k}},
		})
	}
	add(v.ranking.winner)
	for _, r := range v.ranking.rows {
		if k := (r.key()); k != v.ranking.winner {
			add(k)
		}
	}
	if len(choices) == 0 {
		return leaf.Send(leaf.ToastMsg{Text: "there is no second plan yet to lay beside it"})
	}
	return leaf.Send(leaf.PickMsg{Title: "Lay beside " + v.managers.label(v.ranking.chosen), Choices: choices})
}

// write saves the selected plan.
func (v hand) write(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	if !ok {
		return nil
	}
	r := v.resultOf(q, v.ranking.chosen)
	if r == nil {
		return v.openRow(s)
	}
	pl, p := r.Plan, q.setup.p
	return leaf.Send(leaf.SaveMsg{
		What: "the plan of " + r.Info.Name, Suffix: "." + r.Info.Name + ".plan.json",
		Write: func(_ context.Context, w io.Writer) error { return pl.WriteJSON(w, p) },
	})
}
