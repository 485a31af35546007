package joint

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/place"
)

// The search for choices within limits.
//
// Problem: which gaps to swap and which to recompute, so that the limits hold and the step is shortest.
// Choosing alone contains the knapsack problem, and a copy's cost depends on the other copies.
//
// Way chosen: covers (cover.go) under some fifty prices, the best of which is covered again under prices that
// learn from its schedule; then local search. A move changes one choice, swaps one for another, treats
// neighbours in time alike, or takes something that compute waits for. A move that is no worse is kept, and
// at first one that is a little worse, as simulated annealing does with a temperature that falls to nothing
// halfway.
//
// Complexity: a schedule for each try. Their number is bounded by counted work, half of it for prices, the
// rest for moves, so that a plan is the same on any machine. Rejected: see joint.go.

// candidate is a set of choices and variants, and what their schedule came to.
type candidate struct {
	choice []choice
	way    []uint8
	lead   float64
	nest   *nest // nil where the schedule has none
	over   int64
	time   int64
	price  prices // under which it was covered
	cost   int64  // copies and recomputation, to tell equals apart
	margin int64  // by how much limits had to be lowered for its plan to fit, where that is known
	greedy bool   // places for its plan were not searched for
}

// better reports whether a meets the limits better than b, or else is faster, or else does less.
func (a *candidate) better(b *candidate) bool {
	if a.over != b.over {
		return a.over < b.over
	}
	if a.time != b.time {
		return a.time < b.time
	}
	return a.cost < b.cost
}

// choose sets what a candidate chose.
func (s *schedule) choose(c *candidate) {
	copy(s.setting.choice, c.choice)
	for i := range s.m.variants {
		o := s.m.variants[i].op
		s.setting.setWay(int(o), c.way[o])
	}
	s.setting.lead = c.lead
	if s.setting.nest != nil && c.nest != nil {
		s.setting.nest.copy(c.nest)
	}
}

// set makes the schedule of a candidate.
func (s *schedule) set(c *candidate) {
	s.choose(c)
	s.run()
}

// take copies the schedule's choices into a candidate.
func (s *schedule) take(c *candidate) {
	c.choice, c.way, c.lead = append(
		c.choice[:0],
		s.setting.choice...), append(
		c.way[:0],
		s.setting.way...), s.setting.lead
	if c.nest = nil; s.setting.nest != nil {
		c.nest = newNest(s.m)
		c.nest.copy(s.setting.nest)
	}
}

func (v *view) estimate() candidate {
	s := v.schedule
	s.run()
	x := candidate{over: s.over, time: s.queues.time}
	for _, g := range s.prefetches.order {
		x.cost += v.m.gaps[g].evictTime + v.m.gaps[g].prefetchTime
	}
	for i := range s.chains.rerunTime {
		x.cost += s.chains.rerunTime[i]
	}
	return x
}

// good reports whether a candidate is as good as can be, or as need be.
func (v *view) good(x *candidate) bool { return x != nil && x.over == 0 && x.time <= v.target }

// search looks for the best choices for the schedule's limits.
func (v *view) search(seeds []*candidate, share int64) *candidate {
	s, f := v.schedule, v.finder
	s.setting.lead = 0
	v.cover.costs.forget()
	var best *candidate
	began := s.steps
	over := func() bool {
		return best != nil &&
			(s.steps-began > share/f.params.searchShare || v.good(best) || f.ctx.Err() != nil)
	}
	take := func(pr prices) {
		x := v.estimate()
		x.price = pr
		if best == nil || x.better(best) {
			s.take(&x)
			best = &x
		}
	}
	try := func(pr prices) {
		if !over() {
			v.cover.choose(pr, nil)
			take(pr)
		}
	}
	redo := 1.0
	if v.off.recompute {
		redo = -1
	}
	if !f.off.prices && !v.off.swap && f.p.HasTimes {
		f.bounder.bound(slices.Max(s.memory.limit), f.params.turns(f.views[0].m.n))
	}
	for _, seed := range seeds { // as they are; and mended under the price that served them
		s.choose(seed)
		take(seed.price)
		v.cover.choose(seed.price, seed)
		take(seed.price)
		s.setting.lead = 0
		try(seed.price)
	}
	if len(seeds) == 0 || !v.good(best) {
		v.sweep(try, redo)
	}
	if !f.off.prices {
		pr := best.price
		for _, pr := range []prices{
			pr,
			{copy: pr.copy + f.params.dearer, recompute: pr.recompute, byExcess: pr.byExcess},
			{copy: pr.copy * f.params.cheaper, recompute: pr.recompute, byExcess: !pr.byExcess},
			{copy: 1, recompute: pr.recompute, dual: &f.bounder.dual},
		} {
			if pr.copy < 0 || v.off.swap {
				pr.copy = -1
			}
			if over() {
				break
			}
			v.cover.costs.forget()
			s.set(best)
			for range f.params.updates {
				if over() {
					break
				}
				v.cover.costs.learn(s)
				try(pr)
			}
		}
	}
	if !f.off.search {
		v.improve(best, v.until, v.finder.params.slack)
	}
	return best
}

