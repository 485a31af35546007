package managers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// Plans on a real device.
//
// The simulator makes predictions; a device can check them. That takes seconds per plan and the whole device,
// so measuring starts only on request: the user chooses a target and starts it. Measured figures have columns
// of their own beside the simulated ones, and are kept by question and device.

// Target is something besides the simulator that can carry plans out.
type Target struct {
	// Name is a name such as cuda:0; About describes the target.
	Name, About string
	// Why says why it cannot be used, "" if it can.
	Why string
}

// Measurer is a [Planner] that also carries plans out on devices.
type Measurer interface {
	// Targets lists the devices, with the reason for those that cannot be used, and the watched training as
	// live, if there is one.
	Targets(ctx context.Context) []Target
	// Measure is [replay.Comparison.Measure] on the named device. A training is described and planned for
	// again, with the managers that have results in the comparison. Each of its results comes with the
	// simulator's prediction for the same plan.
	Measure(ctx context.Context, c *replay.Comparison, target string, update func(replay.Progress)) error
}

// measures is what one device made of the plans for one question.
type measures struct {
	job[replay.Progress]
	total int
	live  bool // of a training that runs
	by    map[resultKey]replay.Result
	told  map[resultKey]replay.Result // the simulator's predictions for plans that differ from the table's
	now   replay.Progress             // what it is doing now
}

type (
	measureKey struct {
		of     question
		target string
	}
	resultKey struct {
		manager  string
		executor plan.Executor
	}
	// targetsMsg are the targets that were found.
	targetsMsg struct{ list []Target }
	// targetMsg is the chosen target, "" for the simulator alone.
	targetMsg struct{ name string }
)

// measuring carries plans out on a target and keeps the results. It knows no other part of the view.
type measuring struct {
	with   Measurer // nil if nothing can be measured
	target string   // what carries plans out beside the simulator, "" for nothing
	found  map[measureKey]*measures
	busy   chan struct{} // holds one element while something is being measured
}

func newMeasuring(p Planner) measuring {
	with, _ := p.(Measurer)
	return measuring{with: with, found: map[measureKey]*measures{}, busy: make(chan struct{}, 1)}
}

// pick finds the targets, which may take a moment, and lets the user choose.
func (m *measuring) pick() tea.Cmd {
	with := m.with
	return func() tea.Msg {
		if with == nil {
			return targetsMsg{}
		}
		return targetsMsg{with.Targets(context.Background())}
	}
}

func (m *measuring) offer(list []Target) tea.Cmd {
	dot := func(name string) string {
		if name == m.target {
			return "• "
		}
		return "  "
	}
	choices := []leaf.Choice{{Title: dot("") + "sim", Detail: "the simulator alone", Msg: targetMsg{}}}
	for _, t := range list {
		c := leaf.Choice{Title: dot(t.Name) + t.Name, Detail: "measured on " + t.About,
			Msg: targetMsg{t.Name}}
		if t.Why != "" {
			c.Detail, c.Off = t.Why, true
		}
		choices = append(choices, c)
	}
	if len(list) == 0 {
		choices = append(choices, leaf.Choice{Title: "  cuda:0", Detail: "this session has no devices",
			Off: true})
	}
	if !slices.ContainsFunc(list, func(t Target) bool { return t.Name == liveTarget }) {
		choices = append(choices, leaf.Choice{Title: "  live", Detail: howToWatch, Off: true})
	}
	return leaf.Send(leaf.PickMsg{Title: "What should run the plans?", Choices: choices,
		Footer: "A GPU checks every byte of a plan and times it; a training runs some steps with each. " +
			"The simulator always answers too."})
}

// choose switches to a target. Results of other targets stay, but no more are made.
func (m *measuring) choose(name string) tea.Cmd {
	m.stop()
	m.target = name
	if name == "" {
		return nil
	}
	return leaf.Send(leaf.ToastMsg{Text: "x runs the plans that are on " + replay.Place(name) +
		"; R plans again"})
}

