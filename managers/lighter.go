package managers

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/managers/swap"
)

// Regions and swaps together, for eager PyTorch in little memory.
//
// The problem: in a fifth of the memory, checkpoints alone don't fit, because each region's input stays; and
// swaps alone copy nearly everything. Managers that combine both decide by tensor and op. Eager PyTorch
// needs whole regions, so much of their plans is lost. For ResNet-50 at batch 64 on a simulated A100, in 21 %
// of its memory, a step takes 6.4 times as long with swaps alone, and 1.7 times with both.
//
// The approach: begin with a plan that reruns regions, such as the segments of sqrt, and swap what it leaves
// in memory ([swap.Beside]). If that does not fit, look at the peak. If a region is back in memory there, cut
// it in two, where the larger half is smallest; what crosses the cut is no longer dropped, so that it may
// leave by a swap. A region that cannot be cut is given up. If no region is there, ask the swaps for less.
// All numbers of segments are tried: which is best differs with and without swaps.
//
// Complexity: segmentConversions conversions, and otherConversions for each other manager. Rejected: giving
// up each region that does not fit as a whole (a step takes 4.1 times as long in the example).

const (
	// segmentConversions and otherConversions bound how many plans of segments are converted, and of one
	// other manager's plan, in problems with up to askedAnyway ops and buffers. In larger ones they shrink
	// with the size, down to leastConversions, so that the time does not grow with its square.
	segmentConversions = 200
	otherConversions   = 12
	leastConversions   = 4
	// lighterTries bounds how often one plan is made lighter.
	lighterTries = 12
)

// lighter brings plans that rerun regions down to the budget.
type lighter struct {
	*eagerSearch
	left int // conversions that it may still make
}

// newLighter returns one with that many conversions, or fewer in a large problem.
func newLighter(s *eagerSearch, conversions int) *lighter {
	size := max(len(s.p.Ops)+len(s.p.Buffers), 1)
	return &lighter{s, max(min(conversions, conversions*askedAnyway/size), leastConversions)}
}

// segments returns the best plan of all numbers of segments with swaps. It begins with twice as many as are
// best without swaps.
func (s *eagerSearch) segments() (best converted) {
	l := newLighter(s, segmentConversions)
	cuts := recompute.NewSegments(l.p)
	counts := cuts.Counts()
	if len(counts) == 0 {
		return best
	}
	apart := func(k int) float64 {
		return math.Abs(math.Log(float64(k) / (2 * math.Sqrt(float64(counts[len(counts)-1])))))
	}
	slices.SortStableFunc(counts, func(a, b int) int { return cmp.Compare(apart(a), apart(b)) })
	for _, k := range counts {
		if l.left <= 0 || l.ctx.Err() != nil {
			break
		}
		d, err := cuts.Cut(k)
		if err != nil || len(d.Absences) == 0 {
			continue
		}
		l.left--
		start := l.convert(&plan.Plan{Manager: "sqrt", Budget: l.r.Budget, Absences: d.Absences,
			Reruns: d.Reruns})
		if x := l.lighten(start); x.Plan != nil && (best.Plan == nil || x.better(&best, l.r.Budget)) {
			best = x
		}
	}
	if best.Plan != nil {
		best.Note("segments of sqrt and swaps made this plan")
	}
	return best
}

// lighten adds swaps to a plan that does not fit and makes its regions smaller, and returns the best plan
// that it met. A plan that fits, or that reruns nothing, is returned as it is: others plan swaps alone.
func (l *lighter) lighten(x converted) converted {
	if x.Plan == nil || x.Footprint <= l.r.Budget || len(x.Reruns) == 0 {
		return x
	}
	best, limit := x, l.r.Budget
	for try := 0; try < lighterTries && l.left > 0 && limit > 0 && l.ctx.Err() == nil; try++ {
		l.left--
		swaps, err := swap.Beside(l.ctx, l.p, x.Plan, limit)
		if err != nil {
			break
		}
		y := l.again(x, slices.Concat(x.Absences, swaps))
		if y.Plan == nil {
			break
		}
		if y.better(&best, l.r.Budget) {
			best = y
		}
		if y.Footprint <= l.r.Budget {
			break
		}
		smaller, cut := l.cut(x, y.Plan)
		switch {
		case !cut && len(swaps) == 0:
			return best
		case !cut:
			limit -= y.Footprint - l.r.Budget
		case smaller.Plan == nil || len(smaller.Reruns) == 0:
			return best
		default:
			x, limit = smaller, l.r.Budget
		}
	}
	return best
}

// again converts a plan with other absences. Its reruns follow from them.
func (l *lighter) again(x converted, absences []plan.Absence) converted {
	other := *x.Plan
	other.Executor, other.Absences, other.Notes = plan.Ideal, absences, nil
	return l.convert(&other)
}

// cut returns x with a smaller region in place of the one that holds the most at the peak of y. cut is false
// if none of x's regions is in memory there.
func (l *lighter) cut(x converted, y *plan.Plan) (smaller converted, cut bool) {
	_, step := y.PeakLive()
	if step < 0 {
		return x, false
	}
	at := y.Steps[step].Op
	held := map[plan.OpID]int64{} // by where a region runs again
	for i := range x.Absences {
		if a := &x.Absences[i]; a.How == plan.Recompute && a.Fetch <= at && at <= a.Before {
			held[a.Fetch] += l.p.Rounded(a.Buffer)
		}
	}
	region := plan.OpID(-1)
	for fetch, bytes := range held {
		if region < 0 || bytes > held[region] || bytes == held[region] && fetch < region {
			region = fetch
		}
	}
	if region < 0 {
		return x, false
	}
	var rest, inside []plan.Absence
	for _, a := range x.Absences {
		if a.How == plan.Recompute && a.Fetch == region {
			inside = append(inside, a)
		} else {
			rest = append(rest, a)
		}
	}
	l.left--
	return l.again(x, append(rest, l.halves(inside)...)), true
}

// halves returns what the two halves of a region drop, each at its own fetch; none if no cut leaves something
// on both sides.
func (l *lighter) halves(inside []plan.Absence) []plan.Absence {
	made := func(a plan.Absence) plan.OpID { return l.p.TouchesOf(a.Buffer)[0].Op }
	best, where := int64(math.MaxInt64), plan.OpID(-1)
	for _, c := range inside {
		cut := made(c)
		var left, right, crossing int64
		for _, a := range inside {
			size := l.p.Rounded(a.Buffer)
			switch {
			case made(a) >= cut:
				right += size
			case a.After >= cut:
				crossing += size
			default:
				left += size
			}
		}
		cost := max(left, right) + crossing
		if left > 0 && right > 0 && (cost < best || cost == best && cut < where) {
			best, where = cost, cut
		}
	}
	if where < 0 {
		return nil
	}
	var first, second []plan.Absence
	for _, a := range inside {
		switch {
		case made(a) >= where:
			second = append(second, a)
		case a.After < where:
			first = append(first, a)
		}
	}
	for _, half := range [][]plan.Absence{first, second} {
		fetch := half[0].Before
		for _, a := range half {
			fetch = min(fetch, a.Before)
		}
		for i := range half {
			half[i].Fetch = fetch
		}
	}
	return append(first, second...)
}
