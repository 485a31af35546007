package joint

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// outcome is a plan and its step time.
type outcome struct {
	pl   *plan.Plan
	time int64
	at   *candidate // that it was made from, if known
	of   *version   // that the candidate is for
}

// better reports whether a is preferred to b among plans that fit.
func better(a, b *outcome) bool {
	return b == nil || a.time < b.time || a.time == b.time && a.pl.Footprint < b.pl.Footprint
}

// found is the plans that a call of Plan has found so far.
type found struct {
	*task
	best *outcome // the best that fits the budget: the fastest, then the smallest
	// by section size, the best of all plans measured within the budget and a few others, the fastest first
	fits     map[int64][]*outcome
	smallest *outcome // the plan with the smallest footprint
	// the best of all plans measured within the budget, on the ladder or not: the result of a cancelled call
	interim *outcome
}

// tellGap reports how close to the bound the best plan so far is.
func (f *found) tellGap() {
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
func (f *found) note(x *outcome) {
	defer f.tellGap()
	if f.smallest == nil || x.pl.Footprint < f.smallest.pl.Footprint {
		f.smallest = x
	}
	if (f.request.Budget == 0 || x.pl.Footprint <= f.request.Budget) && better(x, f.best) {
		f.best = x
	}
}

// keep records a plan that was measured within the budget, for searches that start from plans or borrow from
// them, and reports whether it is one of those. Of plans that take about the same time only the best counts:
// they are mostly alike.
func (f *found) keep(x *outcome, section int64) bool {
	if better(x, f.interim) {
		f.interim = x
	}
	all := f.fits[section]
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
	f.fits[section] = all[:min(len(all), max(f.params.starts, f.params.lenders))]
	return slices.Contains(f.fits[section], x)
}

// bestOf returns the best plan with sections of a size that was measured within the budget, nil if there is
// none.
func (f *found) bestOf(section int64) *outcome {
	if all := f.fits[section]; len(all) > 0 {
		return all[0]
	}
	return nil
}

// startOf returns the best plan that a search with sections of a size can start from, nil if there is none:
// one with such sections, or one of whole buffers.
func (f *found) startOf(section int64) *outcome {
	best, whole := f.bestOf(section), f.bestOf(0)
	if section > 0 && whole != nil && (best == nil || whole.time < best.time) {
		return whole
	}
	return best
}

// settled reports whether further planning is not worth its time: the bound is met, or in a large problem the
// plan is within 1/part of it.
func (f *found) settled(part int64) bool {
	if f.best == nil || !f.large() {
		return f.met()
	}
	return f.within(part)
}

// met reports whether no plan can be faster than the best one.
func (f *found) met() bool { return f.best != nil && f.best.time <= f.bound(f.request.Budget) }

// within reports whether the best plan is within 1/part of the bound.
func (f *found) within(part int64) bool {
	bound := f.bound(f.request.Budget)
	return f.best.time <= bound+bound/part
}
