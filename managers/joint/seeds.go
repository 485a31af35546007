package joint

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Other managers' plans.
//
// The problem: at some budgets another method's plan is better than what the ladder finds. The clearest case
// is deep chains in little memory: which results stay in which sweep is decided by dynamic programming
// (rotor) in a moment, and is hardly ever found by changing one choice at a time.
//
// The approach: after the ladder, and only if its plan is above the bound, ask other managers for plans at
// this very budget. The best of all is taken, so joint is never slower than any of them, and the search
// continues from it with moves that the ladder does not use (retime.go). A manager that only swaps, or only
// recomputes, is not asked if the bound of that alone is above the best time known. For eager PyTorch we ask
// no other manager here, because it couldn't carry out their plans. Package managers converts all plans
// first.
//
// Hot searches (deepen) get small problems out of a local minimum. Among hundreds of absences the same heat
// changes more for the worse than a search can put right. There the heat must be about what one absence
// costs (refine). The search for sections of buffers starts from the best plan for whole ones, if it has none
// that is faster: by itself it changes one section after the other.
//
// All this is done for the caller's budget alone. What searches find differs by chance, so the step time can
// rise with the budget: on PipeDream's AlexNet, at nine budgets about 1 % apart, it does twice, by 0.02 and
// 0.23 %. To rule that out, a plan that fits would have to be withheld because the search at a larger budget
// does not find it, as on the ladder; or every smaller budget would have to be planned for as well. Instead,
// callers that plan for several budgets pass the plans that they have: see package managers.
//
// Complexity: that of the others. Most of it would go into places for plans that lose, so with a thousand
// buffers or more they are told the step time to beat. A manager whose decisions fit but take a few percent
// longer than that does not search for places: that plan would be its last. If planning takes seconds they
// are asked one by one, the quickest first, until the plan is near the bound; that can miss a plan of theirs
// that is slightly faster. With tens of thousands of buffers they come first, and if one of them is near the
// bound the ladder, whose rungs take seconds, is not made at all. All are asked there, until the bound is
// met: our own search finds little in the time available. Rejected: asking at the rungs of the ladder. By
// construction the step time would then never rise with the budget, even where another manager's plan is the
// best. But it asks ten times, and at budgets other than the caller's, so that at the caller's own budget
// another manager could be better than joint.

