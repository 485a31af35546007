package managers

import (
	"context"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// More memory must never be slower.
//
// The problem: what a search finds differs by chance, so a plan for a larger budget can be a little slower
// than one for a smaller budget.
//
// The approach: a plan fits every budget from its footprint on. A caller that plans for several budgets
// passes the plans that it has, and gets the best of these and the new one. That takes an evaluation for
// each.
// Rejected: planning for smaller budgets as well in every call (several times the time, and only as good as
// the budgets that happen to be chosen); leaving out what the search at a larger budget does not find, as
// joint's ladder does (all smaller budgets would get slower plans).

// Knowing makes a manager as our own are: its plan is at least as good as every plan that the request knows.
func Knowing(m plan.Manager) plan.Manager { return knows{m} }

// knows is a manager whose plan is at least as good as every plan that the request knows.
type knows struct{ plan.Manager }

// Plan implements plan.Manager.
func (m knows) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	made, err := m.Manager.Plan(ctx, p, r)
	if err != nil || r.Budget <= 0 || r.Evaluator == nil || len(r.Known) == 0 {
		return made, err
	}
	ctx = context.WithoutCancel(ctx) // what was known before counts even if planning was cut short
	at, err := r.Evaluator.Evaluate(ctx, p, made)
	if err != nil {
		return made, nil
	}
	best, bestTime := made, at.StepTime
	for _, x := range r.Known {
		if x.Footprint > r.Budget || x.Executor != made.Executor || plan.Validate(p, x) != nil {
			continue
		}
		at, err := r.Evaluator.Evaluate(ctx, p, x)
		if err != nil || at.Footprint > r.Budget {
			continue
		}
		if best.Footprint > r.Budget || at.StepTime < bestTime ||
			at.StepTime == bestTime && x.Footprint < best.Footprint {
			best, bestTime = x, at.StepTime
		}
	}
	if best == made {
		return made, nil
	}
	return instead(best, made), nil
}

// instead returns a known plan as the answer to a request that another plan was made for.
func instead(known, made *plan.Plan) *plan.Plan {
	pl := *known
	pl.Manager, pl.Budget, pl.Work, pl.Planning = made.Manager, made.Budget, made.Work, made.Planning
	pl.Notes = slices.Clone(known.Notes)
	if known.Budget != made.Budget {
		pl.Note("made for a budget of %s; for this one nothing better was found",
			timeline.IEC.Bytes(known.Budget))
	}
	// A bound is one for plans with optimizer state in memory, or for those with the state away.
	if pl.StepBound = 0; known.Parks == made.Parks {
		pl.StepBound = made.StepBound
	}
	return &pl
}
