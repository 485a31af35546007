// Package managers is the view that compares memory managers: what each would do with one iteration of the
// recording under a budget that can be dragged, which of those that fit is the fastest, and, one level down,
// what a plan does with every buffer.
//
// It plans nothing itself: a [Planner] does, off the event loop. What is on the screen always answers the
// question on the screen, or says that it is an older answer.
package managers

import (
	"time"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/planview"
	"github.com/gmemtop/gmemtop/tui/table"
)

// View compares managers. It implements leaf.View.
type View struct {
	pacer

	managers  roster
	subject   subject
	budget    budget
	planning  planning
	search    search
	measuring measuring
	training  training

	ranking ranking
	head    head

	charts charts

	inside *planview.View
	keys   keys
}

// New returns the view. With a nil planner it says that there is none.
func New(p Planner) *View {
	v := &View{pacer: pacer{After: tea.Tick}, subject: subject{with: p}, ranking: newRanking(),
		keys: newKeys()}
	v.ranking.measured = v.training.of
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
		return false, "This step ran under a plan, and planning needs one that did not. Remove the plan, " +
			"then press r in Live to capture a step."
	case deviceOf(s).Len() < 2:
		return false, "This recording shows a single moment: what was held, but not for how long, and a " +
			"plan needs lifetimes. " +
			leaf.HowToRecord(s)
	}
	return true, ""
}

// Update implements leaf.View.
func (v *View) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	cmd, done := tea.Cmd(nil), v.ticked(msg)
	if !done {
		cmd, done = v.takeNews(s, msg)
	}
	if !done {
		cmd, done = v.takeChoice(s, msg)
	}
	if !done {
		cmd = v.takeInput(s, msg)
	}
	return tea.Batch(cmd, v.tick(v.planning.active() || v.search.running() || v.training.timed()))
}

// takeNews handles news from background work; ok is false for any other message.
func (v *View) takeNews(s *leaf.State, msg tea.Msg) (cmd tea.Cmd, ok bool) {
	switch {
	case v.subject.setups.Take(msg):
		if q, ok := v.question(s); ok { // a budget that makes sense for it, and no answers of another one
			v.planning.keep(q.setup)
			v.search.keep(q.setup)
			v.measuring.keep(q.setup)
			if v.budget.settle(q.setup, runs(s)) {
				v.ranking.picked = false
			}
			clear(v.ranking.shown)
		}
		return tea.Batch(v.refresh(s), v.plan(s)), true
	case v.planning.sentence.Take(msg):
		return nil, true
	}
	if v.inside != nil {
		if cmd, ok := v.inside.Take(msg); ok {
			return cmd, true
		}
	}
	if cmd, ok := v.planning.take(msg); ok {
		return tea.Batch(v.pace(msg, cmd), v.refresh(s), v.plan(s)), true
	}
	if cmd, ok := v.training.take(msg); ok {
		return tea.Batch(v.refresh(s), v.pace(msg, cmd)), true
	}
	if cmd, ok := v.search.take(msg); ok {
		return v.pace(msg, cmd), true
	}
	if cmd, ok := v.measuring.take(msg); ok {
		return tea.Batch(v.askSentence(s), v.pace(msg, cmd)), true
	}
	return nil, false
}

// takeChoice handles choices and input from the view's dialogs, and messages that the budget has settled or
// that what the views show has changed; ok is false for any other message.
func (v *View) takeChoice(s *leaf.State, msg tea.Msg) (cmd tea.Cmd, ok bool) {
	switch msg := msg.(type) {
	case batchMsg:
		if pick := pickGoal(msg.sizes, s.Units.Bytes(v.budget.bytes)); pick != nil {
			return pick, true
		}
		return v.takeChoice(s, goalMsg{sizes: msg.sizes})
	case goalMsg:
		q, ok := v.question(s)
		if !ok { // it was closed meanwhile
			return nil, true
		}
		return v.search.find(s, q, msg, v.managers.serving(q.setup.p), &v.subject), true
	case otherMsg:
		return askOther(msg), true
	case roomMsg:
		cmd := v.setBudget(s, msg.bytes, true)
		if q, ok := v.question(s); ok {
			cmd = tea.Batch(cmd, v.search.ask(s, q, v.planning.answersTo(q).err != nil))
		}
		return cmd, true
	case targetMsg:
		return tea.Batch(v.measuring.choose(msg.name), v.refresh(s)), true
	case budgetMsg:
		return v.setBudget(s, msg.bytes, true), true
	case settledMsg:
		if !v.budget.rested(msg) {
			return nil, true
		}
		return tea.Batch(v.refresh(s), v.plan(s)), true
	case hardwareMsg:
		v.subject.hardware = msg.index
		v.planning.stop()
		v.search.stop()
		v.measuring.stop()
		return v.ask(s), true
	case besideMsg:
		return v.look(s, msg.key), true
	case leaf.ChangedMsg:
		if deviceOf(s) == nil || v.subject.with == nil {
			return nil, true
		}
		return v.ask(s), true
	}
	return nil, false
}

