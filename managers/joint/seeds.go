package joint

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Other managers' plans.
//
// The problem: at some budgets another method's plan is better than what the ladder comes to. Deep chains in
// little memory are the plainest case: which results stay in which sweep is decided by dynamic programming
// (rotor) in a moment, and hardly found by moving one choice at a time.
//
// Way chosen: behind the ladder, and only where its plan is above the bound, others are asked for theirs at
// the very budget. The best of all is taken, so that joint is never slower than any of them, and it is
// searched on from with moves that the ladder does without (timing.go). A manager that only swaps, or only
// recomputes, is not asked where the bound of that alone is above what is known. For eager PyTorch nobody is
// asked: others plan what it cannot carry out.
//
// Complexity: what the others take. Most of it would go into places for plans that lose: with a thousand
// buffers and more they are told the step time to beat. Those that decide on what takes longer by some
// percent, and that fits, search for no places: that plan would be their last. Where planning takes seconds
// they are asked one by one, the quickest first, until the plan is near the bound; that can leave a plan of
// theirs unseen that is faster by less. With tens of thousands of buffers they come first, and where one of
// them is near the bound the ladder, whose rungs take seconds, is not made at all. All are asked there, until
// the bound is met: the own search finds little in the time that there is. Rejected: asking at the
// rungs of the ladder, which would keep the step time from rising with the budget by construction also where
// another's plan is the best, but asks ten times and at budgets that are not the caller's, so that others
// could be better there.

// Seeded returns our planner with other managers to ask where it does not meet its bound: it is never slower
// than any of them. The zero value asks nobody.
func Seeded(others ...plan.Manager) Joint { return Joint{seeds: others} }

// askOthers asks other managers for their plans where the best so far is above the bound, and searches on
// from the best of theirs, and from our own.
func (f *finder) askOthers(others []plan.Manager) {
	if len(others) == 0 || f.request.Budget <= 0 || f.p.EagerOnly || f.settled(f.params.nearEnough) {
		return
	}
	var seed *outcome // the best of theirs
	near, count := f.params.nearEnough, 0
	huge := len(f.p.Buffers) > f.params.tieBuffers
	if huge {
		near = math.MaxInt64 // the own search finds little there: all who may be faster are asked
	}
	for _, family := range []plan.Family{plan.Combining, plan.Recomputing, plan.Swapping} {
		var asked []plan.Manager
		for _, m := range others {
			if m.Info().Family == family {
				asked = append(asked, m)
			}
		}
		if f.large() { // one by one, for as long as it is worth it
			for len(asked) > 0 && !f.settled(near) && !f.lose(family) && f.ctx.Err() == nil {
				seed, asked = f.askAll(asked[:1], seed), asked[1:]
				if count++; count == f.params.quick && !huge {
					near = f.params.farEnough
				}
			}
			continue
		}
		if len(asked) > 0 && !f.met() && !f.lose(family) {
			seed = f.askAll(asked, seed)
		}
	}
	f.deepen(seed)
}

// askAll asks managers side by side, notes their plans in the order of the list, and returns the best plan
// that fits of theirs and of what is given.
func (f *finder) askAll(managers []plan.Manager, best *outcome) *outcome {
	got := make([]*outcome, len(managers))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(managers)) {
		wg.Go(func() {
			for k := next.Add(1) - 1; int(k) < len(managers) && f.ctx.Err() == nil; k = next.Add(1) - 1 {
				got[k] = f.ask(managers[k])
			}
		})
	}
	wg.Wait()
	for _, x := range got {
		if x == nil {
			continue
		}
		f.note(x)
		if x.pl.Footprint <= f.request.Budget && better(x, best) {
			best = x
		}
	}
	return best
}

// large reports whether planning takes seconds.
func (f *finder) large() bool { return f.views[0].m.n+len(f.p.Buffers) > f.params.largeProblem }

// settled reports whether what can still be won is not worth the time that it takes: nothing, or in a large
// problem such a part of the bound.
func (f *finder) settled(part int64) bool {
	if f.best == nil || !f.large() {
		return f.met()
	}
	bound := f.bound(f.request.Budget)
	return f.best.time <= bound+bound/part
}

// met reports whether nothing can be faster than the best plan.
func (f *finder) met() bool { return f.best != nil && f.best.time <= f.bound(f.request.Budget) }

// lose reports whether no manager of a family can be as fast as the best plan, since the bound of doing one
// thing alone is above it, by some percent: a plan that is hardly slower may serve to search on from. The
// bound counts shares of buffers, so that it also holds for managers that cut them.
func (f *finder) lose(family plan.Family) bool {
	if f.best == nil || !f.p.HasTimes || family == plan.Combining {
		return false
	}
	m := f.views[0].m
	bound := alone(m, family).bound(f.request.Budget, f.params.turns(m.n))
	return perIteration(f.p, bound) > f.best.time+f.best.time/f.params.luck
}

// alone bounds the step time of plans that do nothing but swap, or nothing but recompute.
func alone(of *model, family plan.Family) *bounder {
	m := *of
	m.gaps = slices.Clone(m.gaps)
	for g := range m.gaps {
		if x := &m.gaps[g]; family == plan.Swapping {
			x.canRecompute, x.producersRerun = false, false
		} else {
			x.canSwap, x.evictTime, x.prefetchTime = false, forever, forever
		}
	}
	return newBounder(&m)
}

// forever is the time of a copy that nobody makes, in nanoseconds.
const forever = int64(1) << 50

