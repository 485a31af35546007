package managers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// Plans in the training that is watched.
//
// A simulator predicts and a device replays; a training that runs can be asked to go on with a plan, from its
// next step on, and to go on without it. One plan is live at a time. Its job says what it does until it is
// taken away, and the line that it has to itself stays when it is over: what was measured, or why it ended.
// The view stays with the step that it shows meanwhile, since each plan has the training described anew, and
// what is described last was run under a plan.
//
// Rejected: a mark in the table alone (what a toggle comes to is the answer that one waited for); asking
// before a switch (taking it back is one key).

// Trainer is a [Planner] that also has plans carried out in a training that runs.
type Trainer interface {
	// Training names the training that is watched, "" where there is none. It is asked with every frame.
	Training() string
	// Train has the training go on with the plan of a manager, for a budget in bytes, until ctx is done, and
	// without it then: it describes the training, plans for it on hardware h, and measures. tell hears of
	// every change. The error says why the plan is not carried out any more, nil where ctx ended it.
	Train(ctx context.Context, manager string, budget int64, h plan.Hardware, tell func(live.News)) error
	// Elsewhere says what the training trains with that nobody asked for here: the plan of gmemtop run
	// --manager, or of another screen; "" for nothing. It is asked with every frame.
	Elsewhere() string
	// TakeAway has the training go on without that.
	TakeAway(ctx context.Context) error
}

// liveTarget is the name of the training as a target.
const liveTarget = "live"

// HowToWatch says how a training comes to be watched.
const HowToWatch = "no training is watched here: gmemtop attach PID watches one"

// trial is a plan that a training was asked to go on with, and what came of it.
type trial struct {
	job[live.News]
	manager int
	budget  int64
	last    live.News
	first   int64     // the median of the steps right behind the switch, in nanoseconds: what is compared with those before it, since a machine's speed drifts
	again   bool      // the training's steps became others, and it is planned for anew
	since   time.Time // it does what it does now
	ending  bool      // the user took it back
	err     error
}

// toggler is the View as what has a training go on with plans.
type toggler struct{ *View }

// training names the training that is watched, "" where there is none.
func (v toggler) training() string {
	if t, able := v.planner.(Trainer); able {
		return t.Training()
	}
	return ""
}

// now returns the trial that is live, or on its way there; nil for none.
func (v toggler) now() *trial {
	if t := v.trial; t != nil && !t.ended && !t.ending {
		return t
	}
	return nil
}

// beginning returns the trial that is not measured yet; nil for none.
func (v toggler) beginning() *trial {
	if t := v.now(); t != nil && t.last.Phase != live.On {
		return t
	}
	return nil
}

// elsewhere says what the training trains with that nobody asked for here, "" for nothing.
func (v toggler) elsewhere() string {
	if t, able := v.planner.(Trainer); able && v.now() == nil {
		return t.Elsewhere()
	}
	return ""
}

// takenMsg says what came of taking somebody else's plan away.
type takenMsg struct{ err error }

// takeAway has the training go on without somebody else's plan.
func (v toggler) takeAway() tea.Cmd {
	t := v.planner.(Trainer)
	return func() tea.Msg { return takenMsg{t.TakeAway(context.Background())} }
}

// onTaken says what came of that.
func (v toggler) onTaken(msg takenMsg) tea.Cmd {
	if msg.err != nil {
		return leaf.Send(leaf.ToastMsg{Text: msg.err.Error(), Error: true})
	}
	return leaf.Send(leaf.ToastMsg{Text: "the plan is taken away: T trains with the one under the cursor"})
}

// toggle has the training go on with the plan under the cursor in place of any other, or without it where it
// is live.
func (v toggler) toggle(s *leaf.State) tea.Cmd {
	r := v.current()
	if r == nil {
		return nil
	}
	if v.elsewhere() != "" {
		return v.takeAway()
	}
	if m := &v.managers[r.manager]; m.Info.Family == plan.Baseline && v.training() != "" { // describing the training only to find nothing to do would take a while
		return leaf.Send(leaf.ToastMsg{Text: m.Info.Name + " plans nothing that a training could go on with: choose a manager that does", Error: true})
	}
	if t := v.now(); t != nil {
		v.end()
		if t.manager == r.manager {
			return nil
		}
	}
	if v.training() == "" {
		return leaf.Send(leaf.ToastMsg{Text: HowToWatch, Error: true})
	}
	if v.run != nil || v.moving { // what is measured must not share the machine with planning
		runner(v).stop()
		v.stopped, v.moving = true, false
	}
	gauge(v).stop()
	batcher(v).stop()
	ranking(v).follow()
	with, name, h := v.planner.(Trainer), v.managers[r.manager].Info.Name, v.planner.Hardware()[v.hardware]
	t := &trial{manager: r.manager, budget: v.budget, since: time.Now()}
	v.trial = t
	start := t.start(func(ctx context.Context) error { return with.Train(ctx, name, t.budget, h, t.tell) })
	return tea.Batch(start, v.hold(s), ranking(v).refresh(s))
}

