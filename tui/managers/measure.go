package managers

import (
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
)

// Plans on a real device.
//
// What the simulator says is a promise; a device can be asked to keep it. That takes seconds a plan and the
// whole device, so nothing is measured unasked: one chooses a target and says go. What was measured stands
// beside what was simulated, in columns of its own, and is kept by the same question and device.

// Target is what plans can be carried out on beside the simulator.
type Target struct {
	// Name is cuda:0; About says what it is.
	Name, About string
	// Why says why it cannot be used, "" where it can.
	Why string
}

// Measurer is a [Planner] that also carries plans out on devices.
type Measurer interface {
	// Targets lists the devices, those that cannot be used with the reason, and the training that is watched,
	// where there is one, as live.
	Targets(ctx context.Context) []Target
	// Measure is [replay.Comparison.Measure] on a device, by its name. A training is described and planned
	// for anew, with the managers that the comparison has results of: beside each result of its own come what
	// the simulator says of the same plan.
	Measure(ctx context.Context, c *replay.Comparison, target string, update func(replay.Progress)) error
}

// measures is what one device made of the plans for one question.
type measures struct {
	job[replay.Progress]
	total int
	live  bool // of a training that runs
	by    map[resultKey]replay.Result
	told  map[resultKey]replay.Result // what the simulator says where the plans are not those of the table
	now   replay.Progress             // what it does at this moment
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
	// targetMsg is the one that was chosen, "" for the simulator alone.
	targetMsg struct{ name string }
)

// gauge is the View as what measures on a device.
type gauge struct{ *View }

// pick finds the targets, which may take a moment, and lets the user choose.
func (v gauge) pick() tea.Cmd {
	m, able := v.planner.(Measurer)
	return func() tea.Msg {
		if !able {
			return targetsMsg{}
		}
		return targetsMsg{m.Targets(context.Background())}
	}
}

func (v gauge) offer(list []Target) tea.Cmd {
	dot := func(name string) string {
		if name == v.target {
			return "• "
		}
		return "  "
	}
	choices := []leaf.Choice{{Title: dot("") + "sim", Detail: "the simulator alone", Msg: targetMsg{}}}
	for _, t := range list {
		c := leaf.Choice{Title: dot(t.Name) + t.Name, Detail: "measured on " + t.About, Msg: targetMsg{t.Name}}
		if t.Why != "" {
			c.Detail, c.Off = t.Why, true
		}
		choices = append(choices, c)
	}
	if len(list) == 0 {
		choices = append(choices, leaf.Choice{Title: "  cuda:0", Detail: "this session has no devices", Off: true})
	}
	if !slices.ContainsFunc(list, func(t Target) bool { return t.Name == liveTarget }) {
		choices = append(choices, leaf.Choice{Title: "  live", Detail: HowToWatch, Off: true})
	}
	return leaf.Send(leaf.PickMsg{Title: "What carries the plans out", Choices: choices,
		Footer: "a device checks every byte of a plan, then times it; a training goes on with each for some steps; the simulator answers in any case"})
}

// choose takes a target; what is measured on another goes on being kept, but not being made.
func (v gauge) choose(s *leaf.State, name string) tea.Cmd {
	v.stop()
	v.target = name
	v.keys.replan.SetHelp("r", "plan again")
	if name != "" {
		v.keys.replan.SetHelp("r", "run "+place(name))
		return tea.Batch(ranking(v).refresh(s), leaf.Send(leaf.ToastMsg{Text: "r runs the plans that are on " + place(name) + "; R plans again"}))
	}
	return ranking(v).refresh(s)
}

// place says where a target carries plans out.
func place(target string) string {
	if target == liveTarget {
		return "in the training"
	}
	return "on " + target
}

