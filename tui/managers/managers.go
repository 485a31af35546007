// Package managers is the view that compares memory managers: what each would make of one iteration of the
// recording under a budget that one can drag, which is the fastest that fits, and, one step further in, what
// a plan does with every buffer.
//
// It plans nothing itself: a [Planner] does, off the event loop. What is on the screen is always an answer to
// the question on the screen, or says that it is an older one.
package managers

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/planview"
	"github.com/gmemtop/gmemtop/tui/table"
)

// accesses is the poorest kind of recording that serves managers which move buffers.
const accesses = traces.Accesses

// View compares managers. It implements leaf.View.
type View struct {
	// After is tea.Tick, where tests do not hold the clock.
	After func(time.Duration, func(time.Time) tea.Msg) tea.Cmd

	managers  roster
	subject   subject
	budget    budget
	shown     map[string][]result // the latest results of each manager, whatever the budget
	planning  planning
	search    search
	measuring measuring
	training  training

	table  *table.Table
	tableH int // of the last Draw
	head   head
	rows   []row
	chosen rowKey
	picked bool // the user chose it: until then the fastest is chosen
	winner rowKey

	pareto   bool // where there is room for one chart, it is the trade-off
	oneChart bool // there was room for one at the last Draw
	spots    []spot
	usageAt  usageArea

	inside *planview.View
	keys   keys
}

// row is one line of the table: a manager with one of its results, or none yet.
type row struct {
	manager int
	name    string
	result  *result // nil where there is none
	stale   bool    // an answer to another budget
	served  bool    // the recording serves the manager
	of      plan.Executor
	stands  bool // for what a training does with its manager: it runs what eager PyTorch can
}

// planned reports whether there is a plan for the budget in force.
func (r *row) planned() bool { return r.result != nil && !r.stale && r.result.Available }

// rowKey tells rows apart whatever their order.
type rowKey struct {
	manager  int
	executor plan.Executor
}

func (r *row) key() rowKey { return rowKey{r.manager, r.of} }

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

// New returns the view; with a nil planner it says that it has none.
func New(p Planner) *View {
	v := &View{
		After: tea.Tick, subject: subject{with: p}, shown: map[string][]result{},
		chosen: rowKey{manager: -1}, winner: rowKey{manager: -1},
		table: table.New(
			table.Column{Title: "on", Width: 2},
			table.Column{Title: "manager", Width: 16, Max: 22, Sortable: true},
			table.Column{Title: "after", Width: 10, Max: 18, Drop: 9},
			table.Column{Title: "executor", Width: 11, Drop: 10},
			table.Column{Title: "fits", Width: 4},
			table.Column{Title: "footprint", Width: 9, Max: 10, Right: true, Sortable: true},
			table.Column{Title: "", Width: 8, Max: 30, Drop: 3},
			table.Column{Title: "over bound", Width: 10, Right: true, Drop: 8, Sortable: true},
			table.Column{Title: "step", Width: 7, Max: 10, Right: true, Sortable: true},
			table.Column{Title: "overhead", Width: 8, Max: 10, Right: true, Sortable: true},
			table.Column{Title: "", Width: 9, Max: 10, Right: true, Sortable: true},
			table.Column{Title: "overhead", Width: 8, Max: 10, Right: true, Sortable: true},
			table.Column{Title: "stall", Width: 7, Right: true, Drop: 2, Sortable: true},
			table.Column{Title: "out", Width: 8, Right: true, Drop: 4, Sortable: true},
			table.Column{Title: "in", Width: 8, Right: true, Drop: 5, Sortable: true},
			table.Column{Title: "re-run", Width: 7, Right: true, Drop: 6, Sortable: true},
			table.Column{Title: "batch", Width: 6, Max: 8, Right: true, Sortable: true},
			table.Column{Title: "planned", Width: 8, Right: true, Drop: 7, Sortable: true},
		),
		keys: newKeys(),
	}
	if p != nil {
		v.managers, v.training = newRoster(p.Managers()), newTraining(p)
		v.planning, v.search, v.measuring = newPlanning(p), newSearch(p), newMeasuring(p)
	}
	return v
}

// ID implements leaf.View.
func (v *View) ID() leaf.ID {
	return leaf.Managers
}

