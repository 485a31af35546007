// Package pool holds the managers that leave every buffer in memory and decide where, or leave that to an
// online allocator.
//
// The baselines (direct, caching, expandable, cnmem) and gmlake plan nothing: their plans name a policy,
// which a target emulates or uses. smartpool, stalloc and exact plan addresses ahead, from one iteration, as
// all their kind do.
package pool

import (
	"context"
	"time"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// All returns the managers of this package, baselines first.
func All() []plan.Manager {
	return append(Baselines(), GMLake(), smartPoolBestFit(), smartPoolFirstFit(), smartPoolSwap(), stAlloc(),
		Exact())
}

// planner is a manager made of its description and a function.
type planner struct {
	info plan.Info
	make func(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error)
}

// Info implements plan.Manager.
func (m planner) Info() plan.Info { return m.info }

// Plan implements plan.Manager.
func (m planner) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	began := time.Now()
	if err := p.Serve(m.info); err != nil {
		return nil, err
	}
	if err := p.CheckBudget(r.Budget); err != nil {
		return nil, err
	}
	pl, err := m.make(ctx, p, r)
	if err != nil {
		return nil, err
	}
	pl.Manager, pl.Budget, pl.Planning = m.info.Name, r.Budget, time.Since(began)
	return pl, nil
}

// keepAll assembles the program that keeps every buffer for its whole lifetime.
func keepAll(p *plan.Problem) (*plan.Plan, error) { return plan.Assemble(p, plan.Decisions{}) }

// placed keeps all and places with one rule.
func placed(ctx context.Context, p *plan.Problem, opt place.Options) (*plan.Plan, error) {
	pl, err := keepAll(p)
	if err != nil {
		return nil, err
	}
	res, err := place.Place(ctx, p, pl, opt)
	if err != nil {
		return nil, err
	}
	pl.LowerBound, pl.Work = res.LowerBound, res.Work
	return pl, nil
}
