package feed

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/live"
)

// addSteps appends new steps.
func (f *Process) addSteps(v capture.View) {
	l := &f.look
	from, _ := slices.BinarySearchFunc(v.Steps, f.seen+1, func(s capture.Step, at int64) int {
		return int(s.Index - at)
	})
	for _, s := range v.Steps[from:] {
		l.Steps = append(l.Steps, f.step(s))
		f.seen = s.Index
		f.allocator = f.allocator || s.Allocated.IsKnown()
	}
	if len(v.Steps) > 0 && l.Steps[0].Index < v.Steps[0].Index { // what the history sums up from now on
		gone, _ := slices.BinarySearchFunc(l.Steps, v.Steps[0].Index,
			func(s live.Step, at int64) int { return cmp.Compare(s.Index, at) })
		l.Steps = slices.Clone(l.Steps[gone:])
	}
	l.Rolled = f.rolled(v)
	// Not every step has totals, least of all the last one; steps that have them determine which figure to
	// show.
	l.Figure = "resident memory"
	if f.allocator {
		l.Figure = "allocated memory"
	}
	last := l.Steps[max(len(l.Steps)-steps.Watched, 0):]
	held, took := make([]maybe.Int, len(last)), make([]maybe.Int, len(last))
	var cost, time int64
	for i := range last {
		held[i], took[i] = last[i].Bytes, last[i].Duration
		c, known := last[i].Cost.Value()
		if d := last[i].Duration.Or(0); known && d > 0 {
			cost, time = cost+c, time+d
		}
	}
	noise := int64(0)
	if n := len(v.Steps); n > 0 && !f.allocator {
		noise = max(residentNoise, v.Steps[n-1].RSS.Or(0)/100)
	}
	l.Report = steps.Watch(held, took, noise, planSince(last))
	amongTheirKind(&l.Report, last)
	excused := f.excused(v)
	base := len(l.Steps) - len(last)
	l.Report.From += base
	if l.Report.Top >= 0 {
		l.Report.Top += base
	}
	for _, list := range [][]int{l.Report.Spikes, l.Report.Slow} {
		for i := range list {
			list[i] += base
		}
	}
	lately := l.Steps[max(len(l.Steps)-runs.PeerSteps, 0):]
	peers := make([]runs.Peer, len(lately))
	for i, s := range lately {
		peers[i] = runs.Peer{Duration: s.Duration, Forward: s.Forward, Backward: s.Backward,
			Optimizer: s.Optimizer, Bytes: s.Bytes}
	}
	f.recent = runs.TypicalPeer(peers)
	l.Alerts = live.AlertsOf(l.Steps, &l.Report, excused)
	l.Capture.Share, l.Capture.Measured = 0, time > 0
	if time > 0 {
		l.Capture.Share = float64(cost) / float64(time)
	}
}

// rolled converts the spans of the steps before those on the screen.
func (f *Process) rolled(v capture.View) []live.Span {
	n := len(v.Rolled)
	if len(f.look.Steps) > 0 {
		n = sort.Search(n, func(i int) bool { return v.Rolled[i].Last >= f.look.Steps[0].Index })
	}
	if n == len(f.look.Rolled) && (n == 0 || v.Rolled[n-1].First == f.look.Rolled[n-1].First &&
		v.Rolled[n-1].Steps == f.look.Rolled[n-1].Steps) {
		return f.look.Rolled
	}
	list := make([]live.Span, n)
	for i := range list {
		p := &v.Rolled[i]
		list[i] = live.Span{First: p.First, Steps: p.Steps, Bytes: p.Held.Top()}
		if !f.allocator {
			list[i].Bytes, list[i].Tensors = p.RSS.Top(), p.Held.Top()
		}
	}
	return list
}

