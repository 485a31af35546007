package capture

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
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
	// maxSpans bounds their number unless [Limits] say so, and so their memory: about 0.7 MiB.
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

// SpanOf returns the span of a single step.
func SpanOf(s *Step) Span {
	p := Span{First: s.Index, Last: s.Index, Steps: 1, Start: s.Start, End: s.End, Cost: s.Cost,
		Retries: s.Retries, OOMs: s.OOMs, Missed: s.Carried.Missed, Differ: s.Carried.Differ}
	held, _ := s.Held()
	p.Time.add(maybe.Known(s.End - s.Start))
	p.Forward.add(s.Forward)
	p.Backward.add(s.Backward)
	p.Optimizer.add(s.Optimizer)
	p.Held.add(held)
	p.PeakAllocated.add(s.PeakAllocated)
	p.RSS.add(s.RSS)
	if s.Skipped {
		p.Skipped = 1
	}
	if s.Carried.Plan != 0 {
		p.Planned = 1
	}
	return p
}

// Merge adds the span that follows. The zero Span is empty.
func (p *Span) Merge(q *Span) {
	if p.Steps == 0 {
		*p = *q
		return
	}
	p.Last, p.End, p.Steps, p.Cost = q.Last, q.End, p.Steps+q.Steps, p.Cost+q.Cost
	more := q.ranges()
	for i, r := range p.ranges() {
		r.merge(*more[i])
	}
	p.Retries, p.OOMs = maybe.First(q.Retries, p.Retries), maybe.First(q.OOMs, p.OOMs)
	p.Skipped, p.Planned = p.Skipped+q.Skipped, p.Planned+q.Planned
	p.Missed, p.Differ = p.Missed+q.Missed, p.Differ+q.Differ
}

// surround merges a span of steps that lie between those of p.
func (p *Span) surround(q *Span) {
	end := *p
	p.Merge(q)
	p.Last, p.End = end.Last, end.End
	p.Retries, p.OOMs = maybe.First(end.Retries, p.Retries), maybe.First(end.OOMs, p.OOMs)
}

// spanFigures names the figures of a span in the order of its row, as a wire or a file has them.
var spanFigures = []string{"first", "last", "steps", "start", "end", "cost", "retries", "ooms", "skipped",
	"planned", "missed", "differ"}

// spanRanges names the ranges that follow in a row. Each has its least, most, sum and known.
var spanRanges = []string{"time", "forward", "backward", "optimizer", "held", "peak_allocated", "rss"}

// SpanColumns is how many figures a span's row has.
const SpanColumns = 12 + 4*7

// Row returns the figures of the span in a fixed order: -1 where one is unknown.
func (p *Span) Row() [SpanColumns]int64 {
	row := [SpanColumns]int64{p.First, p.Last, p.Steps, p.Start, p.End, int64(p.Cost), p.Retries.Or(-1),
		p.OOMs.Or(-1), p.Skipped, p.Planned, p.Missed, p.Differ}
	for i, r := range p.ranges() {
		copy(row[len(spanFigures)+4*i:], []int64{r.Least, r.Most, r.Sum, r.Known})
	}
	return row
}

func (p *Span) ranges() [7]*Range {
	return [...]*Range{&p.Time, &p.Forward, &p.Backward, &p.Optimizer, &p.Held, &p.PeakAllocated, &p.RSS}
}

// SpanOfRow is the inverse of Row. Further figures of a longer row are skipped; a shorter one and figures
// that no span has are errors.
func SpanOfRow(row []int64) (p Span, err error) {
	if len(row) < SpanColumns {
		return p, fmt.Errorf("a span of steps with %d figures of %d", len(row), SpanColumns)
	}
	p = Span{First: row[0], Last: row[1], Steps: row[2], Start: row[3], End: row[4],
		Cost: time.Duration(row[5]), Retries: maybe.NonNegative(row[6]), OOMs: maybe.NonNegative(row[7]),
		Skipped: row[8], Planned: row[9], Missed: row[10], Differ: row[11]}
	// The sums of the longest run are far from the end of an int64; those of a damaged row may not be.
	const most = 1 << 60
	ok := p.First >= 0 && p.Last >= p.First && p.Last < most && p.Steps > 0 &&
		p.Steps <= p.Last-p.First+1 && p.Start >= 0 && p.End >= p.Start && p.End < math.MaxInt64
	for _, v := range row[5:12] {
		ok = ok && v >= -1 && v < most
	}
	for i, r := range p.ranges() {
		x := row[len(spanFigures)+4*i:]
		*r = Range{Least: x[0], Most: x[1], Sum: x[2], Known: x[3]}
		ok = ok && r.Known >= 0 && r.Known <= p.Steps && -most < r.Least && r.Least <= r.Most &&
			r.Most < most && -most < r.Sum && r.Sum < most
	}
	if !ok {
		return Span{}, errors.New("a span of steps whose figures contradict each other")
	}
	return p, nil
}

// SpanCounters are the names of the counters that a recording has for spans, in the order of their rows.
func SpanCounters() []string {
	var names []string
	for _, n := range spanFigures {
		names = append(names, "span."+n)
	}
	for _, n := range spanRanges {
		for _, of := range []string{"least", "most", "sum", "known"} {
			names = append(names, "span."+n+"."+of)
		}
	}
	return names
}

// Spans is a list of spans in the order of their steps, of bounded length.
type Spans struct {
	List []Span
	most int // how many there are at most
	wide int // how many steps a span has at least, but for the last
}

// NewSpans returns an empty list of at most most spans, 2,048 for 0.
func NewSpans(most int) Spans {
	if most <= 0 {
		most = maxSpans
	}
	return Spans{most: max(most, 2), wide: spanSteps}
}

// Add adds a span of steps that come after all others, to the last span if that has room.
func (s *Spans) Add(p *Span) {
	if n := len(s.List); n == 0 || s.List[n-1].Steps >= int64(s.wide) {
		if n >= s.most {
			s.halve()
		}
		s.List = append(s.List, Span{})
	}
	s.List[len(s.List)-1].Merge(p)
}

// Insert adds a span of steps that lie between others, or after all of them.
func (s *Spans) Insert(p *Span) {
	i := sort.Search(len(s.List), func(i int) bool { return s.List[i].Last > p.First })
	switch {
	case i == len(s.List):
		s.Add(p)
	case s.List[i].First < p.First:
		s.List[i].surround(p)
	case len(s.List) >= s.most:
		s.halve()
		s.Insert(p)
	default:
		s.List = slices.Insert(s.List, i, *p)
	}
}

// halve makes one span of each two, in the same slice.
func (s *Spans) halve() {
	kept := s.List[:0]
	for pair := range slices.Chunk(s.List, 2) {
		p := pair[0]
		for i := range pair[1:] {
			p.Merge(&pair[1+i])
		}
		kept = append(kept, p)
	}
	s.List, s.wide = kept, 2*s.wide
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
