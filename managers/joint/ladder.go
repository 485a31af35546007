package joint

import (
	"math"
	"slices"
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
	*found
	views []*view
	known map[int]*rung // those planned for so far
}

// rung returns the result for a rung, which depends only on the problem, the seed and the work.
func (l *ladder) rung(at int) (*rung, error) {
	if x := l.known[at]; x != nil {
		return x, nil
	}
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	x, err := l.planRung(at)
	if err != nil {
		return nil, err
	}
	l.known[at] = x
	l.tellGap()
	l.request.Report(int64(len(l.known)), max(int64(len(l.known)), l.grid.visits))
	return x, nil
}

// planRung plans for a rung, after the rungs that it depends on.
func (l *ladder) planRung(at int) (*rung, error) {
	limit := l.grid.limit(at)
	if at == l.grid.top || at == 0 {
		return l.fromNothing(limit, math.MaxInt64)
	}
	d := at & -at
	lo, err := l.rung(at - d)
	if err != nil {
		return nil, err
	}
	hi, err := l.rung(min(at+d, l.grid.top))
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
	if err != nil || d < l.grid.top/l.params.coarse || !l.grid.probes {
		return x, err
	}
	return x, l.probe(x, at, d, hi)
}

// probe plans from scratch a little below rung at, if the result there is far from the bound. A search
// depends on luck, so a slightly smaller limit often gives a better plan, and these rungs bound what all
// rungs between them can reach.
func (l *ladder) probe(x *rung, at, d int, hi *rung) error {
	limit := l.grid.limit(at)
	least := hi.least()
	target := l.bound(limit)
	target = max(least, target+target/l.params.nearBound)
	for k := 1; k <= l.params.probes && x.time() > target; k++ {
		y, err := l.fromNothing(l.grid.limit(at-k*d/4), x.time())
		if err != nil {
			return err
		}
		x.consider(y.all, limit, least)
	}
	return nil
}

// fromNothing plans for a limit without seeds; see planViews.
func (l *ladder) fromNothing(limit, incumbent int64) (*rung, error) {
	return l.planViews(limit, l.bound(limit), 0, incumbent, nil)
}

// between plans for a limit, starting from the results for a smaller and a larger one. It takes no plan that
// is faster than that of the larger one.
func (l *ladder) between(limit int64, lo, hi *rung) (*rung, error) {
	least := hi.least()
	x, err := l.planViews(limit, max(least, l.bound(limit)), least, lo.time(), []*rung{lo, hi})
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
	x := &rung{seeds: make([]*candidate, len(l.views))}
	for k, v := range l.views {
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
			if l.smallest == nil || y.pl.Footprint < l.smallest.pl.Footprint {
				l.smallest = y
			}
		}
		x.consider(made, limit, least)
		incumbent = min(incumbent, x.time())
	}
	return x, nil
}

// descend looks for the smallest plan, below rung at, that takes no longer than time.
func (l *ladder) descend(at int, time int64) error {
	for at > 0 && l.p.HasTimes {
		low := l.grid.below(at)
		if low < 0 || l.bound(l.grid.limit(low)) > time {
			break
		}
		x, err := l.rung(low)
		if err != nil {
			return err
		}
		if x.best == nil || x.best.time > time {
			break
		}
		l.note(x.best)
		at = low
	}
	for low := max(l.grid.below(at), 0); at-low > 1; {
		middle := (low + at) / 2
		if l.bound(l.grid.limit(middle)) > time {
			low = middle
			continue
		}
		x, err := l.rung(middle)
		if err != nil {
			return err
		}
		if x.best != nil && x.best.time <= time {
			l.note(x.best)
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