// askSeeds asks every seed for its plan, notes it, and searches on from those that can be searched on from.
func (f *finder) askSeeds(seeds []plan.Manager) {
	for _, seed := range seeds {
		if f.ctx.Err() != nil {
			return
		}
		x := f.ask(seed)
		if x == nil {
			continue
		}
		f.note(x)
		for _, v := range f.views {
			if f.request.Budget > 0 && v.section == x.pl.SectionBytes {
				v.searchOn(x.pl, f.params.slack, 0)
			}
		}
	}
}

// ask returns a manager's plan, nil where it cannot serve the problem or only a target knows its footprint.
func (f *finder) ask(m plan.Manager) *outcome {
	r := f.request
	r.Work, r.Progress, r.Near = 0, nil, nil
	// Where schedules are quick, plans that are much slower are of use, too: to search on from.
	if f.best != nil && f.request.Evaluator != nil && !f.enough(f.params.deepTries) {
		r.Beat = f.best.time + f.best.time/f.params.luck
	}
	pl, err := m.Plan(f.ctx, f.p, r)
	if err != nil || pl == nil || pl.Policy != nil || plan.Validate(f.p, pl) != nil {
		return nil
	}
	x := &outcome{pl: pl}
	if f.request.Evaluator == nil {
		x.time = perIteration(f.p, f.views[0].m.baseTime) // nothing tells plans apart but whether they fit
	} else if me, err := f.request.Evaluator.Evaluate(f.ctx, f.p, pl); err == nil {
		x.time = me.StepTime
	} else {
		return nil
	}
	pl.Note("%s made this plan; nothing better was found", m.Info().Name)
	return x
}

// deepen searches on from the best plans known, another manager's among them, with moves that the ladder does
// without. Where schedules are so quick that a search has thousands of them, it does so several times, from
// what the last time came to; at first it takes much worse steps on the way than later.
func (f *finder) deepen(seed *outcome) {
	rounds := f.params.deepSlack
	switch {
	case !f.enough(f.params.fewTries): // a search of a handful finds nothing
		return
	case !f.enough(f.params.deepTries):
		rounds = rounds[:1]
	}
	for k, slack := range rounds {
		for _, v := range f.views {
			from := []*outcome{f.bestOf[v.section]}
			if len(rounds) == 1 && f.best != nil && f.best.pl.SectionBytes != v.section {
				from = nil
			}
			if k == 0 && seed != nil && seed.pl.SectionBytes == v.section {
				from = append(from, seed)
			}
			for _, x := range from {
				if f.settled(f.params.farEnough) || f.ctx.Err() != nil {
					return
				}
				if x != nil {
					v.searchOn(x.pl, slack, k)
				}
			}
		}
	}
}

// enough reports whether the work of a search is enough to try a number of schedules.
func (f *finder) enough(schedules int64) bool {
	m := f.views[0].m
	return f.rungWork >= schedules*int64(m.n+len(m.gaps))
}

// searchOn improves a plan, at first by taking steps that are slower by so much: its absences are read as
// choices, its positions are ours. Where addresses take the outcome above the budget, it is mended once
// within less.
func (v *view) searchOn(pl *plan.Plan, slack float64, k int) {
	s, limit := v.schedule, v.finder.request.Budget
	v.rnd = rand.New(rand.NewPCG(v.finder.request.Seed+uint64(slack*1e6)+uint64(k), uint64(limit)))
	v.target = (v.finder.bound(limit)+1)*int64(v.p.Iterations) - 1
	v.applyMargin(limit, 0)
	v.cover.excess()
	s.setting.timing = newTiming(v.m)
	defer func() { s.setting.timing = nil }()
	v.read(pl)
	x := v.estimate()
	s.take(&x)
	work := v.finder.rungWork
	for range 2 {
		v.improve(&x, s.steps+work, slack)
		s.runAs(&x)
		if x.over > 0 || v.finder.best != nil && perIteration(v.finder.p, x.time) > v.finder.best.time {
			return
		}
		y, err := v.realize(limit, v.finder.pack, math.MaxInt64)
		if err != nil {
			return
		}
		v.finder.note(y)
		if y.pl.Footprint <= limit {
			return
		}
		v.applyMargin(limit, y.pl.Footprint-limit)
		x, work = v.estimate(), work/2
		s.take(&x)
	}
}

// read sets the schedule's choices and positions to those of a plan.
func (v *view) read(pl *plan.Plan) {
	s, m := v.schedule, v.m
	for g := range s.setting.choice {
		s.setting.choice[g] = keep
	}
	for i := range m.variants {
		s.setting.setWay(int(m.variants[i].op), m.fast[m.variants[i].op])
	}
	for i := range m.variants {
		if o := m.variants[i].op; pl.Variants != nil && pl.Variants[o] != m.fast[o] {
			s.setting.setWay(int(o), pl.Variants[o])
		}
	}
	needed := map[plan.OpID]bool{} // by position, whether what is made again there is needed at once
	for k := range pl.Absences {
		if x := &pl.Absences[k]; x.How == plan.Recompute && x.Fetch == x.Before {
			needed[x.Before] = true
		}
	}
	timing := s.setting.timing
	for k := range pl.Absences {
		x := &pl.Absences[k]
		g := m.gapOf(x.Buffer, x.Before)
		switch {
		case g < 0 || m.gaps[g].dead:
		case x.How == plan.Swap && m.gaps[g].canSwap:
			s.setting.choice[g] = swap
		case x.How == plan.Recompute && m.gaps[g].canRunAgain(x.Fetch):
			s.setting.choice[g], timing.retain[g], timing.leave[g] = recompute, x.Fetch, x.Release
			if !needed[x.Fetch] { // or this chain would not be run
				timing.remake[g] = x.Fetch
			}
		}
	}
	s.setting.lead = 0
}
