package managers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Planning in the background.
//
// Problem: planning with a dozen managers takes from an instant to minutes. Meanwhile the user drags the
// budget and switches managers on and off, the screen should draw sixty frames a second, and an answer must
// never appear beside a question that it does not answer.
//
// Approach: answers are kept by what they answer (problem, budget, manager), and the view draws those kept
// for the current question. There is at most one run at a time, for the managers of the current question that
// have no answer yet. A run writes its news under a lock, and a command that waits for news brings it to the
// event loop, at most ten times a second. If the budget changes, the run is cancelled and its later news is
// dropped: its pointer is its generation. While the budget is being dragged nothing is started. A run begins
// once the budget has settled; no run is needed if all answers are kept. Memory is bounded: the answers for
// the budgets looked at longest ago are dropped.
//
// Rejected: one message per progress report (thousands a second from some planners, each a frame); one
// question for all managers (switching one on would plan with all again).

// kept is the number of questions whose answers are kept: a plan and its measurement take up to a few
// megabytes per manager.
const kept = 24

// run is one comparison under way.
type run struct {
	job[planNews]
	of       question
	names    []string
	halted   bool // the user stopped it: the best plans so far are to come
	progress map[string]replay.Progress
}

// planNews is news of one manager; net and baseline are the whole comparison's, and come last, of no manager.
type planNews struct {
	replay.Progress
	digested      []result // the results, once the run is done
	net, baseline int64
}

// begin starts a run and returns the command that delivers its first news.
func begin(pl Planner, of question, names []string) (*run, tea.Cmd) {
	r := &run{of: of, names: names, progress: map[string]replay.Progress{}}
	return r, r.start(func(ctx context.Context) error {
		c, err := pl.Compare(ctx, of.setup.p, names, of.budget, func(u replay.Progress) {
			if ctx.Err() != nil && !replay.Stopped(ctx) { // nobody waits for this any more
				return
			}
			n := planNews{Progress: u}
			if u.Done {
				n.digested = digest(of.setup.p, u.Results)
			}
			r.tell(n)
		})
		if c != nil {
			r.tell(planNews{net: c.Net, baseline: c.Baseline})
		}
		return err
	})
}

// planning plans in the background and keeps what came of it. It knows no other part of the view.
type planning struct {
	with     Planner
	answers  map[question]*answers
	trails   map[trailKey][]point
	run      *run // nil for none
	stopped  bool // by the user
	looks    int
	version  int // grows with every answer
	sentence leaf.Query[sentenceKey, string]
}

type sentenceKey struct {
	of      question
	version int
	among   string // the compared managers, and the measurements of their plans
	units   timeline.Units
}

func newPlanning(p Planner) planning {
	return planning{with: p, answers: map[question]*answers{}, trails: map[trailKey][]point{}}
}

// take handles the news of the current run; ok is false for any other message.
func (p *planning) take(msg tea.Msg) (cmd tea.Cmd, ok bool) {
	news, ok := msg.(jobMsg[planNews])
	if !ok {
		return nil, false
	}
	r := p.run
	if r == nil || news.job != &r.job {
		return nil, true
	}
	a := p.answersTo(r.of)
	fresh, err := r.take()
	for _, n := range fresh {
		switch {
		case n.Manager == "":
			if n.baseline > 0 {
				a.net, a.baseline = n.net, n.baseline
			}
			continue
		case n.Done && !a.take(n.Manager, n.digested, r.halted):
			continue
		case n.Done:
			p.remember(r.of, n.digested)
		}
		r.progress[n.Manager] = n.Progress
	}
	p.version++
	if !news.done {
		return r.news, true
	}
	p.run = nil
	if err != nil && !errors.Is(err, context.Canceled) {
		a.err = err
	}
	return nil, true
}

// answersTo returns the answers to a question, and drops the oldest question if there are too many.
func (p *planning) answersTo(q question) *answers {
	p.looks++
	a := p.answers[q]
	if a == nil {
		a = &answers{by: map[string][]result{}, early: map[string]bool{}}
		p.answers[q] = a
		for len(p.answers) > kept {
			var oldest question
			least := p.looks + 1
			for k, x := range p.answers {
				if x.used < least && x != a {
					oldest, least = k, x.used
				}
			}
			delete(p.answers, oldest)
		}
	}
	a.used = p.looks
	return a
}

