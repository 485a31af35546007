package joint

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// finder is the state of one call of Plan.
type finder struct {
	ctx     context.Context
	p       *plan.Problem
	request plan.Request
	off     mechanisms
	params  params
	// the problem as it is and, where useful, without swaps, without reruns, or with large buffers cut into
	// sections
	views    []*view
	bounder  *bounder
	ladder   ladder
	rungWork int64    // counted work for each rung
	perByte  float64  // time to copy a byte out and in, in nanoseconds
	pack     int64    // counted work of a search for places, in the packer's steps
	best     *outcome // the best that fits the budget: the fastest, then the smallest
	// by section size, the best of all plans measured within the budget and a few others, the fastest first
	fits     map[int64][]*outcome
	smallest *outcome // the plan with the smallest footprint
	// the best of all plans measured within the budget, on the ladder or not: the result of a cancelled call
	interim *outcome
}

// outcome is a plan and its step time.
type outcome struct {
	pl   *plan.Plan
	time int64
	at   *candidate // that it was made from, if known
	of   *view      // whose candidate that is
}

// better reports whether a is preferred to b among plans that fit.
func better(a, b *outcome) bool {
	return b == nil || a.time < b.time || a.time == b.time && a.pl.Footprint < b.pl.Footprint
}

// newFinder compiles the problem, whole and in sections.
func newFinder(
	ctx context.Context,
	p *plan.Problem,
	r plan.Request,
	off mechanisms,
	par params,
) (*finder, error) {
	f := &finder{ctx: ctx, p: p, request: r, off: off, params: par}
	f.fits = map[int64][]*outcome{}
	m := compile(p, par)
	f.perByte = float64(p.Hardware.D2H.Time(m.peak)+p.Hardware.H2D.Time(m.peak)) / float64(max(m.peak, 1))
	f.bounder = newBounder(m)
	f.ladder = ladder{grid: newGrid(m), finder: f, known: map[int]*rung{}}
	f.views = append(f.views, newView(f, p, m, 0, off))
	// copies take compute time: plans that only recompute are searched for beside plans that do both
	if m.inline && !off.swap {
		only := off
		only.swap = true
		f.views = append(f.views, newView(f, p, m, 0, only))
	}
	// likewise plans that never recompute, because the first rerun makes hooks note all ops
	if m.noting > 0 && !off.recompute {
		only := off
		only.recompute = true
		f.views = append(f.views, newView(f, p, m, 0, only))
	}
	if size := sectionSize(m, off); size > 0 {
		q, err := p.Sectioned(size)
		if err != nil {
			return nil, err
		}
		f.views = append(f.views, newView(f, q, compile(q, par), size, off))
	}
	work := r.Work
	if work <= 0 {
		work = par.defaultWork
	}
	if f.pack = min(f.ladder.pack, max(par.leastPack, work/par.packShare)); off.packing {
		f.pack = 0
	}
	if r.Work <= 0 {
		work = max(work, f.ladder.least*int64(len(f.views))*f.ladder.visits)
	}
	f.rungWork = work / f.ladder.visits
	return f, nil
}

