// Package swap has the managers that move buffers to the host and back: vDNN, AutoSwap, tvDNN and
// ZeRO-Offload, one per file.
//
// Its duties:
//   - each manager decides for which idle intervals a buffer goes to the host, when its copies are issued and
//     what waits for them;
//   - it follows its source; where the source is not public or silent, the manager's Info states our reading;
//   - every plan is assembled and placed like any other manager's: a decision pays for its addresses too.
package swap

import (
	"context"
	"time"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// All returns the managers of this package, in the order in which they are listed.
func All() []plan.Manager {
	return []plan.Manager{
		vdnn{policy: offloadAll}, vdnn{policy: offloadConv}, vdnn{policy: dynamic},
		autoswap{order: byMix}, autoswap{order: order(DOA)}, autoswap{order: order(AOA)},
		autoswap{order: order(WDOA)}, autoswap{order: order(SWDOA)},
		tvdnn{}, tvdnn{ilp: true}, zeroOffload{},
	}
}

// placeWork bounds the packer's search for each placement: managers that decide again where addresses do not
// fit place several times.
const placeWork = 50_000

// serves rejects a problem or a budget that a manager cannot handle.
func serves(p *plan.Problem, i plan.Info, r plan.Request) error {
	if err := p.Serve(i); err != nil {
		return err
	}
	return p.CheckBudget(r.Budget)
}

// made signs a finished plan.
func made(pl *plan.Plan, i plan.Info, r plan.Request, began time.Time) *plan.Plan {
	pl.Manager, pl.Executor, pl.Budget = i.Name, plan.Ideal, r.Budget
	pl.Planning = time.Since(began)
	return pl
}

// placed assembles decisions that do not depend on a limit, and gives them addresses.
func placed(ctx context.Context, p *plan.Problem, r plan.Request, d plan.Decisions) (*plan.Plan, error) {
	once := r
	once.Budget = 0 // a tighter limit would not change the decisions, so one round is enough
	opt := place.Options{Work: placeWork}
	if r.MustFit {
		opt.MostLive = r.Budget
	}
	return place.Within(ctx, p, once, opt, func(int64) (plan.Decisions, error) { return d, nil })
}
