package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Problem: alert the user to something that went wrong with the job while they look elsewhere, once, without
// false alarms and without flicker.
//
// Approach: problems are derived from the last steps at every look, so this needs no state. News is what the
// user has not seen yet, by kind and process. It stays until it has been seen, even if the cause comes and
// goes at a threshold. A kind that was seen is news again only for a later step and if it is worse: a job
// that is slow at every checkpoint alerts once. Rejected: alerts that expire, which a user who was away never
// sees, and an alert for every step, which nobody reads.

// AlertKind is the kind of an alert; the worst is first.
type AlertKind uint8

// The kinds of alerts.
const (
	// OutOfMemory: the allocator gave up; Alert.Size is how often.
	OutOfMemory AlertKind = iota
	// Died: the process ended, and not well.
	Died
	// Leak: memory grows by Alert.Size bytes a step.
	Leak
	// Retry: the allocator released its cache and retried, Alert.Size times.
	Retry
	// Spike: a step held Alert.Size bytes, more than the others.
	Spike
	// Slow: a step took Alert.Size nanoseconds.
	Slow
	// Over: the process ended normally.
	Over
)

// Alert is something that is wrong with a process of a job.
type Alert struct {
	Kind AlertKind
	// Step is the newest step that it is about; Size is by how much, see the kinds; Usual is the same for
	// other steps if known, else 0.
	Step, Size, Usual int64
	// Word says how a process ended.
	Word string
}

// text describes the alert in a few words.
func (a Alert) text(u timeline.Units) string {
	switch a.Kind {
	case OutOfMemory:
		return "the allocator ran out of memory " + times(a.Size)
	case Died, Over:
		return strings.TrimSuffix("ended: "+a.Word, ": ")
	case Leak:
		return fmt.Sprintf("memory grows by %s a step: a leak", u.Bytes(a.Size))
	case Retry:
		return "the allocator released its cache and retried " + times(a.Size)
	case Spike:
		return fmt.Sprintf("step %s stands out with %s", leaf.Count(a.Step), u.Bytes(a.Size))
	}
	return fmt.Sprintf("step %s took %s, %s is usual", leaf.Count(a.Step), timeline.Duration(a.Size),
		timeline.Duration(a.Usual))
}

// brief describes the alert in a part of the status line, which also says what the row under the cursor is.
func (a Alert) brief(u timeline.Units) string {
	switch a.Kind {
	case OutOfMemory:
		return "ran out of memory " + times(a.Size)
	case Leak:
		return fmt.Sprintf("leak: +%s a step", u.Bytes(a.Size))
	case Retry:
		return "allocator retried " + times(a.Size)
	}
	return a.text(u)
}

// AlertsOf returns what is wrong with the last of steps, worst first; r is their report. excused reports by
// index which steps may be slow without an alert: the first ones of a job, and those captured whole. nil
// excuses none.
func AlertsOf(steps []Step, r *steps.Report, excused func(step int64) bool) []Alert {
	var list []Alert
	oom, retry := Alert{Kind: OutOfMemory}, Alert{Kind: Retry}
	for i := max(r.From, 0); i < len(steps); i++ {
		for _, c := range []struct {
			a *Alert
			n int64
		}{{&oom, steps[i].OOMs}, {&retry, steps[i].Retries}} {
			if c.n > 0 {
				c.a.Size, c.a.Step = c.a.Size+c.n, steps[i].Index
			}
		}
	}
	if oom.Size > 0 {
		list = append(list, oom)
	}
	if n := len(steps); r.Trend.Leaking && n > 0 {
		list = append(list, Alert{Kind: Leak, Step: steps[n-1].Index, Size: int64(r.Trend.Slope)})
	}
	if retry.Size > 0 {
		list = append(list, retry)
	}
	// A step in which gmemtop tried parts of a plan stands out by what was tried, which is no news.
	own := func(i int) bool { return i >= len(steps) || steps[i].Trial }
	for _, i := range slices.Backward(r.Spikes) {
		if !own(i) {
			list = append(list, Alert{Kind: Spike, Step: steps[i].Index, Size: steps[i].Bytes.Or(0),
				Usual: r.Bytes})
			break
		}
	}
	for _, i := range slices.Backward(r.Slow) {
		if !own(i) && (excused == nil || !excused(steps[i].Index)) {
			list = append(list, Alert{Kind: Slow, Step: steps[i].Index, Size: steps[i].Duration.Or(0),
				Usual: r.Duration})
			break
		}
	}
	return list
}