// begin measures the plans of rows that were not measured yet, in the order of the table, or all again if all
// were. c is the comparison that they come from. It stops measuring for any other question, and waits until
// that has left the device: two at once would slow each other down.
func (m *measuring) begin(q question, c replay.Comparison, rows []*row) tea.Cmd {
	key := measureKey{q, m.target}
	old := m.found[key]
	if old != nil && !old.ended {
		return nil
	}
	next := &measures{live: m.live(), by: map[resultKey]replay.Result{}, told: map[resultKey]replay.Result{}}
	c.Results = unmeasured(rows, next.live, old)
	if len(c.Results) == 0 { // all of them again
		c.Results = unmeasured(rows, next.live, nil)
	}
	if len(c.Results) == 0 {
		return leaf.Send(leaf.ToastMsg{Text: "there is no plan to run yet: switch a manager on"})
	}
	m.stop()
	if len(m.found) >= kept {
		clear(m.found)
	}
	if old != nil {
		maps.Copy(next.by, old.by)
		maps.Copy(next.told, old.told)
	}
	for i := range c.Results {
		delete(next.by, next.key(&c.Results[i]))
	}
	next.total = len(c.Results)
	m.found[key] = next
	with, target, busy := m.with, m.target, m.busy
	return next.start(func(ctx context.Context) error {
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
		case <-ctx.Done():
			return ctx.Err()
		}
		return with.Measure(ctx, &c, target, next.tell)
	})
}

// unmeasured are the results of rows that can be carried out, in a training where live says so, and that are
// not among the measured ones; nil is none.
func unmeasured(rows []*row, live bool, measured *measures) []replay.Result {
	var list []replay.Result
	for _, r := range rows {
		if live && (!r.stands || len(r.result.Plan.Absences) == 0 && !r.result.Plan.Parks) {
			continue // eager PyTorch chooses no addresses
		}
		if _, known := measured.of(r); !known {
			list = append(list, r.result.Result)
		}
	}
	return list
}

// live reports whether the target is the training that is watched.
func (m *measuring) live() bool { return m.target == liveTarget }

// key returns the key of a result: a training runs what eager PyTorch can, whatever the row is for.
func (x *measures) key(r *replay.Result) resultKey {
	if x.live {
		return resultKey{r.Info.Name, plan.TorchEager}
	}
	return resultKey{r.Info.Name, r.Executor}
}

// take handles the list of targets, and the news of a measurement unless it was stopped; ok is false for any
// other message.
func (m *measuring) take(msg tea.Msg) (cmd tea.Cmd, ok bool) {
	switch msg := msg.(type) {
	case targetsMsg:
		return m.offer(msg.list), true
	case jobMsg[replay.Progress]:
		return m.onNews(msg), true
	}
	return nil, false
}

func (m *measuring) onNews(msg jobMsg[replay.Progress]) tea.Cmd {
	var x *measures
	for _, found := range m.found {
		if &found.job == msg.job {
			x = found
		}
	}
	if x == nil || x.ended {
		return nil
	}
	fresh, err := x.take()
	for _, u := range fresh {
		x.now = u
		for _, r := range u.Results {
			if r.Target == u.Target {
				x.by[x.key(&r)] = r
			} else {
				x.told[x.key(&r)] = r
			}
		}
	}
	if !msg.done {
		return x.news
	}
	x.ended = true
	if err != nil && !errors.Is(err, context.Canceled) {
		return leaf.Send(leaf.ToastMsg{Text: err.Error(), Error: true})
	}
	return nil
}

// stop ends the current measurement; its results stay.
func (m *measuring) stop() {
	for _, x := range m.found {
		x.stop()
	}
}

// running reports whether something is being measured.
func (m *measuring) running() bool {
	for _, x := range m.found {
		if !x.ended {
			return true
		}
	}
	return false
}

// keep drops everything that is not about a setup.
func (m *measuring) keep(st *setup) {
	maps.DeleteFunc(m.found, func(k measureKey, _ *measures) bool { return k.of.setup != st })
}

// known returns the results for a question on the current target, nil if nobody asked.
func (m *measuring) known(q question) *measures { return m.found[measureKey{q, m.target}] }

// of returns the measured result of a row's plan; ok is false if there is none.
func (m *measuring) of(q question, r *row) (x replay.Result, ok bool) { return m.known(q).of(r) }

func (x *measures) of(r *row) (y replay.Result, ok bool) {
	if x == nil || r.result == nil || r.stale {
		return y, false
	}
	y, ok = x.by[x.key(&r.result.Result)]
	if x.live {
		return y, ok && r.stands
	}
	return y, ok && y.Plan == r.result.Plan
}

// predicted returns the simulator's prediction for the plan that was measured for a row with a result.
func (m *measuring) predicted(q question, r *row) *replay.Result {
	if x := m.known(q); x != nil {
		if y, ok := x.told[x.key(&r.result.Result)]; ok {
			return &y
		}
	}
	return &r.result.Result
}