// Name implements leaf.View.
func (v *View) Name() string {
	return "Managers"
}

// Timeless implements leaf.Timeless: plans have a clock of their own.
func (v *View) Timeless() bool {
	return true
}

// Available implements leaf.View.
func (v *View) Available(s *leaf.State) (bool, string) {
	switch {
	case v.subject.with == nil || len(v.managers) == 0:
		return false, "This session cannot plan: it was opened without memory managers."
	case s.Device == nil:
		return false, leaf.NoDevice
	case deviceOf(s) == nil:
		return false, "The step in view ran under a plan, and what a plan did already is nothing to plan for. Take the plan away: then r in Live captures one."
	case deviceOf(s).Len() == 0:
		return false, "This recording is of one moment: it says what was held and not for how long, and a plan needs lifetimes. " +
			leaf.HowToRecord
	}
	return true, ""
}

// Update implements leaf.View.
func (v *View) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	switch {
	case v.subject.setups.Take(msg):
		v.settle(s)
		return tea.Batch(ranking{v}.refresh(s), v.plan(s))
	case v.planning.sentence.Take(msg):
		return nil
	}
	if v.inside != nil {
		if cmd, taken := v.inside.Take(msg); taken {
			return cmd
		}
	}
	if cmd, ok := v.planning.take(msg); ok {
		return tea.Batch(cmd, ranking{v}.refresh(s), v.plan(s))
	}
	if cmd, ok := v.training.take(msg); ok {
		return cmd
	}
	if cmd, ok := v.search.take(msg); ok {
		return cmd
	}
	if cmd, ok := v.measuring.take(msg); ok {
		return cmd
	}
	switch msg := msg.(type) {
	case targetMsg:
		return hand{v}.chooseTarget(s, msg.name)
	case roomMsg:
		return tea.Batch(v.setBudget(s, msg.bytes, true), hand{v}.askSizes(s))
	case batchMsg:
		if pick := pickGoal(msg.sizes, s.Units.Bytes(v.budget.bytes)); pick != nil {
			return pick
		}
		return hand{v}.findLargest(s, goalMsg{sizes: msg.sizes})
	case goalMsg:
		return hand{v}.findLargest(s, msg)
	case otherMsg:
		return askOther(msg)
	case settledMsg:
		if !v.budget.rested(msg) {
			return nil
		}
		return tea.Batch(ranking{v}.refresh(s), v.plan(s))
	case budgetMsg:
		return v.setBudget(s, msg.bytes, true)
	case hardwareMsg:
		v.subject.hardware = msg.index
		v.planning.stop()
		v.search.stop()
		v.measuring.stop()
		return v.ask(s)
	case insideMsg:
		return hand{v}.open(s, msg.keys...)
	case leaf.ChangedMsg:
		if deviceOf(s) == nil || v.subject.with == nil {
			return nil
		}
		return v.ask(s)
	}
	if v.inside != nil {
		if cmd, leave := v.inside.Update(s, msg); !leave {
			return cmd
		}
		v.inside = nil
		return ranking{v}.refresh(s)
	}
	if v.setup(s) == nil {
		return nil
	}
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		if cmd, done := (hand{v}).onKey(s, msg); done {
			return cmd
		}
	case tea.MouseMsg:
		if cmd, done := (hand{v}).onMouse(s, msg); done {
			return cmd
		}
	}
	return hand{v}.onTable(s, msg)
}

// ask asks for what is to be planned, and goes on where that is known.
func (v *View) ask(s *leaf.State) tea.Cmd {
	d := deviceOf(s)
	if v.budget.of != nil && v.budget.of != d { // what was under way is about the old device
		v.planning.stop()
		v.search.stop()
		v.measuring.stop()
		v.inside = nil
	}
	cmd := v.subject.ask(d)
	if v.setup(s) == nil {
		return cmd
	}
	if v.inside != nil {
		return tea.Batch(cmd, v.inside.Ask(s))
	}
	return tea.Batch(cmd, ranking{v}.refresh(s), v.plan(s))
}

// setup returns what is planned for, nil until it is known.
func (v *View) setup(s *leaf.State) *setup { return v.subject.setup(deviceOf(s)) }

