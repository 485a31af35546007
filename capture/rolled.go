package capture

import (
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A training may be watched for weeks. The newest steps are kept one by one; those before them are summed up
// in spans of some steps each. Once there are too many spans, each two neighbours become one: however long it
// takes, all of it is covered, in fewer and longer spans.
//
// Rejected: thinning out old steps (the step that was slow or held most would go); spans of equal times
// (a viewer that asks for a step finds it by its number).

const (
	// spanSteps is how many steps a span has at first.
	spanSteps = 64
	// maxSpans bounds their number, and so their memory: about half a MiB.
	maxSpans = 2048
)

// Range sums up one figure over the steps of a span.
type Range struct {
	// Least, Most and Sum are over the steps in which the figure was known, Known of them.
	Least, Most, Sum int64
	Known            int64
}

func (r *Range) add(x maybe.Int) {
	if v, ok := x.Value(); ok {
		r.merge(Range{Least: v, Most: v, Sum: v, Known: 1})
	}
}

func (r *Range) merge(o Range) {
	switch {
	case o.Known == 0:
		return
	case r.Known == 0:
		*r = o
		return
	}
	r.Least, r.Most = min(r.Least, o.Least), max(r.Most, o.Most)
	r.Sum, r.Known = r.Sum+o.Sum, r.Known+o.Known
}

// Mean returns the mean of the figure, unknown if it was known in no step.
func (r Range) Mean() maybe.Int {
	if r.Known == 0 {
		return maybe.Int{}
	}
	return maybe.Known(r.Sum / r.Known)
}

// Top returns the most of the figure, unknown if it was known in no step.
func (r Range) Top() maybe.Int {
	if r.Known == 0 {
		return maybe.Int{}
	}
	return maybe.Known(r.Most)
}

// Span sums up consecutive steps that are not kept one by one any more.
type Span struct {
	// First and Last are the indices of the first and last step. Steps is how many there are: fewer than
	// these say if some were lost.
	First, Last, Steps int64
	// Start and End bound them, in nanoseconds of Unix time.
	Start, End int64
	// Time is the duration of a step, and Forward, Backward and Optimizer its parts, in nanoseconds.
	Time, Forward, Backward, Optimizer Range
	// Held is what [Step.Held] gives, PeakAllocated and RSS the figures of a step of those names, in bytes.
	Held, PeakAllocated, RSS Range
	// Cost is the time that watching took, in all.
	Cost time.Duration
	// Retries and OOMs are the allocator's counts at the end.
	Retries, OOMs maybe.Int
	// Skipped counts steps that the optimizer skipped, Planned those that ran under a plan, Missed and Differ
	// the tensors that stayed in memory or came back different.
	Skipped, Planned, Missed, Differ int64
}

func (p *Span) add(s *Step) {
	q := Span{First: s.Index, Last: s.Index, Steps: 1, Start: s.Start, End: s.End, Cost: s.Cost,
		Retries: s.Retries, OOMs: s.OOMs, Missed: s.Carried.Missed, Differ: s.Carried.Differ}
	held, _ := s.Held()
	q.Time.add(maybe.Known(s.End - s.Start))
	q.Forward.add(s.Forward)
	q.Backward.add(s.Backward)
	q.Optimizer.add(s.Optimizer)
	q.Held.add(held)
	q.PeakAllocated.add(s.PeakAllocated)
	q.RSS.add(s.RSS)
	if s.Skipped {
		q.Skipped = 1
	}
	if s.Carried.Plan != 0 {
		q.Planned = 1
	}
	p.merge(&q)
}

// merge adds the span that follows.
func (p *Span) merge(q *Span) {
	if p.Steps == 0 {
		*p = *q
		return
	}
	p.Last, p.End, p.Steps, p.Cost = q.Last, q.End, p.Steps+q.Steps, p.Cost+q.Cost
	for _, r := range []struct{ to, of *Range }{
		{&p.Time, &q.Time}, {&p.Forward, &q.Forward}, {&p.Backward, &q.Backward},
		{&p.Optimizer, &q.Optimizer}, {&p.Held, &q.Held}, {&p.PeakAllocated, &q.PeakAllocated},
		{&p.RSS, &q.RSS},
	} {
		r.to.merge(*r.of)
	}
	p.Retries, p.OOMs = maybe.First(q.Retries, p.Retries), maybe.First(q.OOMs, p.OOMs)
	p.Skipped, p.Planned = p.Skipped+q.Skipped, p.Planned+q.Planned
	p.Missed, p.Differ = p.Missed+q.Missed, p.Differ+q.Differ
}

// rolled returns spans with steps added behind them, in a slice of its own, of at most maxSpans spans. wide
// is how many steps a span has; the result says how many it has from now on.
func rolled(spans []Span, steps []Step, wide int) ([]Span, int) {
	spans = slices.Clone(spans)
	for i := range steps {
		if n := len(spans); n == 0 || spans[n-1].Steps >= int64(wide) {
			if n == maxSpans {
				spans, wide = halved(spans), 2*wide
			}
			spans = append(spans, Span{})
		}
		spans[len(spans)-1].add(&steps[i])
	}
	return spans, wide
}

// halved makes one span of each two.
func halved(spans []Span) []Span {
	out := make([]Span, 0, maxSpans)
	for pair := range slices.Chunk(spans, 2) {
		p := pair[0]
		for i := range pair[1:] {
			p.merge(&pair[1+i])
		}
		out = append(out, p)
	}
	return out
}

// Seen returns how many steps were seen in all.
func (v *View) Seen() int64 {
	n := int64(len(v.Steps))
	for i := range v.Rolled {
		n += v.Rolled[i].Steps
	}
	return n
}

// PeakAllocated returns the highest of the allocator's own peaks of all steps, unknown if none was seen.
func (v *View) PeakAllocated() maybe.Int {
	var most maybe.Int
	for i := range v.Rolled {
		most = maybe.Max(most, v.Rolled[i].PeakAllocated.Top())
	}
	for i := range v.Steps {
		most = maybe.Max(most, v.Steps[i].PeakAllocated)
	}
	return most
}
