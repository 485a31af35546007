package recompute

import (
	"context"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Activations: what a forward pass leaves for a backward pass, and how decisions about them become a plan.

// activation is a gap between the forward and the backward pass: what recomputing is about.
type activation struct {
	plan.Gap
	made  plan.OpID // the first op that touches the buffer
	bytes int64
}

// pairs returns the forward and backward passes of an iteration. Where phases are unknown it is one pair,
// which turns at the peak.
func pairs(p *plan.Problem) []plan.Pair {
	if all := p.Pairs(); len(all) > 0 {
		return all
	}
	_, at := p.PeakLive()
	return []plan.Pair{{Turn: at, End: plan.OpID(len(p.Ops))}}
}

// turn returns the position at which the first backward pass begins.
func turn(p *plan.Problem) plan.OpID { return pairs(p)[0].Turn }

// activations returns the recomputable gaps of what a forward pass leaves for a backward pass, in the order
// in which the buffers are produced.
func activations(p *plan.Problem, b *chain.Builder, in plan.Pair) []activation {
	var all []activation
	for _, g := range b.Gaps(1, 1) {
		if in.Begin <= g.After && g.After < in.Turn && g.Before >= in.Turn && !g.Dead {
			made := p.TouchesOf(g.Buffer)[0].Op
			all = append(all, activation{Gap: g, made: made, bytes: p.Rounded(g.Buffer)})
		}
	}
	slices.SortStableFunc(all, func(x, y activation) int { return int(x.made) - int(y.made) })
	return all
}

// run is what all managers of this package do around their decisions: check, decide within the budget, sign.
func run(ctx context.Context, p *plan.Problem, r plan.Request, info plan.Info,
	decide func(*chain.Builder) func(limit int64) (plan.Decisions, int64, error)) (*plan.Plan, error) {
	began := time.Now()
	if err := p.Serve(info); err != nil {
		return nil, err
	}
	if err := p.CheckBudget(r.Budget); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ask := decide(chain.New(p))
	var work int64
	pl, err := place.Within(ctx, p, r, place.Options{}, func(limit int64) (plan.Decisions, error) {
		d, w, err := ask(limit)
		work += w
		return d, err
	})
	if err != nil {
		return nil, err
	}
	pl.Manager, pl.Budget, pl.Executor = info.Name, r.Budget, plan.Ideal
	pl.Work += work
	if info.Reading != "" {
		pl.Note("Our reading: %s", info.Reading)
	}
	pl.Planning = time.Since(began)
	return pl, nil
}