// remember keeps a manager's position under a budget, for its curve in the trade-off.
func (p *planning) remember(q question, list []result) {
	for i := range list {
		r := &list[i]
		if !r.Available {
			continue
		}
		key := trailKey{q.setup, r.Info.Name, r.Executor}
		at := point{r.Measurement.Footprint, r.Measurement.StepTime}
		if known := p.trails[key]; len(known) < 256 && !slices.Contains(known, at) {
			p.trails[key] = append(known, at)
		}
	}
}

// trail returns a manager's positions under other budgets than a question's.
func (p *planning) trail(q question, all roster, k rowKey) []point {
	if k.manager < 0 {
		return nil
	}
	return p.trails[trailKey{q.setup, all[k.manager].Info.Name, k.executor}]
}

type trailKey struct {
	setup    *setup
	manager  string
	executor plan.Executor
}

// missing returns those of the named managers that have no answer to a question yet, or only their best so
// far.
func (p *planning) missing(q question, names []string) []string {
	a := p.answersTo(q)
	if a.err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(names), a.complete)
}

// start plans with those of the named managers that have no answer yet, unless that is already running or was
// stopped.
func (p *planning) start(q question, names []string) (cmd tea.Cmd) {
	if p.stopped || p.active() && p.run.of == q {
		return nil
	}
	p.stop()
	if names = p.missing(q, names); len(names) > 0 {
		p.run, cmd = begin(p.with, q, names)
	}
	return cmd
}

// active reports whether planning is under way, and was not stopped.
func (p *planning) active() bool { return p.run != nil && !p.run.halted }

// stop cancels the current run: its later news is dropped.
func (p *planning) stop() {
	if p.run != nil {
		p.run.job.stop()
		p.run = nil
	}
}

// toggle switches a manager on or off for the next planning.
func (p *planning) toggle(m *manager) {
	m.on = !m.on
	switch {
	case m.on:
		p.stopped = false
	case p.progressOf(m.Info.Name).planning: // nothing waits for it: the others continue
		p.stop()
	}
}

// halt stops planning until the user resumes it. The managers that are planning give their best plans so far,
// which takes a moment: halting again does not wait for them.
func (p *planning) halt() {
	p.stopped = true
	if !p.active() {
		p.stop()
		return
	}
	p.run.halted = true
	p.run.job.halt(replay.ErrStopped)
}

// again drops the answers to a question, or resumes planning if it was stopped.
func (p *planning) again(q question) {
	if !p.stopped {
		p.stop()
		delete(p.answers, q)
	}
	p.stopped = false
}

// keep drops everything that is not about a setup.
func (p *planning) keep(st *setup) {
	p.stop()
	p.stopped = false
	maps.DeleteFunc(p.answers, func(q question, _ *answers) bool { return q.setup != st })
	maps.DeleteFunc(p.trails, func(k trailKey, _ []point) bool { return k.setup != st })
}

// ask requests the sentence about the answers to a question, and about their measurements.
func (p *planning) ask(
	q question, on roster, measured, replanned []replay.Result, trained bool, units timeline.Units,
) tea.Cmd {
	c := p.answersTo(q).comparison(q, on)
	if len(c.Results) == 0 {
		return nil
	}
	c.Measured, c.Replanned, c.Trained = measured, replanned, trained
	among := ""
	if trained {
		among = "trained "
	}
	for i := range c.Results {
		among += c.Results[i].Info.Name + " "
	}
	for i := range measured {
		r := &measured[i]
		among += fmt.Sprint(r.Target, r.Info.Name, r.Executor, r.Available, r.Measurement.Footprint,
			r.Measurement.StepTime, " ")
	}
	key := sentenceKey{q, p.version, among, units}
	return p.sentence.Ask(key, func(context.Context) (string, error) { return c.Sentence(units), nil })
}

// budgets are those for which answers are kept.
func (p *planning) budgets(st *setup) []int64 {
	var list []int64
	for q, a := range p.answers {
		if q.setup == st && len(a.by) > 0 {
			list = append(list, q.budget)
		}
	}
	return list
}

// resultOf returns a manager's result under an executor, nil if it has no plan.
func (p *planning) resultOf(q question, all roster, k rowKey) *result {
	if k.manager < 0 {
		return nil
	}
	list := p.answersTo(q).by[all[k.manager].Info.Name]
	for i := range list {
		if r := &list[i]; r.Available && r.Executor == k.executor {
			return r
		}
	}
	return nil
}