// begin measures the plans that are on and were not measured yet, all of them anew where all were.
func (v gauge) begin(s *leaf.State) tea.Cmd {
	q, ok := v.question(s)
	with, able := v.planner.(Measurer)
	if !ok || !able || v.target == "" {
		return nil
	}
	live := v.target == liveTarget
	if t := v.training.now(); t != nil && live {
		return leaf.Send(leaf.ToastMsg{Text: t.name + " is live: T trains without it, then r measures"})
	}
	if v.run != nil || v.moving {
		return leaf.Send(leaf.ToastMsg{Text: "planning is under way: what is measured must not share the machine with it; esc stops planning"})
	}
	key := measureKey{q, v.target}
	m := v.measured[key]
	if m != nil && !m.ended {
		return nil
	}
	c := *ranking(v).comparison(q, v.answersTo(q))
	c.Results = nil
	for again := range 2 {
		for i := range v.rows { // what stands on top first
			x := &v.rows[i]
			if x.result == nil || x.stale || !x.result.Available || !v.managers[x.manager].on {
				continue
			}
			if live && (!x.stands || len(x.result.Plan.Absences) == 0) { // eager PyTorch chooses no addresses
				continue
			}
			if _, known := v.in(m, x); again == 1 || !known {
				c.Results = append(c.Results, x.result.Result)
			}
		}
		if len(c.Results) > 0 {
			break
		}
	}
	if len(c.Results) == 0 {
		return leaf.Send(leaf.ToastMsg{Text: "there is no plan to run yet: switch a manager on"})
	}
	if len(v.measured) >= kept {
		clear(v.measured)
	}
	next := &measures{total: len(c.Results), live: live, by: map[resultKey]replay.Result{}, told: map[resultKey]replay.Result{}}
	if m != nil {
		maps.Copy(next.by, m.by)
		maps.Copy(next.told, m.told)
	}
	for i := range c.Results {
		delete(next.by, next.key(&c.Results[i]))
	}
	v.measured[key] = next
	v.version++
	target := v.target
	start := next.start(func(ctx context.Context) error { return with.Measure(ctx, &c, target, next.tell) })
	if live {
		return tea.Batch(start, hold(s))
	}
	return start
}

// key is what a result is kept by: a training runs what eager PyTorch can, whatever the row stands for.
func (m *measures) key(r *replay.Result) resultKey {
	if m.live {
		return resultKey{r.Info.Name, plan.TorchEager}
	}
	return resultKey{r.Info.Name, r.Executor}
}

// onNews takes what a device has to say, unless it was stopped.
func (v gauge) onNews(s *leaf.State, msg jobMsg[replay.Progress]) tea.Cmd {
	var m *measures
	for _, x := range v.measured {
		if &x.job == msg.job {
			m = x
		}
	}
	if m == nil || m.ended {
		return nil
	}
	fresh, err := m.take()
	for _, u := range fresh {
		m.now = u
		for _, r := range u.Results {
			if r.Target == u.Target {
				m.by[m.key(&r)] = r
			} else {
				m.told[m.key(&r)] = r
			}
		}
	}
	v.version++
	if !msg.done {
		return m.news
	}
	m.ended = true
	if err != nil && !errors.Is(err, context.Canceled) {
		return leaf.Send(leaf.ToastMsg{Text: err.Error(), Error: true})
	}
	return nil
}

// stop ends what is being measured; what was measured stays.
func (v gauge) stop() {
	for _, m := range v.measured {
		m.stop()
	}
}

// running returns what is being measured, nil for nothing.
func (v gauge) running() *measures {
	for _, m := range v.measured {
		if !m.ended {
			return m
		}
	}
	return nil
}

// known returns what was measured for the question and target in force, nil where nobody asked.
func (v gauge) known() *measures {
	if v.target == "" {
		return nil
	}
	for k, m := range v.measured {
		if k.target == v.target && k.of.budget == v.budget { // settle lets go of what is of another setup
			return m
		}
	}
	return nil
}

// of returns what was measured of a row's plan; ok is false where it was not.
func (v gauge) of(r *row) (x replay.Result, ok bool) { return v.in(v.known(), r) }

// in is of among what a target made of the plans, nil for nothing.
func (v gauge) in(m *measures, r *row) (x replay.Result, ok bool) {
	if m == nil || r.result == nil || r.stale {
		return x, false
	}
	x, ok = m.by[m.key(&r.result.Result)]
	if m.live {
		return x, ok && r.stands
	}
	return x, ok && x.Plan == r.result.Plan
}