// sweep tries prices of all kinds.
func (v *view) sweep(try func(prices), redo float64) {
	f := v.finder
	if !f.off.prices && !v.off.swap && f.p.HasTimes {
		for _, share := range f.params.fillShares {
			if !v.m.inline { // or there are no engines to fill
				try(prices{copy: 1, recompute: redo, fill: true, split: v.cover.quantile(share)})
			}
		}
		for _, scale := range f.params.dualScales {
			try(prices{copy: scale, recompute: redo, dual: &f.bounder.dual})
			try(prices{copy: scale, recompute: redo, dual: &f.bounder.dual, byExcess: true})
		}
	}
	for _, byExcess := range []bool{false, true} {
		for _, share := range f.params.copyPrices {
			if v.off.swap || f.off.prices && share != 1 {
				continue
			}
			try(prices{copy: share, recompute: redo, byExcess: byExcess})
		}
		if redo > 0 {
			try(prices{copy: -1, recompute: 1, byExcess: byExcess})
		}
		if !v.off.swap {
			try(prices{copy: 1, recompute: -1, byExcess: byExcess})
		}
	}
}

// repair mends a candidate after limits have been lowered here and there: it is covered again at the price of
// copying that served best.
func (v *view) repair(old *candidate, work int64) *candidate {
	s := v.schedule
	s.choose(old)
	x := v.estimate()
	x.price = old.price
	s.take(&x)
	v.cover.costs.forget()
	for _, from := range []*candidate{old, nil} {
		v.cover.choose(old.price, from)
		if y := v.estimate(); y.better(&x) {
			y.price = old.price
			s.take(&y)
			x = y
		}
	}
	if !v.finder.off.search {
		v.improve(&x, s.steps+work, v.finder.params.slack)
	}
	return &x
}

// improve changes choices a few at a time and keeps what is no worse; at first also what is slower by up to
// so much.
func (v *view) improve(best *candidate, until int64, first float64) {
	s := v.schedule
	w, ok := v.moves()
	if !ok {
		return
	}
	s.set(best)
	now := *best
	now.choice, now.way, now.nest = nil, nil, nil
	began := s.steps
	for k := 0; s.steps < until && !v.good(best); k++ {
		if k%16 == 0 && v.finder.ctx.Err() != nil {
			break
		}
		slack := first * (1 - 2*float64(s.steps-began)/float64(until-began))
		w.random()
		x := v.estimate()
		if s.setting.nest != nil {
			left := 1 - float64(s.steps-began)/float64(until-began)
			heat := first * float64(best.time) * left * left * v.rnd.ExpFloat64()
			if v.energy(&x, left) <= v.energy(&now, left)+heat {
				now = x
				if x.better(best) {
					best.over, best.time, best.cost = x.over, x.time, x.cost
					s.take(best)
				}
				continue
			}
			w.undo()
			continue
		}
		if x.over < now.over ||
			x.over == now.over && (x.time < now.time || x.time == now.time && x.cost <= now.cost ||
				slack > 0 && float64(x.time) < float64(best.time)*(1+slack)) {
			now = x
			if x.better(best) {
				best.over, best.time, best.cost = x.over, x.time, x.cost
				s.take(best)
			}
			continue
		}
		w.undo()
	}
}

// energy is the time of a candidate, and for what passes its limits some times of what copying that out and
// in would take, the more the less is left of the search.
func (v *view) energy(x *candidate, left float64) float64 {
	return float64(x.time) + float64(x.over)*v.finder.perByte*(24-20*left)
}

// polish improves a plan that fits by what it measures, where what it measures is not what its schedule
// promised: with several streams memory that is used again makes streams wait for each other, which no
// schedule by positions can tell. Candidates whose schedule alone loses are not placed.
func (v *view) polish(best *outcome, at *candidate, limit int64) (*outcome, error) {
	s := v.schedule
	promise := perIteration(v.finder.p, at.time)
	if v.finder.request.Evaluator == nil || !v.finder.grid.probes || v.finder.off.search ||
		best.time-promise <= promise/v.finder.params.interference {
		return best, nil
	}
	w, ok := v.moves()
	if !ok {
		return best, nil
	}
	s.set(at)
	until := s.steps + v.finder.rungWork/int64(len(v.finder.views))/v.finder.params.polishing
	for s.steps < until && v.finder.ctx.Err() == nil && best.time*int64(v.p.Iterations) > v.target {
		w.random()
		x := v.estimate()
		if x.over == 0 && perIteration(v.finder.p, x.time) < best.time {
			pl, err := v.assemble(true)
			if err != nil {
				return nil, err
			}
			y, err := v.measured(pl, place.Options{Rule: place.BestFit})
			if err != nil {
				return nil, err
			}
			if y.pl.Footprint <= limit && better(y, best) {
				best = y
				continue
			}
		}
		w.undo()
	}
	return best, nil
}
