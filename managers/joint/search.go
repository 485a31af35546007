package joint

import "slices"

// The search for choices that meet the limits.
//
// The problem: which gaps to swap and which to recompute, so that the limits hold and the step is as short as
// possible. The choices alone contain the knapsack problem, and a copy's cost depends on the other copies.
//
// The approach: covers (cover.go) under some fifty prices; the best is covered again under prices that learn
// from its schedule; then local search with the moves of moves.go. It accepts moves that are no worse, and at
// first also moves that are a little worse, as in simulated annealing with a temperature that falls to zero
// by halfway.
//
// Complexity: a schedule per try. Counted work bounds the number of tries, half of it for prices and the rest
// for moves, so a plan is the same on any machine. Rejected: see joint.go.

// search looks for the best choices within the schedule's limits.
func (v *view) search(seeds []*candidate, share int64) *candidate {
	s, par := v.schedule, &v.task.params
	s.setting.lead, s.setting.hasten = 0, false
	v.cover.costs.forget()
	t := trials{view: v, until: s.steps + share/par.searchShare}
	if t.dual() { // of the current limits
		v.task.bounder.bound(slices.Max(s.memory.limit), par.turns(v.task.m.n))
	}
	for _, seed := range seeds {
		t.seed(seed)
	}
	if len(seeds) == 0 || !v.good(t.best) {
		t.sweep()
	}
	if !v.off.prices {
		t.learn()
	}
	if !v.off.search {
		v.improve(t.best, v.until, par.slack)
	}
	return t.best
}

// trials covers the limits under one price after another, until its work is spent.
type trials struct {
	*view
	best  *candidate
	until int64 // counted work
}

// over reports whether the trials are finished: their work is spent, or the best is good enough.
func (t *trials) over() bool {
	return t.best != nil &&
		(t.schedule.steps > t.until || t.good(t.best) || t.task.ctx.Err() != nil)
}

// take makes the schedule of the current choices, and keeps it if it is the best.
func (t *trials) take(pr prices) {
	x := t.estimate()
	x.price = pr
	if t.best == nil || x.better(t.best) {
		t.schedule.take(&x)
		t.best = &x
	}
}

// try covers the limits under the given prices.
func (t *trials) try(pr prices) {
	if !t.over() {
		t.cover.choose(pr, nil)
		t.take(pr)
	}
}

// seed tries a candidate of another limit as it is, then repaired, then covered anew under its prices.
func (t *trials) seed(x *candidate) {
	s := t.schedule
	s.choose(x)
	t.take(x.price)
	t.cover.choose(x.price, x)
	t.take(x.price)
	s.setting.lead, s.setting.hasten = 0, false
	t.try(x.price)
}

// dual reports whether the bound offers prices.
func (t *trials) dual() bool { return !t.off.prices && !t.off.swap && t.p.HasTimes }

// sweep tries prices of every kind.
func (t *trials) sweep() {
	par, dual := &t.task.params, &t.task.bounder.dual
	recompute := 1.0
	if t.off.recompute {
		recompute = forbidden
	}
	if t.dual() {
		for _, share := range par.fillShares {
			if !t.m.inline { // otherwise there are no engines to fill
				t.try(prices{copy: 1, recompute: recompute, fill: true, split: t.cover.quantile(share)})
			}
		}
		for _, scale := range par.dualScales {
			t.try(prices{copy: scale, recompute: recompute, dual: dual})
			t.try(prices{copy: scale, recompute: recompute, dual: dual, byExcess: true})
		}
	}
	for _, byExcess := range []bool{false, true} {
		for _, share := range par.copyPrices {
			if t.off.swap || t.off.prices && share != 1 {
				continue
			}
			t.try(prices{copy: share, recompute: recompute, byExcess: byExcess})
		}
		if !t.off.recompute {
			t.try(prices{copy: forbidden, recompute: 1, byExcess: byExcess})
		}
		if !t.off.swap {
			t.try(prices{copy: 1, recompute: forbidden, byExcess: byExcess})
		}
	}
}

// learn tries the prices that worked best, and some around them, repeatedly with the costs that schedules
// have shown (costs.go).
func (t *trials) learn() {
	par, pr := &t.task.params, t.best.price
	for _, pr := range []prices{
		pr,
		{copy: pr.copy + par.dearer, recompute: pr.recompute, byExcess: pr.byExcess},
		{copy: pr.copy * par.cheaper, recompute: pr.recompute, byExcess: !pr.byExcess},
		{copy: 1, recompute: pr.recompute, dual: &t.task.bounder.dual},
	} {
		if pr.copy < 0 || t.off.swap {
			pr.copy = forbidden
		}
		if t.over() {
			return
		}
		t.cover.costs.forget()
		t.schedule.runAs(t.best)
		for range par.updates {
			if t.over() {
				break
			}
			t.cover.costs.learn(t.schedule)
			t.try(pr)
		}
	}
}

// repair adapts a candidate after limits have been lowered at some positions: it covers the limits again
// under the candidate's prices, and improves the result.
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
	if !v.task.off.search {
		v.improve(&x, s.steps+work, v.task.params.slack)
	}
	return &x
}

// improve changes a few choices at a time until the counted work reaches until. It accepts changes that are
// no worse, and at first also slower ones, by up to a share of slack.
func (v *view) improve(best *candidate, until int64, slack float64) {
	s := v.schedule
	w, ok := v.moves()
	if !ok {
		return
	}
	s.runAs(best)
	now := *best
	now.choice, now.way, now.timing = nil, nil, nil
	began := s.steps
	spent := func() float64 { return float64(s.steps-began) / float64(until-began) }
	for k := 0; s.steps < until && !v.good(best); k++ {
		if k%16 == 0 && v.task.ctx.Err() != nil {
			break
		}
		allowed := slack * (1 - 2*spent())
		w.random()
		x := v.estimate()
		kept := x.near(&now, best, allowed)
		if s.setting.timing != nil {
			kept = v.anneals(&x, &now, slack*float64(best.time), 1-spent())
		}
		if !kept {
			w.undo()
			continue
		}
		now = x
		if x.better(best) {
			best.over, best.time, best.cost = x.over, x.time, x.cost
			s.take(best)
		}
	}
}

// anneals reports whether a candidate replaces the current one, as in simulated annealing. heat is the mean
// increase in energy that is allowed at the start. left is the part of the search that is left.
func (v *view) anneals(x, now *candidate, heat, left float64) bool {
	return v.energy(x, left) <= v.energy(now, left)+heat*left*left*v.rnd.ExpFloat64()
}

// energy is the time of a candidate, plus a penalty for what exceeds its limits: a multiple of the time to
// copy that out and in, which grows towards the end of the search.
func (v *view) energy(x *candidate, left float64) float64 {
	press := &v.task.params.press
	return float64(x.time) + float64(x.over)*v.task.perByte*(press[1]-(press[1]-press[0])*left)
}