// askOthers asks other managers for their plans if the best so far is above the bound, and continues the
// search from the best of theirs, and from our own.
func (f *finder) askOthers(others []plan.Manager) {
	if len(others) == 0 || f.request.Budget <= 0 || f.p.EagerOnly || f.settled(f.params.nearEnough) {
		return
	}
	var seed *outcome // the best of their plans
	near, count := f.params.nearEnough, 0
	huge := len(f.p.Buffers) > f.params.tieBuffers
	if huge {
		near = math.MaxInt64 // our own search finds little there: ask all that may be faster
	}
	for _, family := range []plan.Family{plan.Combining, plan.Recomputing, plan.Swapping} {
		var asked []plan.Manager
		for _, m := range others {
			if m.Info().Family == family {
				asked = append(asked, m)
			}
		}
		if f.large() { // one by one, while it is worth the time
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

// askAll asks managers concurrently, notes their plans in the order of the list, and returns the best that
// fits among their plans and the given one.
func (f *finder) askAll(managers []plan.Manager, best *outcome) *outcome {
	got := make([]*outcome, len(managers))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(managers)) {
		wg.Go(func() {
			for k := next.Add(1) - 1; int(k) < len(managers) && f.ctx.Err() == nil; k = next.Add(1) - 1 {
				got[k] = f.ask(managers[k], f.best != nil)
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

// lose reports whether no manager of a family can come close to the best plan, because the bound of only
// swapping, or only recomputing, is above it by a few percent. A slightly slower plan may be a good start for
// a search. The bound counts shares of buffers, so it also holds for managers that cut them.
func (f *finder) lose(family plan.Family) bool {
	if f.best == nil || !f.p.HasTimes || family == plan.Combining {
		return false
	}
	m := f.m
	bound := alone(m, family).bound(f.request.Budget, f.params.turns(m.n))
	return perIteration(f.p, bound) > f.best.time+f.best.time/f.params.luck
}

// alone bounds the step time of plans that only swap, or only recompute.
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

// forever is the time of a copy that is never made, in nanoseconds.
const forever = int64(1) << 50

// askSeeds asks every seed for its plan, notes it, and continues the search from each plan that allows it.
func (f *finder) askSeeds(seeds []plan.Manager) {
	for _, seed := range seeds {
		if f.ctx.Err() != nil {
			return
		}
		x := f.ask(seed, false)
		if x == nil {
			continue
		}
		f.note(x)
		for _, v := range f.views {
			if f.request.Budget > 0 && v.section == x.pl.SectionBytes {
				v.searchOn(x, anneal{share: f.params.slack, work: f.rungWork, pack: f.pack})
			}
		}
	}
}

// ask returns a manager's plan, nil if it cannot serve the problem or only a target knows its footprint. If
// the plan must fit it may also be nil where it does not.
func (f *finder) ask(m plan.Manager, mustFit bool) *outcome {
	r := f.request
	r.Work, r.Progress, r.Near, r.MustFit = 0, nil, nil, mustFit
	// Where schedules are quick, much slower plans are useful too, as a start for a search.
	if f.best != nil && f.request.Evaluator != nil && !f.enough(f.params.deepTries) {
		r.Beat = f.best.time + f.best.time/f.params.luck
	}
	pl, err := m.Plan(f.ctx, f.p, r)
	if err != nil || pl == nil || pl.Policy != nil || plan.Validate(f.p, pl) != nil {
		return nil
	}
	x := &outcome{pl: pl}
	if f.request.Evaluator == nil {
		x.time = perIteration(f.p, f.m.baseTime) // only whether they fit tells plans apart
	} else if me, err := f.request.Evaluator.Evaluate(f.ctx, f.p, pl); err == nil {
		x.time = me.StepTime
	} else {
		return nil
	}
	pl.Note("%s made this plan; nothing better was found", m.Info().Name)
	return x
}

// deepen continues the search from the best plans known, including another manager's, with moves that the
// ladder does not use. Hot searches come first: several if work allows thousands of schedules, each from the
// last result. Then come cool ones, unless planning takes seconds or the caller asks for little work.
func (f *finder) deepen(seed *outcome) {
	if !f.enough(f.params.fewTries) { // too few tries find nothing
		return
	}
	hot, repeated := f.params.hot, f.enough(f.params.deepTries)
	if !repeated {
		hot = hot[:1]
	}
	for k, slack := range hot {
		for _, v := range f.views {
			from := []*outcome{f.startOf(v.section)}
			if !repeated && f.best != nil && f.best.pl.SectionBytes != v.section {
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
					v.searchOn(x, anneal{share: slack, round: k, work: f.rungWork, pack: f.pack})
				}
			}
		}
	}
	if repeated || f.request.Work <= 0 && !f.large() {
		f.refine()
	}
	if repeated {
		f.tryOut()
	}
}

// refine continues the search with little heat. The first searches of each view start from different plans,
// because what a search finds depends on where it starts; the others start from the best plan so far. A start
// that is much slower than the best plan of all is skipped. The search for places gets more work than on the
// ladder.
func (f *finder) refine() {
	starts := make([][]*outcome, len(f.views))
	for i, v := range f.views {
		fits := f.fits[v.section]
		starts[i] = slices.Clone(fits[:min(len(fits), f.params.starts)])
		// perhaps the ladder left it out, as faster than a larger rung's
		if x := f.bestOf(v.section); x != nil {
			f.note(x)
		}
		if x := f.startOf(v.section); x != f.bestOf(v.section) {
			starts[i] = slices.Insert(starts[i], 0, x)
		}
	}
	cool := f.params.cool
	for k := range f.params.coolings * len(cool) {
		if k > 0 && k%len(cool) == 0 && f.best != nil && f.within(f.params.farEnough) {
			return
		}
		for i, v := range f.views {
			if f.ctx.Err() != nil || f.best == nil || f.within(f.params.cooled) {
				return
			}
			x := f.startOf(v.section)
			if k < len(starts[i]) {
				x = starts[i][k]
			}
			if x != nil && x.time-f.best.time <= f.best.time/f.params.behind {
				v.searchOn(x, anneal{
					absences: cool[k%len(cool)], round: len(f.params.hot) + k, work: v.deepWork(),
					pack: f.pack * f.params.deepPack,
				})
			}
		}
	}
}

// tryOut searches on from the best plans of each view, and measures every try.
func (f *finder) tryOut() {
	if f.request.Evaluator == nil {
		return
	}
	for _, v := range f.views {
		starts := slices.Clone(f.fits[v.section]) // the list changes while plans are found
		for _, x := range starts[:min(f.params.tryStarts, len(starts))] {
			if f.met() || f.ctx.Err() != nil {
				return
			}
			v.tryOut(x)
		}
	}
}