// pickBeside lets the user choose, among rows with a plan, one to compare with the chosen one.
func (p *planning) pickBeside(
	u timeline.Units, q question, all roster, rows []row, chosen rowKey, among []rowKey,
) tea.Cmd {
	var choices []leaf.Choice
	for _, k := range among {
		r := p.resultOf(q, all, k)
		if r == nil || k == chosen {
			continue
		}
		detail := u.Bytes(r.Measurement.Footprint)
		if q.setup.p.HasTimes {
			detail += ", step " + replay.Percent(r.Overhead)
		}
		choices = append(choices, leaf.Choice{Title: labelOf(rows, k), Detail: detail, Msg: besideMsg{k}})
	}
	if len(choices) == 0 {
		return leaf.Send(leaf.ToastMsg{Text: "there is no second plan yet to compare it with"})
	}
	return leaf.Send(leaf.PickMsg{Title: "Compare with " + labelOf(rows, chosen), Choices: choices})
}

// answer is the sentence about the plans of the named managers, or how far they are.
func (p *planning) answer(u timeline.Units, q question, names []string, moving bool) string {
	a, on, done := p.answersTo(q), len(names), 0
	for _, name := range names {
		if a.complete(name) {
			done++
		}
	}
	text := ""
	if k, known, ok := p.sentence.Value(); ok && k.of == q && k.units == u {
		text = known
	}
	goal := "without a budget"
	if q.budget > 0 {
		goal = "for " + u.Bytes(q.budget)
	}
	switch {
	case on == 0:
		return "No manager is on: space switches the one under the cursor on, A all of them."
	case done == on && text != "":
		return text
	case done == on:
		return "Comparing " + timeline.Counted(on, "manager") + " …"
	}
	so := fmt.Sprintf("%d of %d managers planned %s", done, on, goal)
	if under := p.underWay(names); under != "" {
		so += "; " + under
	}
	switch {
	case p.stopped:
		so = "Stopped with " + so + "; R resumes"
	case moving:
		so = fmt.Sprintf("Budget %s: planning starts when you stop changing it", u.Bytes(q.budget))
	}
	if done == 0 || text == "" {
		return so + "."
	}
	if q.budget > 0 && !p.stopped && !a.anyFits(names) {
		return so + ". So far nothing fits."
	}
	return so + ". So far: " + goesOn(text)
}

// goesOn returns a sentence as it goes on after a colon.
func goesOn(sentence string) string {
	switch first, _, _ := strings.Cut(sentence, " "); first {
	case "At", "Every", "No", "Nothing", "To": // others begin with a name
		return strings.ToLower(sentence[:1]) + sentence[1:]
	}
	return sentence
}

// problemText says why no manager can plan, and from which budget on one can.
func problemText(u timeline.Units, q question, err error) string {
	var small *plan.TooSmall
	if errors.As(err, &small) {
		of := "the budget is " + u.Bytes(small.Budget)
		if small.Budget != q.budget {
			of += " beside what lies outside"
		}
		text := fmt.Sprintf("Not possible: %s need %s, and %s.", small.Held, u.Bytes(small.Need), of)
		if q.setup.floor > small.Need {
			text += fmt.Sprintf(" Below %s nothing can run.", u.Bytes(q.setup.floor))
		}
		return text
	}
	if errors.Is(err, replay.ErrTooSmall) {
		return "Not possible: " + err.Error() + "."
	}
	return "Planning failed: " + err.Error() + "."
}

// progressOf returns how far planning with a manager is.
func (p *planning) progressOf(name string) headway {
	r := p.run
	if r == nil || r.halted || !slices.Contains(r.names, name) {
		return headway{}
	}
	u, begun := r.progress[name]
	if u.Done {
		return headway{}
	}
	h := headway{planning: true, waits: !begun}
	if u.Total > 0 {
		h.percent = int(min(100*float64(u.Finished)/float64(u.Total), 99))
	}
	if !u.Began.IsZero() {
		h.elapsed = time.Since(u.Began)
	}
	if u.Bounded {
		h.near = replay.Near(u.Gap)
	}
	return h
}

// underWay names the manager that has planned for longest: "joint is still planning (34 %, 12 s)".
func (p *planning) underWay(names []string) string {
	type underway struct {
		name string
		headway
	}
	var list []underway
	for _, name := range names {
		if h := p.progressOf(name); h.planning && !h.waits {
			list = append(list, underway{name, h})
		}
	}
	slices.SortStableFunc(list, func(a, b underway) int { return cmp.Compare(b.elapsed, a.elapsed) })
	if len(list) == 0 || list[0].elapsed < time.Second { // what takes a blink need not be named
		return ""
	}
	return list[0].name + " is still planning (" + list[0].String() + ")"
}

// besideMsg opens the chosen plan in detail with another one beside it.
type besideMsg struct{ key rowKey }