// question is the one in force, and whether there is one.
func (v *View) question(s *leaf.State) (question, bool) {
	st := v.setup(s)
	if st == nil {
		return question{}, false
	}
	return question{st, v.budget.bytes}, true
}

// settle takes a new setup: a budget that makes sense for it, and no answers of another one.
func (v *View) settle(s *leaf.State) {
	st := v.setup(s)
	if st == nil {
		return
	}
	v.planning.keep(st)
	v.search.keep(st)
	v.measuring.keep(st)
	if v.budget.settle(st) {
		v.picked = false
	}
	clear(v.shown)
}

// setBudget asks another question. Kept answers are there at once; else planning begins when the budget has
// rested, at once where it was said for good.
func (v *View) setBudget(s *leaf.State, bytes int64, now bool) tea.Cmd {
	st := v.setup(s)
	if st == nil || bytes == v.budget.bytes {
		return nil
	}
	v.planning.stop()
	v.planning.stopped = false
	v.search.stop()
	if now || len(v.planning.missing(question{st, bytes}, v.managers.serving(st.p))) == 0 {
		v.budget.set(st, bytes, false)
		return tea.Batch(ranking{v}.refresh(s), v.plan(s))
	}
	rested := v.budget.set(st, bytes, true)
	wait := v.After(restsFor, func(time.Time) tea.Msg { return rested })
	return tea.Batch(ranking{v}.refresh(s), wait)
}

// restsFor is how long the budget rests before planning for it begins: while one drags it nobody plans.
const restsFor = 150 * time.Millisecond

// noTime is the overhead up to which a plan counts as costing no time.
const noTime = 0.0005

// over is how far a footprint lies above the bound that was proven for it.
func over(r *result) float64 {
	if r.Plan == nil || r.Plan.LowerBound <= 0 {
		return 0
	}
	return float64(r.Measurement.Footprint)/float64(r.Plan.LowerBound) - 1
}

func (v *View) choose(k rowKey) {
	v.chosen, v.picked = k, true
}

// current returns the selected row, nil for none.
func (v *View) current() *row {
	if i := v.table.Selected(); i >= 0 && i < len(v.rows) {
		return &v.rows[i]
	}
	return nil
}

type (
	// budgetMsg is what was typed as a budget.
	budgetMsg struct{ bytes int64 }
	// hardwareMsg is what was chosen to plan for.
	hardwareMsg struct{ index int }
	// insideMsg looks inside of plans.
	insideMsg struct{ keys []rowKey }
)

// resultOf returns what a row shows, nil where it has no plan.
func (v *View) resultOf(q question, k rowKey) *result {
	if k.manager < 0 {
		return nil
	}
	return v.planning.resultOf(q, v.managers[k.manager].Info.Name, k.executor)
}

// plan plans for the question in force, unless the budget is still moving.
func (v *View) plan(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	if !ok || v.budget.moving {
		return nil
	}
	cmd := v.planning.start(q, v.managers.serving(q.setup.p))
	if cmd != nil {
		v.measuring.stop() // a device is not measured while processors plan
	}
	return cmd
}

// Status implements leaf.View.
func (v *View) Status(s *leaf.State) string {
	if v.inside != nil {
		return v.inside.Status(s)
	}
	r := v.current()
	if r == nil {
		return ""
	}
	m := &v.managers[r.manager]
	text := m.Info.Name
	if m.Info.After != "" {
		text += ", after " + m.Info.After
	} else if m.Info.Ours {
		text += ", ours"
	}
	if why := v.whyNot(s, r); why != "" {
		return text + " · not available: " + why
	}
	if trained := v.training.status(s.Units, r); trained != "" {
		return text + " · " + trained
	}
	q, _ := v.question(s)
	if measured := v.measuring.status(s.Units, q, r); measured != "" {
		return text + " · " + measured
	}
	text += " · " + m.Info.Summary
	if m.Info.Reading != "" {
		text += " · our reading: " + m.Info.Reading
	}
	return text
}

// Copy implements leaf.Copier: the sentence, and what a training makes of a plan.
func (v *View) Copy(s *leaf.State) (text, what string) {
	if v.inside != nil {
		return "", ""
	}
	text = v.headline(s)
	if trained := v.training.text(s.Units, v.budget.bytes); trained != "" {
		text += "\n" + trained
	}
	return text, "the answer"
}
