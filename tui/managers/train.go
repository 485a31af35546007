package managers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Plans in the watched training.
//
// A simulator predicts and a device replays. A running training can switch to a plan at its next step, and
// back. One plan is on at a time. Its job reports what it is doing until the plan is taken away. The line
// about it stays afterwards, with the measurements or the reason why the plan ended. Meanwhile the view stays
// with the step that it shows: each plan has the training described again, and the last steps described ran
// under a plan.
//
// Rejected: only a mark in the table (the user waits for the effect of the switch); asking before a switch
// (one key undoes it).

// Trainer is a [Planner] that also applies plans to a training that runs.
type Trainer interface {
	// Training names the watched training, "" if there is none. It is called for every frame.
	Training() string
	// Train applies a manager's plan for a budget in bytes to the training until ctx is done, then takes it
	// away: it describes the training, plans for it on hardware h, and measures. It calls tell with every
	// change. The error says why the plan no longer applies, nil if ctx ended it.
	Train(ctx context.Context, manager string, budget int64, h plan.Hardware, tell func(live.News)) error
	// Elsewhere describes a plan that something else applied to the training: gmemtop run --manager, or
	// another screen; "" for none. It is called for every frame.
	Elsewhere() string
	// TakeAway takes that plan away from the training.
	TakeAway(ctx context.Context) error
}

// liveTarget is the name of the training as a target.
const liveTarget = plan.LiveTarget

// howToWatch says how to watch a training.
const howToWatch = "no training is watched here: gmemtop attach PID watches one"

// training applies plans to the watched training, one at a time. It knows no other part of the view.
type training struct {
	with  Trainer // nil if no training can be reached
	trial *trial  // the plan that is applied to the training, or was last; nil for none
}

func newTraining(p Planner) training {
	with, _ := p.(Trainer)
	return training{with: with}
}

// watched names the watched training, "" if there is none.
func (t *training) watched() string {
	if t.with == nil {
		return ""
	}
	return t.with.Training()
}

// now returns the trial that is live, or on its way there; nil for none.
func (t *training) now() *trial {
	if x := t.trial; x != nil && !x.ended && !x.ending {
		return x
	}
	return nil
}

// on reports whether the training trains with a plan.
func (t *training) on() bool {
	x := t.now()
	return x != nil && x.last.Stage == live.On
}

// plain reports whether the training runs without a plan, as far as we know.
func (t *training) plain() bool { return !t.on() && t.elsewhere() == "" }

// beginning returns the trial that is not measured yet; nil for none.
func (t *training) beginning() *trial {
	if x := t.now(); x != nil && x.last.Stage != live.On {
		return x
	}
	return nil
}

// timed reports whether the line shows how long something takes.
func (t *training) timed() bool {
	x := t.trial
	return x != nil && !x.ended && (x.ending || x.last.Stage != live.On)
}

// elsewhere describes a plan that something else applied to the training, "" for none.
func (t *training) elsewhere() string {
	if t.with == nil || t.now() != nil {
		return ""
	}
	return t.with.Elsewhere()
}

// takenMsg is the result of taking somebody else's plan away.
type takenMsg struct{ err error }

// takeAway removes another viewer's plan from the training.
func (t *training) takeAway() tea.Cmd {
	with := t.with
	return func() tea.Msg { return takenMsg{with.TakeAway(context.Background())} }
}

// begin applies a manager's plan to the training in place of any other.
func (t *training) begin(manager int, name string, q question, h plan.Hardware) tea.Cmd {
	with, budget := t.with, q.budget
	x := &trial{manager: manager, name: name, budget: budget, setup: q.setup, since: time.Now()}
	t.trial = x
	return x.start(func(ctx context.Context) error { return with.Train(ctx, name, budget, h, x.tell) })
}

// end takes the plan away from the training. Its later news still counts: taking it away may fail.
func (t *training) end() {
	if x := t.now(); x != nil {
		x.ending, x.since = true, time.Now()
		x.cancel(nil)
	}
}

// take handles a trial's news and the result of taking a plan away; ok is false for any other message.
func (t *training) take(msg tea.Msg) (cmd tea.Cmd, ok bool) {
	switch msg := msg.(type) {
	case jobMsg[live.News]:
		return t.onNews(msg), true
	case takenMsg:
		if msg.err != nil {
			return leaf.Send(leaf.ToastMsg{Text: msg.err.Error(), Error: true}), true
		}
		return leaf.Send(leaf.ToastMsg{Text: "the plan is removed: T trains with " +
			"the one under the cursor"}), true
	}
	return nil, false
}

