package managers

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
)

// trial is a plan that a training was asked to run with, and its outcome.
type trial struct {
	job[live.News]
	manager int
	name    string
	budget  int64
	setup   *setup // what the table planned for when it began
	last    live.News
	// the median time of the first steps after the switch, in nanoseconds, which is compared with that of the
	// steps before it, because a machine's speed drifts
	first  int64
	within int64     // what 95 of 100 of those steps stayed within
	again  bool      // the training's steps changed: it is planned for again
	turned bool      // they changed at some time
	since  time.Time // when it began what it is doing now
	ending bool      // the user took it back
	err    error
}

// hear takes one piece of news.
func (t *trial) hear(n live.News) {
	t.again = t.again && !n.Stage.Carried() || t.last.Stage.Carried() && !n.Stage.Carried()
	t.turned = t.turned || t.again
	if n.Stage.Carried() && !t.last.Stage.Carried() {
		t.first, t.within = n.Step, n.P95
	}
	if n.Stage != t.last.Stage {
		t.since = time.Now()
	}
	t.last = n
}

// doing says what a trial is doing before the plan is on, and whether that slows the training: "4 of 5,
// timing steps with the plan". The longest text comes first.
func (t *trial) doing() []string {
	var texts []string
	for _, text := range t.last.Doing() {
		if at, of, ok := t.last.Stage.Trial(); ok {
			text = fmt.Sprintf("%d of %d, %s", at, of, text)
		}
		if t.again {
			text += ", again because the steps changed"
		}
		texts = append(texts, text)
	}
	return texts
}

func (t *trial) lines(u timeline.Units, inForce int64) []string {
	name, n := t.name, &t.last
	budget := ""
	if t.budget != inForce {
		budget = " for " + u.Bytes(t.budget)
	}
	spent := ""
	if d := time.Since(t.since); d >= time.Second {
		spent = ", " + elapsed(d) + " so far"
	}
	ranks := ""
	if len(n.Ranks) > 1 {
		ranks = fmt.Sprintf(" in %d of %d ranks", n.CountOn(), len(n.Ranks))
	}
	state, short := "on"+ranks+" for "+timeline.Counted(n.Steps, "step"), "on"+ranks
	switch {
	case t.ended && t.err != nil:
		why := strings.TrimPrefix(t.err.Error(), name+": ")
		return []string{fmt.Sprintf("%s%s is off: %s", name, budget, why),
			fmt.Sprintf("%s is off: %s", name, why)}
	case t.ended && n.Stage != live.On:
		return []string{name + " was stopped before it was on"}
	case t.ended:
		state, short = "off again after "+timeline.Counted(n.Steps, "step"), "off again"
	case t.ending:
		return []string{"turning " + name + " off" + spent}
	case n.Stage != live.On:
		var lines []string
		for _, doing := range t.doing() {
			brief, _, _ := strings.Cut(doing, ", about ")
			lines = append(lines, name+budget+" · "+doing+spent, name+" · "+doing+spent, name+" · "+brief)
		}
		return append(lines, name+" · "+t.last.Stage.String())
	}
	memory := t.memory(u)
	brief, _, _ := strings.Cut(memory, " (predicted ")
	over, predicted := replay.Percent(replay.Off(t.first, n.Before)),
		replay.Percent(replay.Off(n.PredictedStep, n.Before))
	from := span(n.Before, t.first) + ", " + over
	if n.Before == 0 { // it does not fit without a plan: there is nothing to compare with
		from, over, predicted = timeline.Duration(t.first), timeline.Duration(t.first),
			timeline.Duration(n.Added)+" of it the plan's"
	}
	lines := []string{
		fmt.Sprintf("%s%s %s · %s · step %s (predicted %s)", name, budget, state, memory, from, predicted),
		fmt.Sprintf("%s %s · %s · step %s (predicted %s)", name, state, memory, over, predicted),
		fmt.Sprintf("%s %s · %s · step %s (predicted %s)", name, short, memory, over, predicted),
		fmt.Sprintf("%s %s · %s · step %s (predicted %s)", name, short, brief, over, predicted),
		fmt.Sprintf("%s %s · step %s", name, short, over),
	}
	if more := t.more(); more != "" {
		lines = append([]string{lines[0] + more}, lines...)
	}
	return lines
}

// memory returns the plan's effect in bytes: "140 → 106 MiB (predicted 106)".
func (t *trial) memory(u timeline.Units) string {
	n := &t.last
	if n.Peak <= 0 {
		return "peak not measured"
	}
	unit, size := replay.FootprintColumn(u, []int64{n.PeakBefore, n.Peak, n.Predicted})
	plain := func(b int64) string { return strings.TrimSpace(size(b)) }
	memory := fmt.Sprintf("%s → %s %s", plain(n.PeakBefore), plain(n.Peak), unit)
	if n.Predicted > 0 {
		memory += fmt.Sprintf(" (predicted %s)", plain(n.Predicted))
	}
	if n.Highest != "" {
		memory = n.Highest + " " + memory
	}
	return memory
}

// more says how the result differs from the prediction, "" if it does not.
func (t *trial) more() string {
	n := &t.last
	more := ""
	if math.Abs(replay.Off(n.Step, t.first)) > drift {
		more += " · now " + timeline.Duration(n.Step)
	}
	if n.Missed > 0 {
		more += fmt.Sprintf(" · %s stayed against the plan", timeline.Counted(n.Missed, "tensor"))
	}
	if n.Larger > 0 {
		more += fmt.Sprintf(" · %s", timeline.Counted(n.Larger, "larger step"))
	}
	switch {
	case n.Differ > 0:
		more += fmt.Sprintf(" · %s not bit-identical", timeline.Counted(n.Differ, "tensor"))
	case n.Checked > 0:
		more += " · bit-identical"
	}
	return more
}

// span prints two durations as a change, with one unit if they share it: "1.50 → 1.51 s".
func span(from, to int64) string {
	a, b := timeline.Duration(from), timeline.Duration(to)
	if number, unit, ok := strings.Cut(a, " "); ok && strings.HasSuffix(b, " "+unit) {
		a = number
	}
	return a + " → " + b
}
