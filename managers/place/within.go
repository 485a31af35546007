package place

import (
	"context"
	"errors"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// rounds bounds how often a plan is remade because its placement exceeded the budget.
const rounds = 6

// workPerRound bounds each round's search if the caller sets no work: another round under a tighter limit
// finds places sooner than the packer's whole default does.
const workPerRound = 100_000

// Within assembles and places what decide decides, and calls it again with a tighter limit as long as
// addresses take the plan above the request's budget: a manager that plans with sums of live bytes still has
// to pay for holes. decide gets the limit on live bytes, 0 if there is no budget, and must be deterministic.
// The result is the first plan within the budget, else the one with the smallest footprint. If the context is
// cancelled Within returns the best plan so far; if decide then returned its first decisions, they get
// addresses by one greedy pass. The error is the context's only if decide returned nothing. It is
// [plan.ErrBeaten] if the result would take longer than the request's Beat by its decisions alone, or must
// fit and has more bytes alive than the budget. The former is known without a search for places if a greedy
// pass is within the budget: no tighter limit would be tried.
func Within(ctx context.Context, p *plan.Problem, r plan.Request, opt Options,
	decide func(limit int64) (plan.Decisions, error)) (*plan.Plan, error) {
	var best *plan.Plan
	limit := r.Budget
	opt.Capacity, opt.Seed = r.Budget, r.Seed
	if r.MustFit && opt.MostLive == 0 {
		opt.MostLive = r.Budget
	}
	if opt.Work == 0 {
		opt.Work = workPerRound
	}
	for range rounds {
		pl, err := once(ctx, p, r, opt, limit, best == nil, decide)
		if err != nil {
			if best != nil && (ctx.Err() != nil || errors.Is(err, plan.ErrBeaten) ||
				errors.As(err, new(*plan.TooSmall))) {
				return best, nil
			}
			return nil, err
		}
		pl.Budget = r.Budget
		if best == nil || pl.Footprint < best.Footprint {
			best = pl
		}
		if r.Budget <= 0 || pl.Footprint <= r.Budget {
			break
		}
		live, _ := pl.PeakLive()
		if ctx.Err() != nil || live > limit { // it could not even meet the limit it was given
			break
		}
		limit -= pl.Footprint - r.Budget
		if p.CheckBudget(limit) != nil {
			break
		}
	}
	return best, nil
}

// once makes a plan of the decisions for one limit. The first is placed even if the context has ended
// meanwhile: the decisions are worth a greedy pass. A plan that must fit gets no places if none can bring it
// within the budget. A plan that takes longer than the request's Beat gets no search for places if a greedy
// pass shows that this would be the last round.
func once(
	ctx context.Context,
	p *plan.Problem,
	r plan.Request,
	opt Options,
	limit int64,
	first bool,
	decide func(int64) (plan.Decisions, error),
) (*plan.Plan, error) {
	d, err := decide(limit)
	if err != nil {
		return nil, err
	}
	pl, err := Assemble(p, d)
	if err != nil {
		return nil, err
	}
	if opt.MostLive > 0 {
		if live, _ := pl.PeakLive(); live > opt.MostLive {
			return nil, plan.ErrBeaten
		}
	}
	if r.Beat > 0 && pl.Busy(p) > r.Beat {
		if over, err := overGreedily(ctx, p, pl, r.Budget, opt); err != nil || !over {
			return nil, errors.Join(err, plan.ErrBeaten)
		}
	}
	res, err := Place(ctx, p, pl, opt)
	if err != nil && first && ctx.Err() != nil {
		opt.Rule = BestFit
		res, err = Place(context.WithoutCancel(ctx), p, pl, opt)
	}
	pl.Work += res.Work
	return pl, err
}

// overGreedily reports whether a greedy pass takes a plan's footprint above the budget. A search begins with
// the same pass, so it is within the budget whenever the pass is.
func overGreedily(
	ctx context.Context, p *plan.Problem, pl *plan.Plan, budget int64, opt Options,
) (bool, error) {
	if budget <= 0 {
		return false, nil
	}
	trial := *pl // which keeps its instances without places
	trial.Instances = slices.Clone(pl.Instances)
	opt.Work = 1 // a search makes its first pass even so
	res, err := address(ctx, p, &trial, opt)
	return res.Footprint > budget, err
}
