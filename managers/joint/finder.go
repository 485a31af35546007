package joint

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// finder is the state of one call of Plan.
type finder struct {
	ctx context.Context
	p   *plan.Problem
	r   plan.Request
	off mechanisms
	m   *model
	s   *schedule
	c   *cover
	b   *bounder
	// price is what served best in the last search.
	price prices
	rnd   *rand.Rand
	until int64  // the counted work at which the search for the limit at hand ends
	share int64  // of the counted work, for each limit
	most  int64  // bytes that a plan of the rung at hand may take to be taken into account
	best  *found // that fits; the fastest, then the smallest
	low   *found // the smallest
}

// found is a plan with its measure.
type found struct {
	pl   *plan.Plan
	time int64
}

// better reports whether a is to be preferred to b among plans that fit.
func better(a, b *found) bool {
	return b == nil || a.time < b.time || a.time == b.time && a.pl.Footprint < b.pl.Footprint
}

func newFinder(ctx context.Context, p *plan.Problem, r plan.Request, off mechanisms) *finder {
	f := &finder{ctx: ctx, p: p, r: r, off: off, m: compile(p)}
	f.s = newSchedule(f.m)
	f.s.noSwap = off.swap
	f.b = newBounder(f.m)
	f.c = newCover(f.s)
	f.c.noDrop = off.recompute
	return f
}

// rungs are the limits that are planned for, whatever the budget: so that a larger budget has every plan to choose from that a smaller one has.
func (f *finder) rungs() []int64 {
	m := f.m
	count := 96
	if m.n > 4000 {
		count = 8
	}
	if m.n > 40000 {
		count = 4
	}
	var all []int64
	if m.peak > m.floor {
		for k := range count {
			all = append(all, m.floor+(m.peak-m.floor)*int64(k)/int64(count))
		}
	}
	return append(all, m.peak)
}

func (f *finder) find(seeds []plan.Manager) (*plan.Plan, error) {
	ladder := f.rungs()
	rungs := ladder
	if f.r.Budget > 0 {
		for len(rungs) > 1 && rungs[len(rungs)-1] > f.r.Budget {
			rungs = rungs[:len(rungs)-1]
		}
	}
	if f.off.ladder && f.r.Budget > 0 {
		ladder = []int64{f.r.Budget}
		rungs = ladder
	}
	work := f.r.Work
	if work <= 0 {
		work = defaultWork
		if f.m.n > 4000 { // placing takes most of the time there
			work /= 8
		}
	}
	f.share = work / int64(len(ladder))
	var err error
	base, misses := int64(-1), 0
	for k := len(rungs) - 1; k >= 0 && f.ctx.Err() == nil; k-- {
		optimal := false
		f.most = math.MaxInt64
		if k+1 < len(ladder) {
			f.most = ladder[k+1]
		}
		if f.best != nil && f.r.Budget > 0 && f.p.HasTimes {
			if f.b.bound(f.most, f.turns()) > f.best.time { // no plan of this rung can be better, nor of any below it
				break
			}
			if optimal = f.b.base == f.best.time; optimal && f.best.pl.Footprint <= rungs[k] { // only smaller ones can be better, and this one was made for more
				continue
			}
		}
		var x *found
		if x, err = f.rung(rungs[k]); err != nil {
			break
		}
		if base < 0 {
			base = x.time
		}
		if (f.r.Budget == 0 || optimal) && x.time > min(base, f.best.time) {
			if misses++; misses > 1 {
				break
			}
		}
		f.r.Report(int64(len(rungs)-k), int64(len(rungs)))
	}
	f.most = math.MaxInt64
	f.plant(seeds) // last, so that they change nothing in what joint finds by itself
	switch {
	case f.best != nil:
		if f.p.HasTimes {
			limit := f.r.Budget
			if limit == 0 {
				limit = f.best.pl.Footprint
			}
			f.best.pl.StepBound = f.b.bound(limit, 4*f.turns())
			if b := f.best.pl.StepBound; b > 0 && f.r.Evaluator != nil {
				f.best.pl.Note("no plan within this memory can be faster by more than %.1f %%", (1-float64(b)/float64(f.best.time))*100)
			}
		}
		if len(f.m.choices) == 0 {
			f.best.pl.LowerBound = f.m.peak
		}
		return f.best.pl, nil
	case f.low != nil: // the smallest there is, which may be within the budget although none met its rung
		return f.low.pl, nil
	case err == nil:
		err = f.ctx.Err()
	}
	return nil, err
}

// defaultWork is the counted work of a call that says nothing: a second or two.
const defaultWork = 240_000_000

// turns returns how many updates of weights a bound is given.
func (f *finder) turns() int { return max(6, min(60, 200_000/(f.m.n+1))) }

