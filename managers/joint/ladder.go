package joint

import (
	"math"
	"math/bits"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The problem: a larger budget must never give a slower step, and a budget must not lose what lies between
// fixed limits. Planning at the budget itself serves the second and breaks the first, since search has luck;
// a coarse ladder of limits, the same for every budget, serves the first and breaks the second.
//
// Way chosen: a fine ladder, of which a call makes only the rungs that lead to its budget. The topmost,
// without a limit, and the lowest are planned for from nothing; every other lies halfway between two that are
// known, down to the last bit of its number, and starts from what those chose beside what it finds by itself.
// The coarsest of these, which bound what all others can come to, are planned for some more times (probe).
// Three rules make step time fall from rung to rung, in whatever order budgets are asked for:
//
//   - a rung comes to the same whichever were looked at before (the test that says so caught two mistakes);
//   - a rung has the plans of the smaller rung that it lies above;
//   - it takes no plan that is faster than that of the larger rung that it lies below: such a plan shows
//     that the search there fell short, and costs those few budgets what a larger one would have to pay in
//     any case.
//
// Limits lie closer together at the small end, where a byte costs most time, and are multiples of what all
// sizes are multiples of: where these are few, each is a rung. Among rungs of equal time the lowest is looked
// for, by the same halving (descend): ties go to the smaller footprint.
//
// Complexity: a call plans for as many rungs as the number of its own has bits, and for at most as many again
// to descend. Rejected: all rungs for every call (a hundred of them made a budget take ten seconds, and were
// still too far apart); a coarse ladder of rungs that are all planned for from nothing, several times over,
// below the fine one (four times the work, for step times that differed by a thousandth on the average and
// were longer as often as shorter); warm starts from the budget's neighbours on the caller's own grid (what a
// budget gets then depends on which budgets were asked for).

// grid are the limits that are planned for, whatever the budget.
type grid struct {
	floor       int64
	unit, units int64 // what every size is a multiple of, and how many there are up to the peak
	top         int   // the rung without a limit
	// how often one limit is planned for at the most, where addresses take the plan above it
	rounds int
	// some rungs are planned for several times; where addresses cost time, other places are tried, and
	// choices on the evaluator
	probes bool
	vast   bool  // others are asked first
	pack   int64 // the most counted work of a search for places, 0 where a greedy pass has to do
	mend   int64 // mending choices gets one part in so many of the work on a rung
	least  int64 // counted work that a view of a rung gets by default, at the least
}

// newGrid makes fewer rungs for problems of more buffers, which are a smaller share of the whole and take
// longer to place.
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
	size := 2 * len(m.p.Buffers) // about as many as buffers and ops together, in a recording of a network
	switch {
	case size > par.largeProblem: // placing a plan takes most of the time there
		g.top, g.rounds, g.probes, g.pack, g.mend = par.rungs[1], par.rounds[1], false, 0, par.mend[1]
	case m.n+len(m.p.Buffers) > par.largeProblem:
		// few buffers and many ops: a schedule takes long, and a rung has to have hundreds of them
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
	return g
}

// limit returns the most bytes that a plan of a rung may take.
func (g *grid) limit(at int) int64 {
	if at == g.top {
		return math.MaxInt64 / 4
	}
	hi, lo := bits.Mul64(uint64(g.units), uint64(at)*uint64(at))
	share, _ := bits.Div64(hi, lo, uint64(g.top)*uint64(g.top))
	return g.floor + g.unit*int64(share)
}

// unit returns what all sizes are multiples of.
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

// below returns the next rung down that is known when rung at is, -1 if there is none.
func (g *grid) below(at int) int {
	if at == 0 {
		return -1
	}
	return at - at&-at
}

// visited is about how many rungs one call plans for.
func (g *grid) visited() int64 { return int64(max(6, bits.Len(uint(g.top))-2)) }

// rung is what was found for one limit. Rungs of equal outcome may be one.
type rung struct {
	best  *outcome     // the best that fits, nil where nothing does
	all   []*outcome   // whatever was made on the way, and on that of those that it looked at
	seeds []*candidate // of each view, what the search came to
}

// time is the step time, the largest number there is where nothing fits.
func (x *rung) time() int64 {
	if x == nil || x.best == nil {
		return math.MaxInt64
	}
	return x.best.time
}

// least is the step time that a smaller rung may not undercut, 0 where nothing fits.
func (x *rung) least() int64 {
	if x.best == nil {
		return 0
	}
	return x.best.time
}

// rung returns what is found for a rung, which depends on nothing but the problem, the seed and the work.
func (f *finder) rung(at int) (*rung, error) {
	if x := f.rungs[at]; x != nil {
		return x, nil
	}
	if err := f.ctx.Err(); err != nil {
		return nil, err
	}
	x, err := f.planRung(at)
	if err != nil {
		return nil, err
	}
	f.rungs[at] = x
	f.tellGap()
	f.request.Report(int64(len(f.rungs)), max(int64(len(f.rungs)), f.grid.visited()))
	return x, nil
}

// planRung plans for a rung, after those that it depends on.
func (f *finder) planRung(at int) (*rung, error) {
	g, limit := &f.grid, f.grid.limit(at)
	if at == g.top || at == 0 {
		return f.fromNothing(limit, math.MaxInt64)
	}
	d := at & -at
	lo, err := f.rung(at - d)
	if err != nil {
		return nil, err
	}
	hi, err := f.rung(min(at+d, g.top))
	if err != nil {
		return nil, err
	}
	switch {
	case hi.best != nil && hi.best.pl.Footprint <= limit:
		return hi, nil
	case lo.time() <= hi.time(): // the same time for less; or nothing fits at the larger one
		return lo, nil
	}
	x, err := f.between(limit, lo, hi)
	if err != nil || d < g.top/f.params.coarse || !g.probes {
		return x, err
	}
	return x, f.probe(x, at, d, hi)
}

// probe plans from nothing a little below rung at, where what was found there is far from what can be hoped
// for. Search has luck: what is found for a little less is often better, and these rungs bound what all
// between them can come to. Not worth it near the bound.
func (f *finder) probe(x *rung, at, d int, hi *rung) error {
	limit := f.grid.limit(at)
	least := hi.least()
	target := f.bound(limit)
	target = max(least, target+target/f.params.nearBound)
	for k := 1; k <= f.params.probes && x.time() > target; k++ {
		y, err := f.fromNothing(f.grid.limit(at-k*d/4), x.time())
		if err != nil {
			return err
		}
		x.consider(y.all, limit, least)
	}
	return nil
}

// bound returns the step time that no plan within a limit undercuts, as an evaluator would measure it; 0
// where there are no times.
func (f *finder) bound(limit int64) int64 {
	if !f.p.HasTimes {
		return 0
	}
	return perIteration(f.p, f.bounder.bound(limit, f.params.turns(f.views[0].m.n)))
}

// fromNothing plans for a limit without seeds; see planViews.
func (f *finder) fromNothing(limit, incumbent int64) (*rung, error) {
	return f.planViews(limit, f.bound(limit), 0, incumbent, nil)
}

// between plans for a limit from what was found for a smaller and a larger one. What is faster than at the
// larger one is not taken.
func (f *finder) between(limit int64, lo, hi *rung) (*rung, error) {
	least := hi.least()
	x, err := f.planViews(limit, max(least, f.bound(limit)), least, lo.time(), []*rung{lo, hi})
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

// planViews plans for a limit with every view. It is content with a plan that takes no longer than the
// target, takes none that is faster than least, and gives little for one that is slower than the incumbent.
func (f *finder) planViews(limit, target, least, incumbent int64, from []*rung) (*rung, error) {
	x := &rung{seeds: make([]*candidate, len(f.views))}
	for k, v := range f.views {
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
			if f.smallest == nil || y.pl.Footprint < f.smallest.pl.Footprint {
				f.smallest = y
			}
		}
		x.consider(made, limit, least)
		incumbent = min(incumbent, x.time())
	}
	return x, nil
}

// consider takes the best of some plans that fit and are not faster than least, and remembers those that no
// other beats.
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
