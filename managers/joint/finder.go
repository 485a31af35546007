package joint

import (
	"context"
	"math"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// finder is the state of one call of Plan.
type finder struct {
	*found
	// the problem as it is and, where useful, without swaps, without reruns, or with large buffers cut into
	// sections
	views  []*view
	ladder ladder
}

// newFinder compiles the problem, whole and in sections.
func newFinder(
	ctx context.Context,
	p *plan.Problem,
	r plan.Request,
	off mechanisms,
	par params,
) (*finder, error) {
	m := compile(p, par)
	t := &task{ctx: ctx, p: p, request: r, off: off, params: par, m: m, bounder: newBounder(m),
		grid: newGrid(m)}
	t.perByte = float64(p.Hardware.D2H.Time(m.peak)+p.Hardware.H2D.Time(m.peak)) / float64(max(m.peak, 1))
	f := &finder{found: &found{task: t, fits: map[int64][]*outcome{}}}
	f.add(version{p: p, m: m, off: off})
	// copies take compute time: plans that only recompute are searched for beside plans that do both
	if m.inline && !off.swap {
		only := off
		only.swap = true
		f.add(version{p: p, m: m, off: only})
	}
	// likewise plans that never recompute, because the first rerun makes hooks note all ops
	if m.noting > 0 && !off.recompute {
		only := off
		only.recompute = true
		f.add(version{p: p, m: m, off: only})
	}
	if size := sectionSize(m, off); size > 0 {
		q, err := p.Sectioned(size)
		if err != nil {
			return nil, err
		}
		f.add(version{p: q, section: size, sections: sectionsOf(p, q), m: compile(q, par), off: off})
	}
	f.ladder = ladder{found: f.found, views: f.views, known: map[int]*rung{}}
	work := r.Work
	if work <= 0 {
		work = par.defaultWork
	}
	if t.pack = min(t.grid.pack, max(par.leastPack, work/par.packShare)); off.packing {
		t.pack = 0
	}
	if r.Work <= 0 {
		work = max(work, t.grid.least*int64(t.versions)*t.grid.visits)
	}
	t.rungWork = work / t.grid.visits
	return f, nil
}

// add adds a version of the problem to those that are searched.
func (f *finder) add(x version) {
	f.views = append(f.views, newView(f.found, x))
	f.versions++
}

// work returns the work counted so far.
func (f *finder) work() (steps int64) {
	for _, v := range f.views {
		steps += v.schedule.steps
	}
	return steps
}

// find returns the best plan, or the smallest if none fits.
func (f *finder) find(ask func(*finder)) (*plan.Plan, error) {
	var err error
	if f.grid.vast && f.request.Budget > 0 { // asking others is quicker there than planning for a rung
		if ask(f); !f.settled(f.params.farEnough) {
			err = f.pickRung()
		}
	} else {
		err = f.pickRung()
		ask(f) // last, so that others do not affect what joint finds on its own
	}
	if f.ctx.Err() != nil && f.interim != nil && better(f.interim, f.best) {
		f.best = f.interim
	}
	if f.best == nil && f.smallest == nil && f.ctx.Err() != nil {
		if x, err := f.first(); err == nil {
			f.note(x)
		}
	}
	switch {
	case f.best != nil:
		f.writeBound(f.best)
		return f.best.pl, nil
	case f.smallest != nil: // the smallest there is
		return f.smallest.pl, nil
	case err == nil:
		err = f.ctx.Err()
	}
	return nil, err
}

// first makes a plan of the initial choices, for a call that was cancelled before it had any. It takes about
// as long as reading the problem did.
func (f *finder) first() (*outcome, error) {
	f.ctx = context.WithoutCancel(f.ctx)
	f.grid.probes = false
	limit := f.request.Budget
	if limit <= 0 {
		limit = f.grid.limit(f.grid.top)
	}
	v := f.views[0]
	v.applyMargin(limit, 0)
	v.cover.costs.forget()
	pr := prices{copy: 1, recompute: 1}
	if v.off.recompute {
		pr.recompute = forbidden
	}
	v.cover.choose(pr, nil)
	v.schedule.run()
	return v.realize(limit, 1, math.MaxInt64)
}

// pickRung finds the rung for the budget, and below it the smallest that takes no longer. If other managers'
// plans are known already it plans for the budget itself: the few rungs of such a problem are far apart.
func (f *finder) pickRung() error {
	if (f.off.ladder || f.best != nil) && f.request.Budget > 0 {
		incumbent := int64(math.MaxInt64)
		if f.best != nil {
			incumbent = f.best.time
		}
		x, err := f.ladder.fromNothing(f.request.Budget, incumbent)
		if err != nil {
			return err
		}
		if x.best != nil {
			f.note(x.best)
		}
		return err
	}
	at := f.grid.top
	x, err := f.ladder.rung(at)
	if err != nil {
		return err
	}
	if b := f.request.Budget; b > 0 && x.best.pl.Footprint > b {
		at = f.grid.at(b)
		if x, err = f.ladder.rung(at); err != nil {
			return err
		}
	}
	if x.best == nil {
		return nil
	}
	f.note(x.best)
	if f.request.Budget > 0 && len(f.p.Buffers) > f.params.tieBuffers {
		// a rung takes seconds there, and lower rungs would only reduce the footprint at the same step time
		return nil
	}
	return f.ladder.descend(at, x.best.time)
}

// writeBound records how much faster a plan could be at most.
func (f *finder) writeBound(x *outcome) {
	if f.p.HasTimes {
		limit := f.request.Budget
		if limit == 0 {
			limit = x.pl.Footprint
		}
		known := x.time * int64(f.p.Iterations)
		turns := f.params.proofTurns * f.params.turns(f.m.n)
		bound := f.bounder.prove(limit, turns, known, f.params.proofOf(f.request.Work))
		x.pl.StepBound = perIteration(f.p, bound)
	}
	if m := f.m; len(m.choices) == 0 {
		x.pl.LowerBound = m.peak
	}
	if x.pl.SectionBytes > 0 {
		x.pl.Note(
			"large buffers are cut into sections of %d MiB, which takes a target that maps memory by pages",
			x.pl.SectionBytes>>20,
		)
	}
}