// cell returns a cell of a column of measured figures.
func (m *measuring) cell(th *theme.Theme, q question, r *row, col int, size func(int64) string) table.Cell {
	now := m.known(q)
	x, ok := now.of(r)
	switch {
	case ok && !x.Available:
		if col == colMeasured {
			return table.Cell{Text: "failed", Style: th.Bad}
		}
		return table.Cell{Text: " "}
	case !ok && now.busyWith(r):
		if col == colMeasured {
			return table.Cell{Text: now.now.Doing, Style: th.Dim, Span: true}
		}
		return table.Cell{Text: " "}
	case !ok:
		return table.Cell{Text: "–", Style: th.Faint}
	case col == colMeasured:
		return table.Cell{Text: size(x.Measurement.Footprint)}
	}
	cell := table.Cell{Text: replay.Percent(x.Overhead)}
	if replay.Outside(&x, m.predicted(q, r)) {
		cell.Style = th.Warn
	}
	return cell
}

// busyWith reports whether a row's plan is being measured now.
func (x *measures) busyWith(r *row) bool {
	if x == nil || x.ended || x.now.Done || r.result == nil || x.now.Manager != r.m.Info.Name {
		return false
	}
	if x.live {
		return r.stands
	}
	return r.of == plan.Ideal
}

// status returns a row's measured figures beside the simulated ones, and what the counters of the run show if
// they differ.
func (m *measuring) status(u timeline.Units, q question, r *row) string {
	x, ok := m.of(q, r)
	if !ok {
		return ""
	}
	if !x.Available {
		return x.Reason
	}
	y, by := m.predicted(q, r), &x.Measurement
	text := fmt.Sprintf("%s: %s (%s), step %s", x.Target, u.Bytes(by.Footprint),
		replay.Percent(replay.Off(by.Footprint, replay.Predicted(by, &y.Measurement))),
		timeline.Duration(by.StepTime))
	if base := by.KeepAll(); base > 0 {
		text += fmt.Sprintf(", overhead %s beside %s of keeping everything, simulated %s",
			replay.Percent(x.Overhead), timeline.Duration(base), replay.Percent(y.Overhead))
	}
	if by.Verified {
		text += ", every byte checked"
	}
	if replay.Outside(&x, y) {
		causes := (&replay.Comparison{Problem: q.setup.p}).Causes(&x, y)
		if len(causes) == 0 {
			causes = []string{"none of the counters shows why"}
		}
		text += " · not as simulated: " + strings.Join(causes, "; ")
	}
	return text
}

// text says how far measuring is, or why it failed for the answer, the row with a key; "" for neither. The
// results are in the sentence.
func (m *measuring) text(q question, rows []row, answer rowKey) string {
	now := m.known(q)
	switch {
	case now == nil:
		return ""
	case !now.ended:
		return now.headway(m.target)
	}
	for i := range rows {
		r := &rows[i]
		if k := r.key(); k != answer && !(now.live && k == (rowKey{answer.manager, plan.TorchEager})) {
			continue
		}
		if x, ok := now.of(r); ok && !x.Available {
			at := replay.Place(x.Target)
			return fmt.Sprintf("%s %s failed: %s.", strings.ToUpper(at[:1])+at[1:], x.Info.Name, x.Reason)
		}
	}
	return ""
}

// results returns the measured results for a question on the current target, and the predictions for plans
// that were made for them.
func (m *measuring) results(q question) (list, replanned []replay.Result) {
	x := m.known(q)
	if x == nil {
		return nil, nil
	}
	for _, k := range slices.SortedFunc(maps.Keys(x.by), func(a, b resultKey) int {
		return cmp.Or(cmp.Compare(a.manager, b.manager), cmp.Compare(a.executor, b.executor))
	}) {
		list = append(list, x.by[k])
		if told, ok := x.told[k]; ok {
			replanned = append(replanned, told)
		}
	}
	return list, replanned
}

// headway returns how far measuring is.
func (x *measures) headway(target string) string {
	done := x.now.Finished
	if x.now.Done {
		done++
	}
	text := fmt.Sprintf("Running %s: %d of %d plans", replay.Place(target), done, x.total)
	if x.now.Doing != "" {
		text += fmt.Sprintf(", %s (%s)", x.now.Manager, x.now.Doing)
	}
	return text + "."
}