// sectionSize returns the least multiple of a page by a power of two at which the problem has few enough
// sections. It returns 0 if cutting changes nothing or takes too long, if there are no copy engines (a target
// that maps memory by pages has some), and for eager PyTorch, which moves a tensor as a whole.
func sectionSize(m *model, off mechanisms) int64 {
	p, par := m.p, &m.params
	if off.sections || p.EagerOnly || m.inline || p.Kind < traces.Accesses ||
		m.n+len(p.Buffers) > par.sectionRows || len(p.Buffers) > par.sectionBuffers {
		return 0
	}
	for size := par.page; ; size *= 2 {
		var count, cut int64
		for i := range p.Buffers {
			if b := &p.Buffers[i]; b.Life != plan.Persistent {
				count += (b.Size + size - 1) / size
				if b.Size > size {
					cut++
				}
			}
		}
		if cut == 0 {
			return 0
		}
		if count <= par.mostSections+int64(len(p.Buffers)) {
			return size
		}
	}
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
	if f.ladder.vast && f.request.Budget > 0 { // asking others is quicker there than planning for a rung
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
	f.ladder.probes = false
	limit := f.request.Budget
	if limit <= 0 {
		limit = f.ladder.limit(f.ladder.top)
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
	at := f.ladder.top
	x, err := f.ladder.rung(at)
	if err != nil {
		return err
	}
	if b := f.request.Budget; b > 0 && x.best.pl.Footprint > b {
		at = f.ladder.at(b)
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
		turns := f.params.proofTurns * f.params.turns(f.views[0].m.n)
		bound := f.bounder.prove(limit, turns, known, f.params.proofOf(f.request.Work))
		x.pl.StepBound = perIteration(f.p, bound)
	}
	if m := f.views[0].m; len(m.choices) == 0 {
		x.pl.LowerBound = m.peak
	}
	if x.pl.SectionBytes > 0 {
		x.pl.Note(
			"large buffers are cut into sections of %d MiB, which takes a target that maps memory by pages",
			x.pl.SectionBytes>>20,
		)
	}
}

// proofOf is the work for the bound over intervals: less if the caller asks for less work. Work 0 means the
// default.
func (s *params) proofOf(work int64) int64 {
	if work > 0 {
		return min(s.proofWork, work*s.proofWork/s.defaultWork)
	}
	return s.proofWork
}

// turns returns the number of weight updates for a bound over the given number of ops.
func (s *params) turns(ops int) int {
	return max(s.leastTurns, min(s.mostTurns, s.turnsWork/(ops+1)))
}

// bound returns a step time that no plan within the limit can beat, as an evaluator would measure it; 0 if
// there are no times.
func (f *finder) bound(limit int64) int64 {
	if !f.p.HasTimes {
		return 0
	}
	return perIteration(f.p, f.bounder.bound(limit, f.params.turns(f.views[0].m.n)))
}

// perIteration returns the step time as an evaluator reports it, for a time that covers all iterations of the
// problem.
func perIteration(p *plan.Problem, time int64) int64 { return time / int64(p.Iterations) }

// tellGap reports how close to the bound the best plan so far is.
func (f *finder) tellGap() {
	best := f.best
	if best == nil {
		best = f.interim
	}
	if f.request.Near == nil || best == nil || f.request.Budget <= 0 {
		return
	}
	dual := f.bounder.dual // of the current limit: telling changes no plan
	bound := f.bound(f.request.Budget)
	if f.bounder.dual = dual; bound > 0 {
		f.request.Near(max(float64(best.time)/float64(bound)-1, 0))
	}
}

// note records a plan.
func (f *finder) note(x *outcome) {
	defer f.tellGap()
	if f.smallest == nil || x.pl.Footprint < f.smallest.pl.Footprint {
		f.smallest = x
	}
	if (f.request.Budget == 0 || x.pl.Footprint <= f.request.Budget) && better(x, f.best) {
		f.best = x
	}
}

// measured records a plan that was measured within the budget, for searches that start from plans. Of plans
// that take about the same time only the best counts: they are mostly alike.
func (f *finder) measured(x *outcome, v *view) {
	if better(x, f.interim) {
		f.interim = x
	}
	all := f.fits[v.section]
	k := slices.IndexFunc(all, func(y *outcome) bool {
		return max(x.time-y.time, y.time-x.time) <= y.time/f.params.alike
	})
	switch {
	case k < 0:
		all = append(all, x)
	case better(x, all[k]):
		all[k] = x
	}
	slices.SortStableFunc(all, func(a, b *outcome) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.pl.Footprint, b.pl.Footprint))
	})
	all = all[:min(len(all), f.params.starts)]
	f.fits[v.section] = all
	if slices.Contains(all, x) {
		x.at, x.of = &candidate{}, v
		v.schedule.take(x.at)
	}
}

// bestOf returns the best plan of a view that was measured within the budget, nil if there is none.
func (f *finder) bestOf(v *view) *outcome {
	if all := f.fits[v.section]; len(all) > 0 {
		return all[0]
	}
	return nil
}
