package live

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces/stats"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// chosen returns the process that the rest of a look is about; ok is false for a job of one.
func (l *Look) chosen() (Rank, bool) {
	for i := range l.Ranks {
		if l.Ranks[i].ID == l.Chosen {
			return l.Ranks[i], true
		}
	}
	return Rank{}, false
}

// Among completes a process's name: "of 4" after a rank, "(one of 2)" after a number.
func (l *Look) Among() string {
	for i := range l.Ranks {
		if !l.Ranks[i].Rank.IsKnown() {
			return fmt.Sprintf("(one of %d)", len(l.Ranks))
		}
	}
	return fmt.Sprintf("of %d", l.World.Or(int64(len(l.Ranks))))
}

// WindowName names a window by its steps: "step 190", "steps 2–3".
func (l *Look) WindowName(w *Window) string {
	if w.Last > w.First {
		return l.rowName() + "s " + leaf.Count(w.First) + "–" + leaf.Count(w.Last)
	}
	return l.rowName() + " " + leaf.Count(w.First)
}

// rowName is the name of a row.
func (l *Look) rowName() string { return cmp.Or(l.Row, "step") }

// Usual returns how long a step takes as it is, without a capture or a plan: the median of those that the
// report is about, in nanoseconds; 0 if there is none.
func (l *Look) Usual() int64 { return l.usual(&Step{}) }

// usual returns how long the steps take that ran as one did, with a plan or without, in nanoseconds; 0 if
// there is none. Captured steps take longer, and do not count.
func (l *Look) usual(like *Step) int64 {
	var times []int64
	for _, s := range l.Steps[min(max(l.Report.From, 0), len(l.Steps)):] {
		_, captured := l.windowOf(s.Index)
		if d, ok := s.Duration.Value(); ok && !captured && s.UnderPlan == like.UnderPlan &&
			s.Trial == like.Trial {
			times = append(times, d)
		}
	}
	return stats.Median(times)
}

// seen returns how many steps were seen, including those that are only summed up.
func (l *Look) seen() int64 {
	n := int64(len(l.Steps))
	for i := range l.Rolled {
		n += l.Rolled[i].Steps
	}
	return n
}

// step returns the step in a row; the newest is first.
func (l *Look) step(row int) (Step, bool) {
	n := len(l.Steps)
	if row < 0 || row >= n {
		return Step{}, false
	}
	return l.Steps[n-1-row], true
}

// windowOf returns the window that holds a step.
func (l *Look) windowOf(step int64) (Window, bool) {
	for i := len(l.Windows) - 1; i >= 0; i-- {
		if w := l.Windows[i]; w.First <= step && step <= w.Last {
			return w, true
		}
	}
	return Window{}, false
}

// of names the process that orders go to, if there are several.
func (l *Look) of() string {
	if r, ok := l.chosen(); ok {
		return " of " + r.Name()
	}
	return ""
}

// depth describes how steps are captured.
func (l *Look) depth() string {
	for _, d := range l.Capture.Depths {
		if d.How == l.Capture.Depth {
			return d.Name
		}
	}
	return "whole"
}

// takesOrders reports whether the job can be asked to capture something.
func (l *Look) takesOrders() bool {
	c := &l.Capture
	return c.Connected && c.No == "" && !c.All
}

// silent says why there is no output to show.
func (l *Look) silent() string {
	const what = "O shows a job's output; "
	switch {
	case l.Prints && l.State == Ended:
		return what + "this job printed nothing"
	case l.Prints:
		return what + "this job has printed nothing yet"
	case l.Capture.Along > 0: // the viewer that was there first may have started the job, or not
		return what + "none has come from this job"
	}
	return what + "gmemtop did not start this one, so its output goes elsewhere"
}

// sentence answers what a user who watches a job wants to know: is it well, how much memory does it take,
// does it grow?
func (l *Look) sentence(u timeline.Units) string {
	name := cmp.Or(l.Title, "the job")
	if l.State == Waiting || len(l.Steps) == 0 {
		return l.noSteps(name, u)
	}
	return l.lastStep(name) + l.memory(u) + l.health(u) + "."
}

// noSteps is the sentence of a job before its first step, or when all its steps are only summed up.
func (l *Look) noSteps(name string, u timeline.Units) string {
	if seen := l.seen(); l.State == Ended && seen > 0 {
		var most int64
		for i := range l.Rolled {
			most = max(most, l.Rolled[i].Bytes.Or(0))
		}
		return fmt.Sprintf("%s ended: %s. It took %s steps, which are too old to be kept one by one; they "+
			"held at most %s.", name, l.Word, leaf.Count(seen), u.Bytes(most))
	}
	switch {
	case l.Detached:
		return fmt.Sprintf("%s is no longer watched, and still runs. No training step was seen.", name)
	case l.State == Waiting:
		return "Waiting " + strings.TrimPrefix(l.Word, "waiting ") + "."
	case l.State == Ended:
		return fmt.Sprintf("%s ended: %s, before any training step was seen.", name, l.Word)
	}
	return fmt.Sprintf("%s is running: no %s has ended yet.", name, cmp.Or(l.Row, "training step"))
}

// lastStep says whether the job runs, which step was its last, and how long a step takes.
func (l *Look) lastStep(name string) string {
	verb := "is running"
	switch {
	case l.Detached:
		verb = "is no longer watched, and still runs"
	case l.State == Ended:
		verb = "ended (" + l.Word + ")"
	}
	if of, ok := l.chosen(); ok {
		verb += ", " + of.Name() + " " + l.Among()
	}
	last := l.Steps[len(l.Steps)-1]
	row := l.rowName() + " " + leaf.Count(last.Index)
	if l.Since != "" {
		row += " " + l.Since
	}
	text := name + " " + verb + ": " + row
	if l.State != Ended && l.Silence != "" {
		text = fmt.Sprintf("%s %s, but there was %s; %s", name, verb, l.Silence, row)
	}
	text += last.plan()
	if d := cmp.Or(l.usual(&last), l.Report.Duration); d > 0 {
		text += ", " + timeline.Duration(d) + " a " + l.rowName()
	}
	return text
}

