// Package combine has the managers that swap and recompute side by side: capuchin (after Capuchin, 2020),
// delta (after DELTA, 2022) and home (after HOME, 2023).
//
// Its duties:
//   - one file a method, each opening with what its source says, what is our reading, and what it costs:
//     capuchin.go, delta.go, home.go;
//   - what the three share: which copies the link can carry without a wait (lanes.go), the choice for each
//     idle interval and the load that follows (choices.go), the chains of recomputed buffers (reruns.go),
//     choosing (selection.go) by cost (greedy.go), measuring candidates before they have addresses
//     (timing.go), and the algorithms of ops whose workspace would not fit (variants.go).
//
// Package chain determines how a dropped buffer is recomputed.
package combine

import (
	"context"
	"time"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// All returns the managers of this package.
func All() []plan.Manager { return []plan.Manager{capuchin{}, delta{}, home{}} }

// placeWork bounds the packer's search for each placement: where addresses do not fit, decisions are made
// again and placed again, several times.
const placeWork = 20_000

// run makes the plan of a manager: what decide decides in a view of the problem for a limit on live bytes,
// placed within the request's budget. It calls open with each view before anything is decided in it.
func run(ctx context.Context, p *plan.Problem, r plan.Request, info plan.Info, open func(v *view) error,
	decide func(v *view, limit int64) (plan.Decisions, error)) (*plan.Plan, error) {
	if err := p.Serve(info); err != nil {
		return nil, err
	}
	if err := p.CheckBudget(r.Budget); err != nil {
		return nil, err
	}
	began := time.Now()
	var seen *view
	opt := place.Options{Work: placeWork}
	pl, err := place.Within(ctx, p, r, opt, func(limit int64) (plan.Decisions, error) {
		v, err := look(p, limit, seen)
		if err != nil {
			return plan.Decisions{}, err
		}
		if v != seen {
			if seen = v; open != nil {
				if err := open(v); err != nil {
					return plan.Decisions{}, err
				}
			}
		}
		d, err := decide(v, limit)
		d.Variants = v.variants
		return d, err
	})
	if err != nil {
		return nil, err
	}
	pl.Manager, pl.Executor, pl.Budget = info.Name, plan.Ideal, r.Budget
	pl.Planning = time.Since(began)
	if info.Reading != "" {
		pl.Note("%s", info.Reading)
	}
	return pl, nil
}