func (t *training) onNews(msg jobMsg[live.News]) tea.Cmd {
	fresh, err := msg.job.take()
	x := t.trial
	mine := x != nil && msg.job == &x.job
	if mine {
		for _, n := range fresh {
			x.hear(n)
		}
	}
	if !msg.done {
		return msg.job.news
	}
	msg.job.ended = true
	if mine {
		x.err = err
	}
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return leaf.Send(leaf.ToastMsg{Text: err.Error(), Error: true})
}

// lines describe what the training does with a plan, the longest first: the first that fits is shown. They
// name the budget if it is not a question's, and say so if the measurement is of other steps.
func (t *training) lines(u timeline.Units, q question) []string {
	if other := t.elsewhere(); other != "" {
		return []string{other + " · not turned on here: T turns it off", other}
	}
	if t.trial == nil {
		return nil
	}
	lines := t.trial.lines(u, q.budget)
	if t.carried() && t.other(q.setup) {
		for i := range lines {
			lines[i] += " · measured before the job changed"
		}
	}
	return lines
}

// carried reports whether the training ran with a plan long enough to be measured, under whatever budget.
func (t *training) carried() bool { return t.trial != nil && t.trial.first > 0 }

// of returns how a row's plan did in the training under the budget of a question, nil if it was not measured.
func (t *training) of(q question, r *row) *replay.Result {
	if x := t.trial; x == nil || x.manager != r.manager || !r.stands {
		return nil
	}
	if r, _, ok := t.result(q); ok {
		return &r
	}
	return nil
}

// other reports whether a trial was of other steps than those of a setup: the job changed, or it is another.
func (t *training) other(st *setup) bool {
	return t.trial != nil && !t.trial.setup.alike(st)
}

// outdated reports whether the steps of the training have changed since the step of a setup was captured, so
// that plans for it are not plans for the training as it is now.
func (t *training) outdated(st *setup) bool {
	return t.trial != nil && t.trial.turned && t.trial.setup == st
}

// before returns the time of a step without a plan, as timed by the newest trial, in nanoseconds; 0 if none
// was timed, or only in steps that differ from those of a setup.
func (t *training) before(st *setup) int64 {
	if t.trial == nil || t.other(st) {
		return 0
	}
	return t.trial.last.Before
}

// result returns the measurements of the plan that the training runs with or last ran with, and the
// prediction for it; ok is false if there are none, or only for another budget than a question's.
func (t *training) result(q question) (r, predicted replay.Result, ok bool) {
	x := t.trial
	if x == nil || x.first <= 0 || x.last.Peak <= 0 || x.budget != q.budget || t.other(q.setup) {
		return r, predicted, false
	}
	n := &x.last
	r = replay.Result{
		Info: plan.Info{Name: x.name}, Executor: plan.TorchEager, Target: liveTarget, Available: true,
		Valid: true, Fits: q.budget <= 0 || n.Peak <= q.net(), Plan: &plan.Plan{},
	}
	if n.Pooled {
		r.Executor = plan.Ideal
	}
	predicted = r
	r.Measurement = plan.Measurement{
		Target: liveTarget, Footprint: n.Peak, Allocated: !n.Pooled, StepTime: x.first, StepP95: x.within,
		KeepAllBefore: n.Before, KeepAllAfter: n.Before,
		SwappedOut: n.Out, SwappedIn: n.In, RecomputeTime: n.Again,
	}
	predicted.Measurement = plan.Measurement{
		Footprint: n.Predicted, PeakLive: n.Predicted, StepTime: n.PredictedStep,
	}
	if n.Before > 0 {
		r.Overhead, predicted.Overhead = replay.Off(x.first, n.Before), replay.Off(n.PredictedStep, n.Before)
	}
	return r, predicted, true
}

// text is the longest line.
func (t *training) text(u timeline.Units, q question) string {
	if lines := t.lines(u, q); len(lines) > 0 {
		return "live: " + lines[0]
	}
	return ""
}

// reasonRows is how many rows the reason why a plan is off takes at most; a short body keeps its table.
func reasonRows(body canvas.Rect) int {
	if body.H > 20 {
		return 3
	}
	return 2
}

