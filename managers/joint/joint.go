// Package joint is our own planner.
package joint

import (
	"context"
	"fmt"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Joint plans keep, swap and recompute together with places. Its zero value is ready.
type Joint struct {
	off mechanisms
}

// mechanisms are what tests switch off to see what each is worth.
type mechanisms struct {
	prices, recompute, swap, feedback, search, ladder bool
}

// Info implements plan.Manager.
func (Joint) Info() plan.Info {
	return plan.Info{
		Name: "joint", Ours: true, Family: plan.Combining, Needs: traces.Lifetimes,
		Summary: "keeps, swaps or recomputes each idle interval, with a place for everything, searched on a simulator and measured against a proven bound",
	}
}

// Plan implements plan.Manager. Work counts schedules made; its default grows the fewer ops there are.
func (j Joint) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	return j.plan(ctx, p, r, j.Info(), nil)
}

func (j Joint) plan(ctx context.Context, p *plan.Problem, r plan.Request, info plan.Info, seeds []plan.Manager) (*plan.Plan, error) {
	began := time.Now()
	if err := p.Serve(info); err != nil {
		return nil, err
	}
	if err := p.CheckBudget(r.Budget); err != nil {
		return nil, err
	}
	f := newFinder(ctx, p, r, j.off)
	pl, err := f.find()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	pl.Manager, pl.Budget, pl.Executor = info.Name, r.Budget, plan.Ideal
	pl.Work, pl.Planning = f.work, time.Since(began)
	return pl, nil
}
