package swap

import (
	"context"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Optimizer state on the host.
//
// Problem: Adam keeps two values for each parameter. They are used for a moment of each iteration but are in
// memory for all of it. None of the other managers here moves what lives from one iteration to the next.
//
// Approach: the part of ZeRO-Offload (Ren, Rajbhandari, Yazdani Aminabadi, Ruwase, Yang, Zhang, Li, He:
// "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC 2021) that moves memory. Optimizer
// state waits on the host, comes back for the optimizer's step and leaves again after it. Everything else
// stays where it is, whatever the budget. The plan is about [plan.Problem.Parked], in which the copies are
// part of the ops beside which they happen: compute waits for them.
//
// What differs from the paper: its optimizer runs on the CPU (CPU Adam, a program of its own), so that state
// never comes back at all; gradients go to the host as they are made; the update is delayed by a step to
// overlap with compute; and state is split among the ranks of a training, as in ZeRO-2. Our plan therefore
// copies the state twice per step, where the paper copies the gradients out and the parameters in.
//
// Complexity: one packing. Rejected: absences across the end of an iteration, see [plan.Problem.Parked];
// copies beside the backward pass, because their memory would be needed at the backward peak, which is when
// the state was supposed to be out of the way.
type zeroOffload struct{}

// Info implements [plan.Manager].
func (zeroOffload) Info() plan.Info {
	return plan.Info{
		Name: "zero-offload", After: "Ren 2021", Family: plan.Swapping, Needs: traces.Accesses,
		Reading: "optimizer state is copied back for its step and compute waits for the copies; the CPU " +
			"Adam, gradients on the host and the delayed update are not done.",
		Summary: "Keeps optimizer state on the host except during the optimizer's step, and everything " +
			"else in memory; ignores the budget.",
	}
}

// Plan implements [plan.Manager].
func (m zeroOffload) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	began, info := time.Now(), m.Info()
	if err := p.Serve(info); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q, state := p.Parked()
	if q == nil {
		if err := p.CheckBudget(r.Budget); err != nil {
			return nil, err
		}
		return nil, &plan.Unavailable{Manager: info.Name,
			Reason: "the step has no optimizer state that an optimizer's step alone uses"}
	}
	if err := q.CheckBudget(r.Budget); err != nil {
		return nil, err
	}
	pl, err := placed(ctx, q, r, plan.Decisions{})
	if err != nil {
		return nil, err
	}
	pl = made(pl, info, r, began)
	pl.Parks = true
	if p.EagerOnly {
		pl.Executor = plan.TorchEager
	}
	pl.Note("Our reading: %s", info.Reading)
	pl.Note("%s of optimizer state stays on the host between optimizer steps", timeline.IEC.Bytes(state))
	return pl, nil
}