// draw writes the line, or in a few rows why the plan is off, and returns the remaining room.
func (t *training) draw(s *leaf.State, c *canvas.Canvas, body canvas.Rect, q question) canvas.Rect {
	lines := t.lines(s.Units, q)
	if len(lines) == 0 || body.H < 4 {
		return body
	}
	th, x := s.Theme, t.trial
	lead, style := th.Accent.Strong(), th.Text
	switch {
	case t.elsewhere() != "":
		lead = th.Good.Strong()
	case x.ended && x.err != nil:
		lead, style = th.Bad, th.Bad
	case x.ended:
		lead, style = th.Dim, th.Dim
	case x.last.Stage == live.On && !x.ending:
		lead, style = th.Good.Strong(), th.Strong
	}
	n := c.TextMax(body.X, body.Y, body.W, lead, "live: ")
	line := lines[len(lines)-1]
	for _, l := range lines {
		if canvas.Width(l) <= body.W-n {
			line = l
			break
		}
	}
	text := []string{line}
	if x != nil && x.ended && x.err != nil {
		text = leaf.Wrap(line, body.W-n)
		if room := reasonRows(body); len(text) > room {
			text = append(text[:room-1], strings.Join(text[room-1:], " "))
		}
	}
	at, rest := body.CutTop(len(text))
	for i, l := range text {
		c.TextMax(at.X+n, at.Y+i, at.W-n, style, l)
	}
	rest = t.drawRanks(s, c, rest, n)
	if rest.H > 20 {
		_, rest = rest.CutTop(1)
	}
	return rest
}

// Ranks are listed below the line if the room has enough rows besides; any more are only counted.
const (
	rowsBesideRanks = 24
	mostRanks       = 8
)

// drawRanks writes a row for each rank, in words what the line says about all of them, and returns the
// remaining room.
func (t *training) drawRanks(s *leaf.State, c *canvas.Canvas, body canvas.Rect, indent int) canvas.Rect {
	if t.now() == nil {
		return body
	}
	ranks := t.trial.last.Ranks
	room := min(len(ranks), mostRanks, body.H-rowsBesideRanks)
	if len(ranks) < 2 || room < 2 {
		return body
	}
	at, rest := body.CutTop(room)
	for i := range room {
		r := &ranks[i]
		text, style := r.Line(s.Units), s.Theme.Dim
		switch {
		case i == room-1 && room < len(ranks):
			text = fmt.Sprintf("and %d more", len(ranks)-i)
		case r.Err != nil:
			style = s.Theme.Bad
		}
		c.TextMax(at.X+indent, at.Y+i, at.W-indent, style, text)
	}
	return rest
}

// mark returns the text after the switch of the row whose plan is on, "" for all others.
func (t *training) mark(r *row) string {
	x := t.now()
	switch {
	case x == nil || x.manager != r.manager || !r.stands:
		return ""
	case x.last.Stage == live.On:
		return "▶"
	}
	return "▸"
}

// status returns, for the row whose plan is on, what the line has no room for.
func (t *training) status(u timeline.Units, r *row) string {
	x := t.trial
	if x == nil || x.manager != r.manager || !r.stands || x.ending {
		return ""
	}
	n := &x.last
	switch {
	case x.ended && x.err != nil:
		return "live: " + x.err.Error()
	case x.ended || n.Stage != live.On:
		return ""
	}
	text := "live: "
	if len(n.Ranks) > 1 {
		for i := range n.Ranks {
			text += n.Ranks[i].Line(u) + "; "
		}
	}
	text += fmt.Sprintf("the last steps took %s, 95 of 100 within %s", timeline.Duration(n.Step),
		timeline.Duration(n.P95))
	if n.Out > 0 {
		text += fmt.Sprintf(", %s out and %s in with each", u.Bytes(n.Out), u.Bytes(n.In))
	}
	if n.Again > 0 {
		text += fmt.Sprintf(", %s of ops run again", timeline.Duration(n.Again))
	}
	if n.Checked > 0 {
		differ := "all"
		if n.Differ > 0 {
			differ = fmt.Sprintf("%d not", n.Differ)
		}
		text += fmt.Sprintf("; %s compared after coming back, %s bit-identical",
			timeline.Counted(n.Checked, "tensor"), differ)
	}
	if n.Missed > 0 {
		text += fmt.Sprintf("; %s stayed on the GPU against the plan: the step differs from "+
			"the one that was captured", timeline.Counted(n.Missed, "tensor"))
	}
	return text + n.LargerSteps(u)
}

// tempo returns the factor for the rows of a question, in which a step of today's allocator takes simulated
// nanoseconds.
func (t *training) tempo(s *leaf.State, q question, simulated int64) tempo {
	takes := t.before(q.setup)
	if takes <= 0 && s.Step != "" {
		takes = s.StepTime
	}
	if takes <= 0 || simulated <= 0 || !q.setup.p.HasTimes {
		return 0
	}
	return tempo(float64(takes) / float64(simulated))
}

// bindings returns the key that trains with a row's plan or ends that, with what it would do; none if no
// training is watched or the row's manager makes no plan.
func (t *training) bindings(train key.Binding, r *row) []key.Binding {
	if t.watched() == "" || r == nil || r.m.Info.Family == plan.Baseline {
		return nil
	}
	if t.elsewhere() != "" {
		train.SetHelp("T", "remove the plan")
	} else if now := t.now(); now != nil && now.manager == r.manager {
		train.SetHelp("T", "train without it")
	}
	return []key.Binding{train}
}