// hold has the root stay with the captured step that is shown, by a move that moves nothing.
func (v toggler) hold(s *leaf.State) tea.Cmd { return leaf.Send(leaf.WindowMsg{Window: s.Window}) }

// end has the training go on without the plan. What it still says is heard: taking it away may fail.
func (v toggler) end() {
	if t := v.now(); t != nil {
		t.ending, t.since = true, time.Now()
		t.cancel()
	}
}

// onNews takes what a trial has to say.
func (v toggler) onNews(msg jobMsg[live.News]) tea.Cmd {
	fresh, err := msg.job.take()
	t := v.trial
	mine := t != nil && msg.job == &t.job
	if mine {
		for _, n := range fresh {
			t.again = t.again && !n.Phase.Carried() || t.last.Phase.Carried() && !n.Phase.Carried()
			if n.Phase.Carried() && !t.last.Phase.Carried() {
				t.first = n.Step
			}
			if n.Phase != t.last.Phase {
				t.since = time.Now()
			}
			t.last = n
		}
	}
	if !msg.done {
		return msg.job.news
	}
	msg.job.ended = true
	if mine {
		t.err = err
	}
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return leaf.Send(leaf.ToastMsg{Text: err.Error(), Error: true})
}

// doing says what a trial does before it is on: "measuring steps with it, 4 of 5, 12 s".
func (t *trial) doing() string {
	text := t.last.Phase.Doing()
	if at, of, ok := t.last.Phase.Trial(); ok {
		text = fmt.Sprintf("%s, %d of %d", text, at, of)
	}
	if t.again {
		text += ", since they became others"
	}
	return text
}

// lines say what a trial has come to, the longest first: the one that has room is shown.
func (v toggler) lines(s *leaf.State) []string {
	t := v.trial
	if other := v.elsewhere(); other != "" {
		return []string{other + " · asked for elsewhere: T takes it away", other}
	}
	if t == nil {
		return nil
	}
	name := v.managers[t.manager].Info.Name
	n := &t.last
	budget := ""
	if t.budget != v.budget {
		budget = " for " + s.Units.Bytes(t.budget)
	}
	spent := ""
	if d := time.Since(t.since); d >= time.Second {
		spent = ", " + elapsed(d)
	}
	ranks := ""
	if len(n.Ranks) > 1 {
		ranks = fmt.Sprintf(" in %d of %d ranks", n.CountOn(), len(n.Ranks))
	}
	state, short := "on"+ranks+" for "+timeline.Counted(n.Steps, "step"), "on"+ranks
	switch {
	case t.ended && t.err != nil:
		why := strings.TrimPrefix(t.err.Error(), name+": ")
		return []string{fmt.Sprintf("%s%s is off: %s", name, budget, why), fmt.Sprintf("%s is off: %s", name, why)}
	case t.ended && n.Phase != live.On:
		return []string{name + " was stopped before it was on"}
	case t.ended:
		state, short = "off again after "+timeline.Counted(n.Steps, "step"), "off again"
	case t.ending:
		return []string{"taking " + name + " away" + spent}
	case n.Phase != live.On:
		return []string{name + budget + " · " + t.doing() + spent, name + " · " + t.doing()}
	}
	memory := "peak not measured"
	if n.Peak > 0 {
		unit, size := replay.FootprintColumn(s.Units, []int64{n.PeakBefore, n.Peak, n.Predicted})
		plain := func(b int64) string { return strings.TrimSpace(size(b)) }
		memory = fmt.Sprintf("%s → %s %s", plain(n.PeakBefore), plain(n.Peak), unit)
		if n.Predicted > 0 {
			memory += fmt.Sprintf(" (predicted %s)", plain(n.Predicted))
		}
		if n.Highest != "" {
			memory = n.Highest + " " + memory
		}
	}
	over, predicted := replay.Percent(replay.Off(t.first, n.Before)), replay.Percent(replay.Off(n.PredictedStep, n.Before))
	from := span(n.Before, t.first) + ", " + over
	if n.Before == 0 { // it does not fit without a plan: there is nothing to compare with
		from, over, predicted = timeline.Duration(t.first), timeline.Duration(t.first), timeline.Duration(n.Added)+" of it the plan's"
	}
	lines := []string{
		fmt.Sprintf("%s%s %s · %s · step %s (predicted %s)", name, budget, state, memory, from, predicted),
		fmt.Sprintf("%s %s · %s · step %s (predicted %s)", name, state, memory, over, predicted),
		fmt.Sprintf("%s %s · %s · step %s (predicted %s)", name, short, memory, over, predicted),
		fmt.Sprintf("%s %s · %s · step %s (%s)", name, short, memory, over, predicted),
		fmt.Sprintf("%s %s · step %s", name, short, over),
	}
	more := ""
	if math.Abs(replay.Off(n.Step, t.first)) > drift {
		more += " · now " + timeline.Duration(n.Step)
	}
	if n.Missed > 0 {
		more += fmt.Sprintf(" · %s stayed that were to leave", timeline.Counted(n.Missed, "tensor"))
	}
	switch {
	case n.Differ > 0:
		more += fmt.Sprintf(" · %s not the same to the bit", timeline.Counted(n.Differ, "tensor"))
	case n.Checked > 0:
		more += " · the same to the bit"
	}
	if more != "" {
		lines = append([]string{lines[0] + more}, lines...)
	}
	return lines
}