// note takes a plan into account.
func (f *finder) note(x *found) {
	if f.low == nil || x.pl.Footprint < f.low.pl.Footprint {
		f.low = x
	}
	// A plan that misses its rung by more than a rung is not taken: then what lies below a rung can be told by the bound of the rung above, for every budget
	// alike, and a larger budget never misses what a smaller one has.
	if (f.r.Budget == 0 || x.pl.Footprint <= min(f.r.Budget, f.most)) && better(x, f.best) {
		f.best = x
	}
}

// rung plans for one limit, from scratch and without regard to the budget.
func (f *finder) rung(limit int64) (*found, error) {
	s := f.s
	f.rnd = rand.New(rand.NewPCG(f.r.Seed, uint64(limit)))
	for i := range s.limit {
		s.limit[i] = limit
	}
	f.until = s.steps + f.share
	var best *found
	at := f.search()
	rounds := mostRounds
	if f.m.n > 4000 {
		rounds = 6
	}
	for round := range rounds {
		if round > 0 {
			at = f.again(at)
		}
		s.set(at)
		x, err := f.settle(limit)
		if err != nil {
			return nil, err
		}
		f.note(x)
		if fits := x.pl.Footprint <= limit; best == nil || fits || x.pl.Footprint < best.pl.Footprint {
			best = x
			if fits || f.off.feedback {
				break
			}
		}
		if at.over > 0 {
			break
		}
		if round < rounds-5 {
			f.tighten(x.pl, limit)
			continue
		}
		for i := range f.m.n { // addresses will not have it: leave less in memory everywhere, in the end as little as can be
			s.limit[i] = f.m.operands[i] + (limit-f.m.operands[i])*int64(rounds-2-round)/4
		}
	}
	return best, nil
}

// mostRounds bounds how often one limit is planned for again because addresses take the plan above it.
const mostRounds = 8

// settle assembles, places and measures the schedule at hand, in one way after another until addresses neither pass the limit nor cost time.
func (f *finder) settle(limit int64) (*found, error) {
	work := int64(packWork)
	if len(f.m.choices) == 0 { // places are all there is to choose
		work = 0
	}
	var best *found
	for _, opt := range []place.Options{
		{Rule: place.BestFit},
		{Rule: place.FirstFit},
		{Rule: place.Search, Capacity: limit, Seed: f.r.Seed, Work: work},
	} {
		if opt.Rule == place.FirstFit && f.m.n > 4000 {
			continue
		}
		pl, err := plan.Assemble(f.p, f.s.decisions())
		if err != nil {
			return nil, fmt.Errorf("assemble: %w", err)
		}
		if _, err = place.Place(f.ctx, f.p, pl, opt); err != nil {
			return nil, err
		}
		if best != nil && pl.Footprint > limit && pl.Footprint >= best.pl.Footprint {
			continue
		}
		x := &found{pl: pl, time: f.s.time}
		if f.r.Evaluator != nil {
			me, err := f.r.Evaluator.Evaluate(f.ctx, f.p, pl)
			if err != nil {
				return nil, fmt.Errorf("measure: %w", err)
			}
			x.time = me.StepTime
		}
		fits, had := pl.Footprint <= limit, best != nil && best.pl.Footprint <= limit
		if best == nil || fits && !had || fits == had && (fits && better(x, best) || !fits && pl.Footprint < best.pl.Footprint) {
			best = x
		}
		if fits && best.time <= f.s.time+f.s.time/4096 { // addresses cost no time
			break
		}
	}
	return best, nil
}

// packWork bounds the search for places of one schedule.
const packWork = 4000

// tighten lowers the limits where instances lie above the limit that they should have met.
func (f *finder) tighten(pl *plan.Plan, limit int64) {
	at := make([]plan.OpID, len(pl.Steps)+1) // position of each step
	var i plan.OpID
	for k := range pl.Steps {
		at[k] = i
		if pl.Steps[k].Kind == plan.Run {
			i = pl.Steps[k].Op + 1
		}
	}
	at[len(pl.Steps)] = plan.OpID(len(f.p.Ops))
	above := make([]int64, len(f.p.Ops)+1)
	for k := range pl.Instances {
		x := &pl.Instances[k]
		if v := x.Offset + x.Size - limit; v > 0 {
			for o := at[max(x.From, 0)]; o <= at[x.To] && int(o) < len(f.p.Ops); o++ {
				above[o] = max(above[o], min(v, x.Size))
			}
		}
	}
	for o := range f.p.Ops {
		f.s.limit[o] = max(f.s.limit[o]-above[o], f.m.operands[o])
	}
}
