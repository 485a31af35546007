package swap

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/curve"
)

// Copies on a link, one at a time each way, that stick to a limit on live bytes: the schedule of AutoSwap
// (see autoswap.go), which tvDNN's heuristic uses too. Times are those of an iteration without delays; where
// the limit delays it, what follows is counted from the op at which it did.
//
// Complexity: O(absences x log ops). Rejected: an event simulation (exact, and a thousand times the cost of a
// candidate evaluation).

// idle is an idle interval of a buffer that may be spent on the host.
type idle struct {
	buffer         plan.BufferID
	after, before  int
	size           int64
	out, in        int64 // durations of its copies, in nanoseconds
	scores         weights
	score          float64
	release, fetch int // set by the schedule
}

func newIdle(p *plan.Problem, g plan.Gap) idle {
	size := p.Rounded(g.Buffer)
	return idle{buffer: g.Buffer, after: int(g.After), before: int(g.Before), size: size,
		out: p.Hardware.D2H.Time(size), in: p.Hardware.H2D.Time(size)}
}

func (x *idle) absence(why string) plan.Absence {
	return plan.Absence{Buffer: x.buffer, After: plan.OpID(x.after), Before: plan.OpID(x.before),
		Release: plan.OpID(x.release), Fetch: plan.OpID(x.fetch),
		How: plan.Swap, Why: why}
}

// noLimit is a limit that no load passes and that can be added to.
const noLimit = math.MaxInt64 / 8

// link schedules copies of one problem.
type link struct {
	p     *plan.Problem
	clock []int64 // when each op begins when nothing waits, and the end
	load  []int64
	tree  *curve.Areas
}

func newLink(p *plan.Problem) *link {
	l := &link{p: p, clock: starts(p), load: p.Load()}
	l.tree = curve.NewAreas(l.load)
	return l
}

// starts returns the time at which each op would begin if all ran one after another on one stream, in
// nanoseconds, and as a last entry when they would be done. Managers that plan on recorded timestamps use it.
func starts(p *plan.Problem) []int64 {
	t := make([]int64, len(p.Ops)+1)
	for i := range p.Ops {
		t[i+1] = t[i] + p.Ops[i].Duration + p.Ops[i].Gap
	}
	return t
}

// stick gives every interval of c its release and fetch, and returns those that leave, the last needed first,
// with the nanoseconds for which the iteration is charged to wait. It reorders c. The tree holds the
// resulting load.
func (l *link) stick(c []idle, limit int64) (left []idle, charged int64) {
	l.tree.Reset(l.load)
	slices.SortStableFunc(c, func(a, b idle) int { return cmp.Compare(a.after, b.after) })
	free := int64(math.MinInt64)
	left = c[:0]
	for _, x := range c {
		end := max(l.clock[x.after+1], free) + x.out
		at, _ := slices.BinarySearch(l.clock[x.after+1:x.before+1], end)
		at = min(at+x.after+1, x.before)
		if forced := l.tree.First(x.after+1, at, limit); forced >= 0 {
			at = forced
		} else if at == x.before {
			continue // it would not be gone before it is needed, and nothing asks for its memory
		}
		x.release = at
		l.tree.Add(at, x.before, -x.size)
		charged += max(end-l.clock[at], 0)
		free = min(end, l.clock[at])
		left = append(left, x)
	}
	slices.SortStableFunc(left, func(a, b idle) int { return cmp.Compare(b.before, a.before) })
	free = math.MaxInt64
	for i := range left {
		x := &left[i]
		start := min(l.clock[x.before], free) - x.in
		from, found := slices.BinarySearch(l.clock[x.release:x.before+1], start)
		if !found {
			from-- // the op before begins no later than planned
		}
		from = max(from, 0) + x.release
		if b := l.tree.Last(from, x.before, limit-x.size); b >= 0 {
			from = b + 1
		}
		x.fetch = from
		l.tree.Add(from, x.before, x.size)
		charged += max(l.clock[from]-start, 0)
		free = max(start, l.clock[from])
	}
	return left, charged
}