// takeInput takes keys and the mouse: inside of a plan they are that view's, until it is left.
func (v *View) takeInput(s *leaf.State, msg tea.Msg) tea.Cmd {
	if v.inside != nil {
		train, pressed := msg.(tea.KeyPressMsg)
		if pressed && key.Matches(train, v.keys.train) { // how the training takes it shows in the table
			v.inside = nil
			return tea.Batch(v.refresh(s), v.train(s))
		}
		if cmd, leave := v.inside.Update(s, msg); !leave {
			return cmd
		}
		v.inside = nil
		return v.refresh(s)
	}
	q, ok := v.question(s)
	if !ok {
		return nil
	}
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		if cmd, done := v.onKey(s, q.setup, msg); done {
			return cmd
		}
	case tea.MouseMsg:
		if cmd, done := v.onMouse(s, q.setup, msg); done {
			return cmd
		}
	}
	switch v.ranking.update(msg) {
	case table.Sorted:
		return v.refresh(s)
	case table.Opened:
		return v.look(s)
	}
	return nil
}

// ask requests the setup for the current device, and continues once it is known.
func (v *View) ask(s *leaf.State) tea.Cmd {
	d := deviceOf(s)
	if v.budget.of != nil && v.budget.of != d { // the current work is about the old device
		v.planning.stop()
		v.search.stop()
		v.measuring.stop()
		v.inside = nil
	}
	cmd := v.subject.ask(d)
	if v.subject.setup(d) == nil {
		return cmd
	}
	if v.inside != nil {
		return tea.Batch(cmd, v.inside.Ask(s))
	}
	return tea.Batch(cmd, v.refresh(s), v.plan(s))
}

// question is the one in force, and whether there is one.
func (v *View) question(s *leaf.State) (question, bool) {
	st := v.subject.setup(deviceOf(s))
	return question{st, v.budget.bytes}, st != nil
}

// setBudget changes the question. Kept answers appear at once. Otherwise planning begins when the budget has
// settled, or at once if now is set.
func (v *View) setBudget(s *leaf.State, bytes int64, now bool) tea.Cmd {
	st := v.subject.setup(deviceOf(s))
	if st == nil || bytes == v.budget.bytes {
		return nil
	}
	v.planning.stop()
	v.planning.stopped = false
	v.search.stop()
	if now || len(v.planning.missing(question{st, bytes}, v.managers.serving(st.p))) == 0 {
		v.budget.set(st, bytes, false)
		return tea.Batch(v.refresh(s), v.plan(s))
	}
	rested := v.budget.set(st, bytes, true)
	wait := v.After(restsFor, func(time.Time) tea.Msg { return rested })
	return tea.Batch(v.refresh(s), wait)
}

// restsFor is how long the budget must not change before planning begins: nothing is planned while it is
// dragged.
const restsFor = 150 * time.Millisecond

// refresh rebuilds the rows from what is known, and requests the sentence.
func (v *View) refresh(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	if !ok {
		return nil
	}
	v.ranking.refresh(q, v.planning.answersTo(q), v.managers, func(r *row, col int) (float64, bool) {
		if col == colBatch {
			n, ok := v.search.of(q, r)
			return float64(n), ok
		}
		x, ok := v.measuring.of(q, r)
		if col == colMeasured {
			return float64(x.Measurement.Footprint), ok && x.Available
		}
		return x.Overhead, ok && x.Available
	})
	return v.askSentence(s)
}

// askSentence requests the sentence about what is known.
func (v *View) askSentence(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	if !ok {
		return nil
	}
	measured, replanned := v.measuring.results(q)
	if r, predicted, ok := v.training.result(q); ok {
		measured, replanned = append(measured, r), append(replanned, predicted)
	}
	return v.planning.ask(q, v.managers, measured, replanned, v.training.carried(), s.Units)
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
	r := v.ranking.current()
	if r == nil {
		return ""
	}
	m := r.m
	text := m.Info.Name
	if m.Info.After != "" {
		text += ", after " + m.Info.After
	} else if m.Info.Ours {
		text += ", ours"
	}
	if r.why != "" {
		return text + " · not available: " + r.why
	}
	if trained := v.training.status(s.Units, r); trained != "" {
		return text + " · " + trained
	}
	q, _ := v.question(s)
	if measured := v.measuring.status(s.Units, q, r); measured != "" {
		return text + " · " + measured
	}
	if r.early() {
		text += " · stopped early: its best plan so far; R resumes planning"
	}
	if told := v.training.tempo(s, q, v.ranking.todayTime()).told(r); told != "" {
		text += " · " + told
	}
	if _, gap, ok := boundOf(q, r); ok {
		text += " · " + replay.Near(gap)
	}
	if !r.stands {
		return text + " · in theory: as if any buffer could be moved at any moment; PyTorch today runs the " +
			"plan of the row of the same name without \"in theory\""
	}
	text += " · " + m.Info.Summary
	if m.Info.Reading != "" {
		text += " · our reading: " + m.Info.Reading
	}
	return text
}

// Copy implements leaf.Copier: it copies the sentence, and how a training does with a plan.
func (v *View) Copy(s *leaf.State) (text, what string) {
	if v.inside != nil {
		return "", ""
	}
	text = v.headline(s)
	q, _ := v.question(s)
	if trained := v.training.text(s.Units, q); trained != "" {
		text += "\n" + trained
	}
	return text, "the answer"
}
