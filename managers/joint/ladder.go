package joint

import (
	"math"
	"math/bits"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The problem: a larger budget must never give a slower step, and a budget should benefit from memory that
// lies between fixed limits. Planning at the budget itself gives the second and breaks the first, because a
// search depends on luck. A coarse ladder of limits, the same for every budget, gives the first and breaks
// the second.
//
// The approach: a fine ladder, of which a call makes only the rungs that lead to its budget. The top rung,
// without a limit, and the lowest are planned for from scratch. Every other lies halfway between two known
// rungs, down to the last bit of its number, and starts from their choices as well as from scratch. The
// coarsest of these bound what all others can reach, so a few more limits are planned for there (probe).
// Three rules make the step time fall from rung to rung, whatever the order in which budgets are asked for:
//
//   - a rung has the same result whichever rungs were looked at before (the test of this rule caught two
//     mistakes);
//   - a rung may use the plans of the smaller rung below it;
//   - a rung takes no plan that is faster than that of the larger rung above it. Such a plan shows that the
//     search at the larger rung fell short; without it, these few budgets get the step time that larger ones
//     have anyway.
//
// Limits are closer together at the small end, where a byte costs most time. They are multiples of the unit
// of all sizes; if there are few such multiples, each is a rung. The same halving finds the lowest of the
// rungs of equal time (descend): ties go to the smaller footprint.
//
// Complexity: a call plans for as many rungs as its own number has bits, and for at most as many again to
// descend. Rejected: all rungs for every call (with a hundred of them a budget took ten seconds, and they
// were still too far apart); a coarse ladder of rungs below the fine one, all planned for from scratch,
// several times each (four times the work, for step times that differed by a thousandth on average and were
// longer as often as shorter); warm starts from the budget's neighbours on the caller's own grid (what a
// budget gets then depends on which budgets were asked for).

// grid is the set of limits that are planned for, whatever the budget.
type grid struct {
	floor       int64
	unit, units int64 // the unit of all sizes, and the number of units from floor to peak
	top         int   // the rung without a limit
	// the maximum number of attempts per limit, needed if addresses take the plan above it
	rounds int
	// plan for some rungs several times; where addresses cost time, try other places, and choices on the
	// evaluator
	probes bool
	vast   bool  // ask other managers first
	pack   int64 // the most counted work of a search for places, 0 if only a greedy pass is affordable
	mend   int64 // repairing choices gets 1/mend of the work on a rung
	least  int64 // the least counted work of a view of a rung by default
	visits int64 // roughly how many rungs one call plans for
}

// newGrid uses fewer rungs for problems with more buffers: each buffer is a smaller share of the whole, and
// placing takes longer.
func newGrid(m *model) grid {
	par := &m.params
	g := grid{
		floor:  m.floor,
		unit:   unit(m),
		top:    par.rungs[0],
		rounds: par.rounds[0],
		probes: true,
		pack:   par.pack,
		mend:   par.mend[0],
	}
	g.units = max(m.peak-m.floor, 0) / g.unit
	size := 2 * len(m.p.Buffers) // about as many as ops and buffers together in a recording of a network
	switch {
	case size > par.largeProblem: // placing a plan takes most of the time there
		g.top, g.rounds, g.probes, g.pack, g.mend = par.rungs[1], par.rounds[1], false, 0, par.mend[1]
	case m.n+len(m.p.Buffers) > par.largeProblem:
		// few buffers and many ops: a schedule takes long, and a rung needs hundreds of them
		g.top, g.probes = par.rungs[1], false
		g.least = par.schedules * int64(m.n+len(m.gaps))
	}
	if size > par.hugeProblem {
		g.top, g.rounds, g.mend = par.rungs[2], par.rounds[2], par.mend[2]
	}
	if size > par.vastProblem {
		g.top, g.vast = par.rungs[3], true
	}
	if len(m.choices) == 0 || m.peak <= m.floor {
		g.top = 1
	}
	g.visits = int64(max(par.leastVisited, bits.Len(uint(g.top))-par.fewerVisited))
	return g
}

// limit returns the maximum bytes of a plan of a rung.
func (g *grid) limit(at int) int64 {
	if at == g.top {
		return math.MaxInt64 / 4
	}
	hi, lo := bits.Mul64(uint64(g.units), uint64(at)*uint64(at))
	share, _ := bits.Div64(hi, lo, uint64(g.top)*uint64(g.top))
	return g.floor + g.unit*int64(share)
}

// unit returns the greatest common divisor of all sizes.
func unit(m *model) int64 {
	x := m.floor
	for b := range m.p.Buffers {
		for y := m.p.Rounded(plan.BufferID(b)); y > 0; {
			x, y = y, x%y
		}
	}
	return max(x, 1)
}

// at returns the last rung whose limit is at most bytes, 0 if there is none.
func (g *grid) at(bytes int64) int {
	lo, hi := 0, g.top-1
	for lo < hi {
		if mid := (lo + hi + 1) / 2; g.limit(mid) <= bytes {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// below returns the next lower rung that is known when rung at is, or none.
func (g *grid) below(at int) int {
	if at == 0 {
		return none
	}
	return at - at&-at
}

// rung is the result for one limit. Rungs with equal results may share one.
type rung struct {
	best  *outcome     // the best that fits, nil if none does
	all   []*outcome   // the plans made for it, and those of the rungs that it started from
	seeds []*candidate // for each view, the result of the search
}

// time is the step time, math.MaxInt64 if nothing fits.
func (x *rung) time() int64 {
	if x == nil || x.best == nil {
		return math.MaxInt64
	}
	return x.best.time
}

// least is the step time that a smaller rung must not beat, 0 if nothing fits.
func (x *rung) least() int64 {
	if x.best == nil {
		return 0
	}
	return x.best.time
}

// ladder plans for the rungs of a grid, each once.
type ladder struct {
	grid
	finder *finder
	known  map[int]*rung // those planned for so far
}

// rung returns the result for a rung, which depends only on the problem, the seed and the work.
func (l *ladder) rung(at int) (*rung, error) {
	if x := l.known[at]; x != nil {
		return x, nil
	}
	if err := l.finder.ctx.Err(); err != nil {
		return nil, err
	}
	x, err := l.planRung(at)
	if err != nil {
		return nil, err
	}
	l.known[at] = x
	l.finder.tellGap()
	l.finder.request.Report(int64(len(l.known)), max(int64(len(l.known)), l.visits))
	return x, nil
}

// planRung plans for a rung, after the rungs that it depends on.
func (l *ladder) planRung(at int) (*rung, error) {
	limit := l.limit(at)
	if at == l.top || at == 0 {
		return l.fromNothing(limit, math.MaxInt64)
	}
	d := at & -at
	lo, err := l.rung(at - d)
	if err != nil {
		return nil, err
	}
	hi, err := l.rung(min(at+d, l.top))
	if err != nil {
		return nil, err
	}
	switch {
	case hi.best != nil && hi.best.pl.Footprint <= limit:
		return hi, nil
	case lo.time() <= hi.time(): // the same time in less memory; or nothing fits at the larger one
		return lo, nil
	}
	x, err := l.between(limit, lo, hi)
	if err != nil || d < l.top/l.finder.params.coarse || !l.probes {
		return x, err
	}
	return x, l.probe(x, at, d, hi)
}

// probe plans from scratch a little below rung at, if the result there is far from the bound. A search
// depends on luck, so a slightly smaller limit often gives a better plan, and these rungs bound what all
// rungs between them can reach.
func (l *ladder) probe(x *rung, at, d int, hi *rung) error {
	limit := l.limit(at)
	least := hi.least()
	target := l.finder.bound(limit)
	target = max(least, target+target/l.finder.params.nearBound)
	for k := 1; k <= l.finder.params.probes && x.time() > target; k++ {
		y, err := l.fromNothing(l.limit(at-k*d/4), x.time())
		if err != nil {
			return err
		}
		x.consider(y.all, limit, least)
	}
	return nil
}

// fromNothing plans for a limit without seeds; see planViews.
func (l *ladder) fromNothing(limit, incumbent int64) (*rung, error) {
	return l.planViews(limit, l.finder.bound(limit), 0, incumbent, nil)
}

// between plans for a limit, starting from the results for a smaller and a larger one. It takes no plan that
// is faster than that of the larger one.
func (l *ladder) between(limit int64, lo, hi *rung) (*rung, error) {
	least := hi.least()
	x, err := l.planViews(limit, max(least, l.finder.bound(limit)), least, lo.time(), []*rung{lo, hi})
	if err != nil {
		return nil, err
	}
	x.consider(lo.all, limit, least)
	x.consider(hi.all, limit, least)
	if lo.best != nil && (x.best == nil || lo.best.time <= x.best.time) {
		x.best = lo.best
	}
	return x, nil
}

// planViews plans for a limit with every view. It stops at a plan that takes no longer than target, takes
// none that is faster than least, and spends little on plans that are slower than the incumbent.
func (l *ladder) planViews(limit, target, least, incumbent int64, from []*rung) (*rung, error) {
	x := &rung{seeds: make([]*candidate, len(l.finder.views))}
	for k, v := range l.finder.views {
		var seeds []*candidate
		for _, r := range from {
			if r.seeds[k] != nil {
				seeds = append(seeds, r.seeds[k])
			}
		}
		if x.best != nil && x.best.time <= target {
			if len(seeds) > 0 {
				x.seeds[k] = seeds[0]
			}
			continue
		}
		made, at, err := v.planWithin(limit, target, incumbent, seeds)
		if err != nil {
			return nil, err
		}
		x.seeds[k] = at
		for _, y := range made {
			if l.finder.smallest == nil || y.pl.Footprint < l.finder.smallest.pl.Footprint {
				l.finder.smallest = y
			}
		}
		x.consider(made, limit, least)
		incumbent = min(incumbent, x.time())
	}
	return x, nil
}

// descend looks for the smallest plan, below rung at, that takes no longer than time.
func (l *ladder) descend(at int, time int64) error {
	for at > 0 && l.finder.p.HasTimes {
		low := l.below(at)
		if low < 0 || l.finder.bound(l.limit(low)) > time {
			break
		}
		x, err := l.rung(low)
		if err != nil {
			return err
		}
		if x.best == nil || x.best.time > time {
			break
		}
		l.finder.note(x.best)
		at = low
	}
	for low := max(l.below(at), 0); at-low > 1; {
		middle := (low + at) / 2
		if l.finder.bound(l.limit(middle)) > time {
			low = middle
			continue
		}
		x, err := l.rung(middle)
		if err != nil {
			return err
		}
		if x.best != nil && x.best.time <= time {
			l.finder.note(x.best)
			at = middle
		} else {
			low = middle
		}
	}
	return nil
}

// consider takes the best of some plans that fit and are not faster than least, and remembers those on the
// Pareto front of footprint and time.
func (x *rung) consider(made []*outcome, limit, least int64) {
	for _, y := range made {
		if y.pl.Footprint <= limit && y.time >= least && better(y, x.best) {
			x.best = y
		}
		if slices.ContainsFunc(
			x.all,
			func(z *outcome) bool { return z.pl.Footprint <= y.pl.Footprint && z.time <= y.time },
		) {
			continue
		}
		x.all = slices.DeleteFunc(
			slices.Clone(x.all),
			func(z *outcome) bool { return y.pl.Footprint <= z.pl.Footprint && y.time <= z.time },
		)
		x.all = append(x.all, y)
	}
}
