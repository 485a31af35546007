package joint

import (
	"context"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Portfolio plans as [Joint] does, then asks other managers, continues the search from their plans, and
// returns the best of all. As measured by the evaluator, it is never worse than any of them. Make one with
// [New].
type Portfolio struct {
	joint Joint
	seeds []plan.Manager
}

// New returns a portfolio of the seeds and our own planner. Seeds that cannot serve a problem, or fail, are
// skipped.
func New(seeds ...plan.Manager) Portfolio { return Portfolio{seeds: seeds} }

// Info implements plan.Manager.
func (Portfolio) Info() plan.Info {
	return plan.Info{
		Name: "portfolio", Ours: true, Family: plan.Combining, Needs: traces.Lifetimes,
		Summary: "Plans as joint does without others' plans, then asks all other managers, searches on " +
			"from each of their plans, and takes the best.",
	}
}

// Plan implements plan.Manager. Work bounds joint's own search; seeds get the request's budget and seed, and
// use their own default work. The step time may rise with the budget if a seed's does.
func (f Portfolio) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	return f.joint.plan(ctx, p, r, f.Info(), func(x *finder) { x.askSeeds(f.seeds) })
}
