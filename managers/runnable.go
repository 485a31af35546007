package managers

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Our plans for eager PyTorch.
//
// The problem: a plan for eager PyTorch is what [Eager] leaves of a planner's decisions. It reruns whole
// regions where a planner thought of single ops, brings swapped inputs back with them, and keeps what hooks
// cannot reach. So it can take more than the budget that the decisions meet. And where a network is a long
// chain of like layers, managers that decide by blocks (sqrt, rotor) lose less of their plans.
//
// The approach: plan and convert. If the result does not fit, plan again with a budget that is smaller by
// what was too much, a few times. Then ask the other managers, convert their plans in the same way, and take
// the fastest that fits. So is our own plan for an executor that can do everything: what PyTorch can carry
// out of it may be faster than the plan for PyTorch alone (GPT-2 small at batch 8 on a simulated A100, in
// 60 % of the memory: +6.8 % and +7.3 %). Plans that rerun regions and do not fit get swaps as well: see
// [lighter]. In a large problem others are asked only while nothing fits, since each takes seconds, and ours
// is not made twice.
//
// Complexity: that of the managers. Rejected: making joint's search convert each candidate (a conversion
// takes as long as a thousand schedules).

const (
	// eagerTries bounds how often our planner plans for one request.
	eagerTries = 4
	// Up to askedAnyway ops and buffers, others are asked even if our own plan fits.
	askedAnyway = 4000
)

// runnable is our planner, whose plans of a problem for eager PyTorch are for [plan.TorchEager] and fit the
// budget if one of the others' plans does.
type runnable struct {
	plan.Manager
	asked []plan.Manager
}

// Plan implements plan.Manager.
func (m runnable) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	first, err := m.Manager.Plan(ctx, p, r)
	if err != nil || !p.EagerOnly || r.Budget <= 0 || len(first.Absences) == 0 {
		return first, err
	}
	s := eagerSearch{ctx: ctx, p: p, r: r}
	smaller := r
	smaller.Near = nil // its bound would be that of another budget
	pl := first
	for try := int64(1); ; try++ {
		excess := s.take(s.convert(pl))
		if excess <= 0 || try == eagerTries || ctx.Err() != nil {
			break
		}
		smaller.Budget -= try * excess // larger steps each time: less memory need not mean that less is lost
		if pl, err = m.Manager.Plan(ctx, p, smaller); err != nil {
			break
		}
	}
	s.askAll(m.asked, unbound{m.Manager, r.Work})
	if s.best.Plan == nil {
		return first, nil
	}
	best := *s.best.Plan
	best.Manager, best.Budget = first.Manager, r.Budget
	best.StepBound, best.Work, best.Planning = first.StepBound, first.Work, first.Planning
	return &best, nil
}

// unbound is a manager that plans for an executor that can do everything, with its own bound of work.
type unbound struct {
	plan.Manager
	work int64
}

// Info implements plan.Manager.
func (m unbound) Info() plan.Info {
	i := m.Manager.Info()
	i.Name += ", for any executor,"
	return i
}

// Plan implements plan.Manager.
func (m unbound) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	unlimited := *p
	unlimited.EagerOnly, r.Work = false, m.work
	return m.Manager.Plan(ctx, &unlimited, r)
}

// converted is a plan for eager PyTorch and its step time, which is 0 if nobody measured it.
type converted struct {
	*plan.Plan
	time int64
}

// eagerSearch keeps the best plan for eager PyTorch.
type eagerSearch struct {
	ctx  context.Context
	p    *plan.Problem
	r    plan.Request
	best converted
}

// convert returns what eager PyTorch can carry out of a plan: no plan if that is nothing.
func (s *eagerSearch) convert(pl *plan.Plan) (x converted) {
	eager, err := Eager(s.ctx, s.p, pl)
	if err != nil || eager == nil || plan.Validate(s.p, eager) != nil {
		return x
	}
	x.Plan = eager
	if s.r.Evaluator != nil {
		m, err := s.r.Evaluator.Evaluate(s.ctx, s.p, eager)
		if err != nil {
			return converted{}
		}
		x.time = m.StepTime
	}
	return x
}

// take keeps a plan if it is the best so far, and returns by how many bytes it exceeds the budget.
func (s *eagerSearch) take(x converted) (excess int64) {
	if x.Plan == nil {
		return 0
	}
	if s.best.Plan == nil || x.better(&s.best, s.r.Budget) {
		s.best = x
	}
	return x.Footprint - s.r.Budget
}

// better reports whether a is preferred to b: it alone fits, or both fit and it is faster, or it is smaller.
func (a *converted) better(b *converted, budget int64) bool {
	fits, other := a.Footprint <= budget, b.Footprint <= budget
	switch {
	case fits != other:
		return fits
	case fits && a.time != b.time:
		return a.time < b.time
	}
	return a.Footprint < b.Footprint
}

// askAll makes plans of segments, and asks other managers and own, concurrently. In a large problem it asks
// one after the other, without own, until one fits.
func (s *eagerSearch) askAll(others []plan.Manager, own plan.Manager) {
	sources := []func() converted{s.segments}
	for _, m := range others {
		sources = append(sources, func() converted { return s.ask(m) })
	}
	if len(s.p.Ops)+len(s.p.Buffers) > askedAnyway {
		for _, source := range sources {
			if s.best.Plan != nil && s.best.Footprint <= s.r.Budget || s.ctx.Err() != nil {
				return
			}
			s.take(source())
		}
		return
	}
	sources = append([]func() converted{func() converted { return s.ask(own) }}, sources...) // takes longest
	all := make([]converted, len(sources))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(sources)) {
		wg.Go(func() {
			for k := next.Add(1) - 1; int(k) < len(sources) && s.ctx.Err() == nil; k = next.Add(1) - 1 {
				all[k] = sources[k]()
			}
		})
	}
	wg.Wait()
	for _, x := range all { // in the order of the list, whoever was done first
		s.take(x)
	}
}

// ask returns what eager PyTorch can carry out of a manager's plan, with swaps if it needs them to fit.
func (s *eagerSearch) ask(m plan.Manager) (x converted) {
	r := s.r
	r.Work, r.Progress, r.Near = 0, nil, nil
	pl, err := m.Plan(s.ctx, s.p, r)
	if err != nil || pl.Policy != nil || len(pl.Absences) == 0 {
		return x
	}
	if x = newLighter(s, otherConversions).lighten(s.convert(pl)); x.Plan != nil {
		x.Note("%s made this plan", m.Info().Name)
	}
	return x
}