// plan returns what to say of a step's plan after its number, "" for none.
func (s *Step) plan() string {
	switch {
	case s.UnderPlan:
		return " under a plan"
	case s.Trial:
		return " while a plan is being made"
	}
	return ""
}

// memory says what the last step took, and the largest step.
func (l *Look) memory(u timeline.Units) string {
	top := l.Report.Top
	if top < 0 || top >= len(l.Steps) {
		return ""
	}
	most, now := u.Bytes(l.Steps[top].Bytes.Or(0)), int64(0)
	for i := len(l.Steps) - 1; i >= top; i-- { // not every step has the figure
		if v, ok := l.Steps[i].Bytes.Value(); ok {
			now = v
			break
		}
	}
	text := fmt.Sprintf(", %s %s", l.Figure, u.Bytes(now))
	if most != u.Bytes(now) {
		text += fmt.Sprintf(", at most %s in %s %s", most, l.rowName(), leaf.Count(l.Steps[top].Index))
	}
	return text
}

// settled is how many steps must have the figure before a job that does not grow is called steady.
const settled = 8

// health says what is wrong, or that nothing is.
func (l *Look) health(u timeline.Units) (text string) {
	if peers := l.peersSentence(u); peers != "" {
		text += "; " + peers
	}
	grave, slow := l.alerts(u)
	switch {
	case len(grave) > 0:
		text += "; " + strings.Join(grave, "; ")
	case l.unsettled: // said below
	case l.Report.Trend.Points >= settled && len(l.Report.Spikes) > 0:
		text += "; otherwise steady, no leak"
	case l.Report.Trend.Points >= settled:
		text += "; steady, no leak"
	}
	if l.unsettled {
		text += "; memory grew in some of the last steps, too early to call it a leak"
	}
	if slow != "" {
		text += "; " + slow
	}
	return text
}

// alerts returns what is wrong with the last steps, for the sentence: what contradicts calling the job
// steady, and a recent slow step.
func (l *Look) alerts(u timeline.Units) (grave []string, slow string) {
	r := &l.Report
	for _, a := range l.Alerts {
		switch n := len(r.Spikes); {
		case a.Kind == Spike && n > 0 && r.Spikes[n-1] == r.Top: // the sentence mentions the top anyway
		case a.Kind != Slow:
			grave = append(grave, a.text(u))
		case a.Step > l.Steps[len(l.Steps)-1].Index-lately:
			slow = a.text(u)
		}
	}
	if l.Dropped > 0 {
		grave = append(grave, leaf.Count(l.Dropped)+" steps were lost on the way here")
	}
	return grave, slow
}

// lately is for how many steps the sentence mentions a slow one.
const lately = 64

// pair reports whether there are only two processes to compare: then each differs from the other.
func (l *Look) pair() bool {
	n := 0
	for i := range l.Ranks {
		if l.Ranks[i].Typical.Duration.IsKnown() {
			n++
		}
	}
	return n <= 2
}

// unlike says how a process differs from the others, or how it ended; bad means that this deserves a look.
func (l *Look) unlike(i int, u timeline.Units) (text string, bad bool) {
	r := &l.Ranks[i]
	lost := ""
	if r.Lost > 0 {
		lost = timeline.Counted(r.Lost, "step") + " lost"
	}
	switch {
	case r.State == Ended && lost != "":
		return strings.TrimSuffix("ended: "+r.Word, ": ") + ", " + lost, r.Failed
	case r.State == Ended:
		return strings.TrimSuffix("ended: "+r.Word, ": "), r.Failed
	case r.Silent != "" && lost != "":
		return r.Silent + ", " + lost, true
	case r.Silent != "":
		return r.Silent, true
	}
	var parts []string
	if lost != "" {
		parts = append(parts, lost)
	}
	for _, a := range r.Alerts {
		if a.Kind == OutOfMemory || a.Kind == Leak {
			parts = append(parts, a.text(u))
			bad = true
		}
	}
	for _, d := range l.Peers.Of(i) {
		parts = append(parts, d.Text(u))
	}
	return strings.Join(parts, ", "), bad
}

// peersSentence says which process the others wait for, or which one differs; "" if none does.
func (l *Look) peersSentence(u timeline.Units) string {
	if len(l.Ranks) == 0 {
		return ""
	}
	if i := l.Peers.Slow; i >= 0 && i < len(l.Ranks) {
		name := l.Ranks[i].Name()
		own, others := timeline.Duration(l.Peers.Own), timeline.Duration(l.Peers.OthersOwn)
		if !l.Ranks[i].Typical.Forward.IsKnown() {
			return fmt.Sprintf("%s is the slowest, %s a step, the others %s", name, own, others)
		}
		text := name + " is the slowest, " + own + " in forward and optimizer, the others " + others
		if l.Peers.Waits {
			text += " and longer in backward"
		}
		return text
	}
	if l.pair() {
		return ""
	}
	for _, d := range l.Peers.Differences {
		if d.Figure == runs.PeerBytes && d.Value > d.Others && d.Peer < len(l.Ranks) &&
			l.Ranks[d.Peer].State != Ended {
			return l.Ranks[d.Peer].Name() + " holds " + u.Bytes(d.Value) + ", the others " + u.Bytes(d.Others)
		}
	}
	return ""
}