// about is an alert of a process.
type about struct {
	rank int // its ID, 0 in a job of one
	name string
	Alert
}

// worse reports whether an alert is worse than the seen one of its kind.
func (a *about) worse(seen Alert) bool {
	switch a.Kind {
	case Died, Over:
		return false
	case Leak:
		return a.Size >= 2*seen.Size
	case Spike, Slow:
		return a.Step > seen.Step && a.Size > seen.Size+seen.Size/10
	}
	return a.Step > seen.Step
}

// aboutWhat names an alert's kind and process.
type aboutWhat struct {
	rank int
	kind AlertKind
}

// news are the alerts that the user has not seen.
type news struct {
	seen   map[aboutWhat]Alert
	unseen []about // at most one of a kind and process, the worst first
}

// take adds alerts that are news.
func (n *news) take(now []about) {
	for _, a := range now {
		if seen, ok := n.seen[aboutWhat{a.rank, a.Kind}]; ok && !a.worse(seen) {
			continue
		}
		i := slices.IndexFunc(n.unseen, func(b about) bool { return b.rank == a.rank && b.Kind == a.Kind })
		switch {
		case i < 0:
			n.unseen = append(n.unseen, a)
		case a.worse(n.unseen[i].Alert):
			n.unseen[i] = a
		}
	}
	slices.SortStableFunc(n.unseen, func(a, b about) int { return int(a.Kind) - int(b.Kind) })
}

// see marks everything as seen.
func (n *news) see() {
	if n.seen == nil {
		n.seen = map[aboutWhat]Alert{}
	}
	for _, a := range n.unseen {
		n.seen[aboutWhat{a.rank, a.Kind}] = a.Alert
	}
	n.unseen = nil
}

// alertsNow are the alerts of the whole job.
func (l *Look) alertsNow() []about {
	var list []about
	add := func(id int, name string, alerts []Alert) {
		for _, a := range alerts {
			list = append(list, about{id, name, a})
		}
	}
	if len(l.Ranks) == 0 {
		alerts := l.Alerts
		if l.State == Ended {
			alerts = append(slices.Clip(alerts), ending(l.Failed, l.Word))
		}
		add(0, "", alerts)
		return list
	}
	for i := range l.Ranks {
		r := &l.Ranks[i]
		alerts := r.Alerts
		if r.State == Ended {
			alerts = append(slices.Clip(alerts), ending(r.Failed, r.Word))
		}
		add(r.ID+1, r.Name(), alerts)
	}
	return list
}

func ending(failed bool, word string) Alert {
	if failed {
		return Alert{Kind: Died, Word: word}
	}
	return Alert{Kind: Over, Word: word}
}

// Alert returns what went wrong with the job since its view was last in front, "" for nothing.
func (v *View) Alert(u timeline.Units) string {
	if len(v.news.unseen) == 0 {
		return ""
	}
	a := v.news.unseen[0]
	text := a.brief(u)
	switch name := a.name; {
	case a.Kind == Died || a.Kind == Over:
		text = cmp.Or(name, "the job") + " " + text
	case name != "":
		text = name + ": " + text
	}
	if n := len(v.news.unseen) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// Grave reports whether Alert says more than that the job is over.
func (v *View) Grave() bool { return len(v.news.unseen) > 0 && v.news.unseen[0].Kind != Over }

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return leaf.Count(n) + " times"
}