// predicted is what the simulator says of the plan that was measured for a row.
func (v gauge) predicted(r *row) *replay.Result {
	if m := v.known(); m != nil && r.result != nil {
		if y, ok := m.told[m.key(&r.result.Result)]; ok {
			return &y
		}
	}
	return &r.result.Result
}

// cell is what stands in the columns of measured figures.
func (v gauge) cell(s *leaf.State, r *row, col int, size func(int64) string) table.Cell {
	th := s.Theme
	m := v.known()
	x, ok := v.of(r)
	switch {
	case ok && !x.Available:
		if col == colMeasured {
			return table.Cell{Text: "failed", Style: th.Bad}
		}
		return table.Cell{Text: " "}
	case !ok && m != nil && !m.ended && r.result != nil && m.now.Manager == r.result.Info.Name && !m.now.Done && (r.of == plan.Ideal && !m.live || m.live && r.stands):
		if col == colMeasured {
			return table.Cell{Text: m.now.Doing, Style: th.Dim, Span: true}
		}
		return table.Cell{Text: " "}
	case !ok:
		return table.Cell{Text: "–", Style: th.Faint}
	case col == colMeasured:
		return table.Cell{Text: size(x.Measurement.Footprint)}
	}
	cell := table.Cell{Text: replay.Percent(x.Overhead)}
	if replay.Outside(&x, v.predicted(r)) {
		cell.Style = th.Warn
	}
	return cell
}

// status says of a row what was measured, beside what was simulated, and what the counters of the run show
// where the two differ.
func (v gauge) status(s *leaf.State, r *row) string {
	x, ok := v.of(r)
	if !ok {
		return ""
	}
	if !x.Available {
		return x.Reason
	}
	y := v.predicted(r)
	m := &x.Measurement
	text := fmt.Sprintf("%s: %s (%s), step %s", x.Target, s.Units.Bytes(m.Footprint), replay.Percent(replay.Off(m.Footprint, replay.Predicted(m, &y.Measurement))),
		timeline.Duration(m.StepTime))
	if base := m.KeepAll(); base > 0 {
		text += fmt.Sprintf(", overhead %s beside %s of keeping everything, simulated %s", replay.Percent(x.Overhead), timeline.Duration(base), replay.Percent(y.Overhead))
	}
	if m.Verified {
		text += ", every byte checked"
	}
	q, _ := v.question(s)
	if replay.Outside(&x, y) {
		causes := (&replay.Comparison{Problem: q.setup.p}).Causes(&x, y)
		if len(causes) == 0 {
			causes = []string{"no counter of the run shows why"}
		}
		text += " · not as simulated: " + strings.Join(causes, "; ")
	}
	return text
}

// text says how far measuring is, or what was measured of the answer; "" where nobody asked.
func (v gauge) text(s *leaf.State) string {
	m := v.known()
	if m == nil {
		return ""
	}
	if !m.ended {
		done := m.now.Part
		if m.now.Done {
			done++
		}
		so := fmt.Sprintf("Running %s: %d of %d plans", place(v.target), done, m.total)
		if m.now.Doing != "" {
			so += fmt.Sprintf(", %s (%s)", m.now.Manager, m.now.Doing)
		}
		return so + "."
	}
	for i := range v.rows {
		r := &v.rows[i]
		if key := (rowKey{r.manager, r.of}); key != v.winner && !(m.live && key == (rowKey{v.winner.manager, plan.TorchEager})) {
			continue
		}
		x, ok := v.of(r)
		switch {
		case !ok:
		case !x.Available:
			at := place(x.Target)
			return fmt.Sprintf("%s %s failed: %s.", strings.ToUpper(at[:1])+at[1:], x.Info.Name, x.Reason)
		default:
			return fmt.Sprintf("Measured %s: %s, step %s.", place(x.Target), s.Units.Bytes(x.Measurement.Footprint), replay.Percent(x.Overhead))
		}
	}
	return ""
}