// drift is the share by which steps may come to differ from those right behind the switch without a word: it
// is not the plan's doing.
const drift = 0.1

// span prints two durations as a change, with one unit where they share it: "1.50 → 1.51 s".
func span(from, to int64) string {
	a, b := timeline.Duration(from), timeline.Duration(to)
	if number, unit, ok := strings.Cut(a, " "); ok && strings.HasSuffix(b, " "+unit) {
		a = number
	}
	return a + " → " + b
}

// text is the longest line.
func (v toggler) text(s *leaf.State) string {
	if lines := v.lines(s); len(lines) > 0 {
		return "live: " + lines[0]
	}
	return ""
}

// draw writes the line and returns what is left of the room.
func (v toggler) draw(s *leaf.State, c *canvas.Canvas, body canvas.Rect) canvas.Rect {
	lines := v.lines(s)
	if len(lines) == 0 || body.H < 4 {
		return body
	}
	th, t := s.Theme, v.trial
	at, rest := body.CutTop(1)
	lead, style := th.Accent.Strong(), th.Text
	switch {
	case v.elsewhere() != "":
		lead = th.Good.Strong()
	case t.ended && t.err != nil:
		lead, style = th.Bad, th.Bad
	case t.ended:
		lead, style = th.Dim, th.Dim
	case t.last.Phase == live.On && !t.ending:
		lead, style = th.Good.Strong(), th.Strong
	}
	n := c.TextMax(at.X, at.Y, at.W, lead, "live: ")
	line := lines[len(lines)-1]
	for _, l := range lines {
		if canvas.Width(l) <= at.W-n {
			line = l
			break
		}
	}
	c.TextMax(at.X+n, at.Y, at.W-n, style, line)
	rest = v.drawRanks(s, c, rest, n)
	if rest.H > 20 {
		_, rest = rest.CutTop(1)
	}
	return rest
}

// Ranks are listed below the line where the room has so many rows beside those that they take; further ones
// are counted.
const (
	rowsBesideRanks = 24
	mostRanks       = 8
)

// drawRanks writes a row for each rank, in words what the line says of all of them, and returns what is left
// of the room.
func (v toggler) drawRanks(s *leaf.State, c *canvas.Canvas, body canvas.Rect, indent int) canvas.Rect {
	if v.now() == nil {
		return body
	}
	ranks := v.trial.last.Ranks
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

// stands reports whether a row stands for what a training does with its manager: it runs what eager PyTorch
// can.
func (v toggler) stands(r *row) bool {
	if r.of == plan.TorchEager {
		return true
	}
	for i := range v.rows {
		if v.rows[i].manager == r.manager && v.rows[i].of == plan.TorchEager {
			return false
		}
	}
	return true
}

// mark is what stands behind the switch of the row whose plan is live, "" in all others.
func (v toggler) mark(r *row) string {
	t := v.now()
	switch {
	case t == nil || t.manager != r.manager || !v.stands(r):
		return ""
	case t.last.Phase == live.On:
		return "▶"
	}
	return "▸"
}

// cell is the switch with the mark.
func (v toggler) cell(s *leaf.State, r *row, dot table.Cell) table.Cell {
	if mark := v.mark(r); mark != "" {
		dot.Text, dot.Style = dot.Text+mark, s.Theme.Good.Strong()
	}
	return dot
}

// status says of the row whose plan is live what the line has no room for.
func (v toggler) status(s *leaf.State, r *row) string {
	t := v.trial
	if t == nil || t.manager != r.manager || !v.stands(r) || t.ending {
		return ""
	}
	n := &t.last
	switch {
	case t.ended && t.err != nil:
		return "live: " + t.err.Error()
	case t.ended || n.Phase != live.On:
		return ""
	}
	text := "live: "
	if len(n.Ranks) > 1 {
		for i := range n.Ranks {
			text += n.Ranks[i].Line(s.Units) + "; "
		}
	}
	text += fmt.Sprintf("the last steps took %s, 95 of 100 within %s", timeline.Duration(n.Step), timeline.Duration(n.P95))
	if n.Out > 0 {
		text += fmt.Sprintf(", %s out and %s in with each", s.Units.Bytes(n.Out), s.Units.Bytes(n.In))
	}
	if n.Again > 0 {
		text += fmt.Sprintf(", %s of ops run again", timeline.Duration(n.Again))
	}
	if n.Checked > 0 {
		text += fmt.Sprintf("; of %s compared when they came back %d were not the same to the bit", timeline.Counted(n.Checked, "tensor"), n.Differ)
	}
	if n.Missed > 0 {
		text += fmt.Sprintf("; %s stayed that were to leave: the step does not run as it was described", timeline.Counted(n.Missed, "tensor"))
	}
	return text
}
