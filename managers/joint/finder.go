package joint

import (
	"context"
	"fmt"
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
	work  int64
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
	return f
}

// rungs are the limits that are planned for, whatever the budget: so that a larger budget has every plan to choose from that a smaller one has.
func (f *finder) rungs() []int64 {
	m := f.m
	count := 48
	if m.n > 4000 {
		count = 24
	}
	if m.n > 40000 {
		count = 12
	}
	var all []int64
	if m.peak > m.floor {
		for k := range count {
			all = append(all, m.floor+(m.peak-m.floor)*int64(k)/int64(count))
		}
	}
	return append(all, m.peak)
}

func (f *finder) find() (*plan.Plan, error) {
	rungs := f.rungs()
	if f.r.Budget > 0 {
		for len(rungs) > 1 && rungs[len(rungs)-1] > f.r.Budget {
			rungs = rungs[:len(rungs)-1]
		}
	}
	var err error
	base, misses := int64(-1), 0
	for k := len(rungs) - 1; k >= 0 && f.ctx.Err() == nil; k-- {
		if f.best != nil && f.r.Budget > 0 && f.p.HasTimes {
			least := f.b.bound(rungs[k], boundTurns)
			if least > f.best.time { // nor can any below it be better
				break
			}
			if least == f.best.time && f.best.pl.Footprint <= rungs[k] { // only smaller ones can be better, and this one was made for more
				continue
			}
		}
		var x *found
		if x, err = f.rung(rungs[k]); err != nil {
			break
		}
		if f.r.Budget == 0 {
			if base < 0 {
				base = x.time
			}
			if x.time > base {
				if misses++; misses > 2 {
					break
				}
			}
		}
		f.r.Report(int64(len(rungs)-k), int64(len(rungs)))
	}
	switch {
	case f.best != nil:
		if f.p.HasTimes {
			limit := f.r.Budget
			if limit == 0 {
				limit = f.best.pl.Footprint
			}
			f.best.pl.StepBound = f.b.bound(limit, 4*boundTurns)
		}
		return f.best.pl, nil
	case f.low != nil:
		return f.low.pl, nil
	case err == nil:
		err = f.ctx.Err()
	}
	return nil, err
}

// boundTurns are the updates of weights that a bound is given.
const boundTurns = 60

// note takes a plan into account.
func (f *finder) note(x *found) {
	if f.low == nil || x.pl.Footprint < f.low.pl.Footprint {
		f.low = x
	}
	if (f.r.Budget == 0 || x.pl.Footprint <= f.r.Budget) && better(x, f.best) {
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
	var best *found
	at := f.search()
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
		if round < rounds-3 {
			f.tighten(x.pl, limit)
			continue
		}
		for i := range f.m.n { // addresses will not have it: leave less in memory everywhere, in the end as little as can be
			s.limit[i] = f.m.operands[i] + (limit-f.m.operands[i])*int64(rounds-2-round)/4
		}
	}
	return best, nil
}

// rounds bounds how often one limit is planned for again because addresses take the plan above it.
const rounds = 6

// settle assembles, places and measures the schedule at hand.
func (f *finder) settle(limit int64) (*found, error) {
	var pl *plan.Plan
	for _, opt := range []place.Options{
		{Rule: place.BestFit},
		{Rule: place.FirstFit},
		{Rule: place.Search, Capacity: limit, Seed: f.r.Seed, Work: packWork},
	} {
		next, err := plan.Assemble(f.p, f.s.decisions())
		if err != nil {
			return nil, fmt.Errorf("assemble: %w", err)
		}
		if _, err = place.Place(f.ctx, f.p, next, opt); err != nil {
			return nil, err
		}
		if pl == nil || next.Footprint < pl.Footprint {
			pl = next
		}
		if pl.Footprint <= limit {
			break
		}
	}
	x := &found{pl: pl, time: f.s.time}
	if f.r.Evaluator != nil {
		me, err := f.r.Evaluator.Evaluate(f.ctx, f.p, pl)
		if err != nil {
			return nil, fmt.Errorf("measure: %w", err)
		}
		x.time = me.StepTime
	}
	return x, nil
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
