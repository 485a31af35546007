// Package recompute holds the managers that drop activations and run their ops again, none of which swaps.
//
// Its duties:
//   - sqrt: segments of about sqrt(n) layers, re-run whole (Chen 2016);
//   - dtr: an online policy that evicts when memory is short, carried out at planning time (Kirisame 2021);
//   - checkmate and checkmate-lp: a mixed-integer program over stages, solved or rounded (Jain 2020);
//   - [Eager]: turns any decisions into what PyTorch can carry out today.
//
// What runs again for a dropped buffer is package chain's business; where buffers lie is package place's.
package recompute

import (
	"context"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// All returns the package's managers, simplest first.
func All() []plan.Manager { return []plan.Manager{Sqrt(), DTR(), CheckmateLP(), Checkmate()} }

// activation is a gap between the forward and the backward pass: what recomputing is about.
type activation struct {
	plan.Gap
	made  plan.OpID // the first op that touches the buffer
	bytes int64
}

// turn returns the position at which the backward pass begins; where phases are unknown, that of the peak.
func turn(p *plan.Problem) plan.OpID {
	if i := slices.IndexFunc(p.Ops, func(op plan.Op) bool { return op.Phase == traces.PhaseBackward }); i >= 0 {
		return plan.OpID(i)
	}
	_, at := p.PeakLive()
	return at
}

// activations returns the recomputable gaps that the turn lies in, in order of the op that makes the buffer.
func activations(p *plan.Problem, b *chain.Builder, turn plan.OpID) []activation {
	var all []activation
	for _, g := range b.Gaps(1, 1) {
		if g.After < turn && g.Before >= turn && !g.Dead {
			all = append(all, activation{Gap: g, made: p.TouchesOf(g.Buffer)[0].Op, bytes: p.Rounded(g.Buffer)})
		}
	}
	slices.SortStableFunc(all, func(x, y activation) int { return int(x.made) - int(y.made) })
	return all
}

// run is what all managers of this package do around their decisions: check, decide within the budget, sign.
func run(ctx context.Context, p *plan.Problem, r plan.Request, info plan.Info, decide func(*chain.Builder) func(limit int64) (plan.Decisions, int64, error)) (*plan.Plan, error) {
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