// amongTheirKind takes steps out of a report that stand out only because a plan came or went: those without
// one hold more than those under it, and those under it may take longer. The report is of the last steps.
func amongTheirKind(r *steps.Report, last []live.Step) {
	planned := func(s live.Step) bool { return s.UnderPlan || s.Trial }
	unplanned := func(s live.Step) bool { return !planned(s) }
	if !slices.ContainsFunc(last, planned) || !slices.ContainsFunc(last, unplanned) {
		return
	}
	r.Spikes = slices.DeleteFunc(r.Spikes, func(i int) bool { return unplanned(last[i]) })
	r.Slow = slices.DeleteFunc(r.Slow, func(i int) bool { return planned(last[i]) })
}

// planSince returns the index of the first step since which the plan has not changed. The memory that a plan
// saves comes back when the plan goes, and steps that try parts of a plan hold other tensors: neither is a
// leak.
func planSince(last []live.Step) int {
	n := len(last)
	for n > 1 && last[n-2].Plan == last[len(last)-1].Plan {
		n--
	}
	return max(n-1, 0)
}

// markPlans marks each window in which a plan was carried out. A window may arrive before its last step does.
func (f *Process) markPlans() {
	l := &f.look
	l.Windows = slices.Clone(l.Windows) // earlier looks share the slice
	for i := range l.Windows {
		w := &l.Windows[i]
		first, _ := slices.BinarySearchFunc(l.Steps, w.First,
			func(s live.Step, at int64) int { return cmp.Compare(s.Index, at) })
		for _, s := range l.Steps[first:] {
			w.UnderPlan = w.UnderPlan || s.Index <= w.Last && (s.UnderPlan || s.Trial)
			if s.Index >= w.Last {
				break
			}
		}
	}
}

// excused reports which steps may be slow without an alert: the first ones, those captured whole and the one
// after (which packs up what was captured), and the newest ones, because it is not known yet whether they
// were captured.
func (f *Process) excused(v capture.View) func(step int64) bool {
	for _, w := range v.Windows {
		if n := len(f.spans); n == 0 || f.spans[n-1].last < w.Last+1 {
			f.spans = append(f.spans, span{w.First, w.Last + 1})
		}
	}
	settled := int64(math.MaxInt64)
	if n := len(v.Steps); n > 0 && !v.Ended {
		settled = v.Steps[n-1].End - int64(settling)
	}
	return func(step int64) bool {
		i, ok := slices.BinarySearchFunc(f.spans, step, func(s span, at int64) int {
			return cmp.Compare(s.last, at)
		})
		if ok || i < len(f.spans) && f.spans[i].first <= step || step < firstSlow {
			return true
		}
		i, ok = slices.BinarySearchFunc(v.Steps, step, func(s capture.Step, at int64) int {
			return cmp.Compare(s.Index, at)
		})
		return ok && v.Steps[i].End > settled
	}
}

// span is the steps [first, last].
type span struct{ first, last int64 }

// step converts a step for the screen. What the allocator holds at a step's end is the best figure available
// without disturbing the program's own peak statistics; without such an allocator, resident memory has to do.
func (f *Process) step(s capture.Step) live.Step {
	x := live.Step{
		Index: s.Index, Forward: s.Forward, Backward: s.Backward, Optimizer: s.Optimizer,
		Bytes: maybe.First(s.Allocated, s.RSS), Held: s.Allocated, Cost: maybe.Known(int64(s.Cost)),
	}
	if x.Reserved = s.Reserved; !s.Allocated.IsKnown() {
		x.Tensors, _ = s.Held()
		x.Reserved = maybe.Int{}
	}
	if s.Start > 0 && s.End > s.Start {
		x.Duration = maybe.Known(s.End - s.Start)
	}
	rise := func(figure maybe.Int, before *int64) int64 {
		now, ok := figure.Value()
		if !ok {
			return 0
		}
		n := max(now-*before, 0)
		*before = now
		return n
	}
	x.Plan = s.Carried.Plan
	x.UnderPlan, x.Trial = s.Carried.Plan > 0, s.Carried.Plan < 0
	x.Retries, x.OOMs = rise(s.Retries, &f.rises.retries), rise(s.OOMs, &f.rises.ooms)
	return x
}
