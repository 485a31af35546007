// Package replay compares managers. It asks each for a plan of one problem, validates the plans, runs them on
// a target, and names the fastest that fits.
//
// Its duties:
//   - [Compare] runs all managers on one problem and budget, and reports its progress;
//   - [SmallestBudget] looks for a budget that fits where none did;
//   - [Device] measures the same plans on real hardware, beside the simulation;
//   - [Comparison] is the results for a reader: a table and a sentence.
//
// It knows plans and targets but no planner: callers pass the planners in.
package replay

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// Compare plans with every manager and measures every plan. A manager that fails is a result that says so.
// The error is about all of them: a budget below what must reside (it wraps [ErrTooSmall] and a
// [*plan.TooSmall]), or the context's. When the context is cancelled Compare returns the results so far with
// its error. If the cause is [ErrStopped], they include the best plans so far of the managers that were
// planning, measured and marked as such.
func Compare(ctx context.Context, p *plan.Problem, managers []plan.Manager,
	opt Options) (*Comparison, error) {
	began := time.Now()
	c := &Comparison{Problem: p, Budget: opt.Budget, Results: nil}
	if opt.Budget > 0 {
		c.Net = opt.Budget - p.Outside - opt.Margin
		if c.Net <= 0 {
			return nil, fmt.Errorf("%w: %w", ErrTooSmall,
				&plan.TooSmall{Budget: opt.Budget, Need: p.Outside + opt.Margin,
					Held: "context, workspaces and margin alone"})
		}
		if err := p.CheckLeast(c.Net); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTooSmall, err)
		}
	}
	if len(opt.Targets) == 0 {
		opt.Targets = []Target{Simulated{}}
	}
	finish, release := unlessStopped(ctx)
	defer release()
	var err error
	if c.Baseline, err = KeepAll(finish, p, opt.Targets[0]); err != nil {
		if ctx.Err() != nil { // finish is cancelled even where ctx met its deadline
			return nil, fmt.Errorf("keep everything: %w", ctx.Err())
		}
		return nil, err
	}
	x := &contest{problem: p, net: c.Net, baseline: c.Baseline, opt: &opt}
	c.Results = x.run(ctx, finish, managers)
	for _, d := range opt.Devices {
		if c.Measure(ctx, d, x.tell) != nil {
			break
		}
	}
	c.Elapsed = time.Since(began)
	return c, ctx.Err()
}

// KeepAll returns the step time of keeping everything in memory on a target, in nanoseconds, which overheads
// are relative to. The plan needs unlimited memory, so KeepAll is for targets without real memory; a device
// measures its own, see [plan.Measurement.KeepAll].
func KeepAll(ctx context.Context, p *plan.Problem, t Target) (int64, error) {
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		return 0, fmt.Errorf("keep everything: %w", err)
	}
	pl.Manager = "keep-all"
	offsets := make([]int64, len(pl.Instances))
	resident := pl.ResidentOf(p)
	var top int64
	for i := range pl.Instances { // one after the other: only time matters here
		if x := &pl.Instances[i]; x.From < 0 || int(x.To) < len(pl.Steps) ||
			p.Buffers[x.Buffer].Life != plan.Carried {
			offsets[i] = top
			top += x.Size
		} else {
			offsets[i] = offsets[resident[x.Buffer]]
		}
	}
	pl.Place(offsets)
	pl.Order(p)
	m, err := t.Run(ctx, p, pl, plan.RunOptions{})
	if err != nil {
		return 0, fmt.Errorf("keep everything: %w", err)
	}
	return m.StepTime, nil
}

// evaluator lets planners measure candidates on the simulator.
var evaluator = sim.Simulator{}

// contest makes the results of a comparison: it plans with every manager, and measures the plans.
type contest struct {
	problem       *plan.Problem
	net, baseline int64 // of the Comparison
	opt           *Options

	mu sync.Mutex // one Update at a time
}

// tell tells Options.Update, if there is one.
func (x *contest) tell(u Progress) {
	if x.opt.Update != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.opt.Update(u)
	}
}

// run plans with all managers, some at a time, and returns their results in the managers' order: those so far
// if the context is cancelled. finish is what plans are measured under.
func (x *contest) run(ctx, finish context.Context, managers []plan.Manager) (all []Result) {
	workers := x.opt.Parallel
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	results := make([][]Result, len(managers))
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(workers, max(len(managers), 1)) {
		wg.Go(func() {
			for i := range next {
				switch { // ctx may have ended while i waited for this worker
				case Stopped(ctx):
					results[i] = x.notBegun(managers[i : i+1])
				case ctx.Err() == nil:
					results[i] = x.tracked(ctx, finish, i, managers[i])
				}
			}
		})
	}
	begun := 0
	for ; begun < len(managers) && ctx.Err() == nil; begun++ {
		next <- begun
	}
	close(next)
	wg.Wait()
	for _, r := range results {
		all = append(all, r...)
	}
	if Stopped(ctx) {
		all = append(all, x.notBegun(managers[begun:])...)
	}
	return all
}

// tracked plans with the manager at an index, and tells how far it is.
func (x *contest) tracked(ctx, finish context.Context, index int, m plan.Manager) []Result {
	u := Progress{Index: index, Manager: m.Info().Name, Began: time.Now()}
	x.tell(u)
	results := x.one(ctx, finish, m, func(finished, total int64) {
		u.Finished, u.Total = finished, total
		x.tell(u)
	}, func(gap float64) {
		u.Gap, u.Bounded = gap, true
		x.tell(u)
	})
	u.Finished, u.Total, u.Bounded, u.Gap = 0, 0, false, 0
	u.Done, u.Results = true, results
	x.tell(u)
	return results
}

// one plans with one manager and measures its plan everywhere. A planner that panics has a defect, which
// becomes its result and must not take down the others or the screen.
func (x *contest) one(ctx, finish context.Context, m plan.Manager, progress func(part, total int64),
	near func(gap float64)) (results []Result) {
	info, opt := m.Info(), x.opt
	failed := func(reason string) []Result {
		return []Result{{Info: info, Target: opt.Targets[0].Name(), Reason: reason}}
	}
	defer func() {
		if r := recover(); r != nil {
			results = failed(fmt.Sprintf("a bug in this planner: %v", r))
			results[0].Defective = true
		}
	}()
	limited := ctx
	if opt.Limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, opt.Limit)
		defer cancel()
	}
	request := plan.Request{Budget: x.net, Seed: opt.Seed, Work: opt.Work, Evaluator: evaluator,
		Progress: progress, Near: near}
	if opt.Known != nil {
		request.Known = opt.Known(info.Name)
	}
	pl, err := m.Plan(limited, x.problem, request)
	early := limited.Err() != nil
	if ctx.Err() != nil && !Stopped(ctx) { // finish ends a moment later
		finish = ctx
	}
	var unavailable *plan.Unavailable
	switch {
	case errors.As(err, &unavailable):
		return failed(unavailable.Reason)
	case err != nil && Stopped(ctx):
		results = failed(noPlanYet)
		markStopped(results)
		return results
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return failed(fmt.Sprintf("no plan within %s", opt.Limit))
	case err != nil:
		return failed(err.Error())
	}
	results = x.measure(finish, info, pl)
	again := func(p *plan.Problem) (*plan.Plan, error) {
		request.Near = nil // its bound is that of another problem
		return m.Plan(limited, p, request)
	}
	if opt.Eager != nil && len(pl.Absences) > 0 && pl.Executor == plan.Ideal {
		switch eager, err := x.eager(finish, pl, again); {
		case err != nil:
			results = append(results, Result{Info: info, Executor: plan.TorchEager,
				Target: opt.Targets[0].Name(), Reason: err.Error()})
		case eager != nil:
			results = append(results, x.measure(finish, info, eager)...)
		}
	}
	if early {
		markStopped(results)
	}
	return results
}

// eager returns what eager PyTorch can run of a manager's plan. If that does not fit the budget, it has the
// manager plan again for eager PyTorch alone, and takes the smaller of the two.
func (x *contest) eager(
	ctx context.Context, pl *plan.Plan, again func(*plan.Problem) (*plan.Plan, error),
) (*plan.Plan, error) {
	part, err := x.opt.Eager(ctx, x.problem, pl)
	if err != nil || x.net <= 0 || x.problem.EagerOnly || part != nil && part.Footprint <= x.net {
		return part, err
	}
	p := *x.problem
	p.EagerOnly = true
	alone, err := again(&p)
	if err == nil {
		alone, err = x.opt.Eager(ctx, x.problem, alone)
	}
	if err != nil || alone == nil || part != nil && part.Footprint <= alone.Footprint {
		return part, ctx.Err() // the first plan is worth showing
	}
	return alone, nil
}

// measure validates a plan and carries it out on every target.
func (x *contest) measure(ctx context.Context, info plan.Info, pl *plan.Plan) []Result {
	var out []Result
	invalid := plan.Validate(x.problem, pl)
	for _, t := range x.opt.Targets {
		r := Result{Info: info, Executor: pl.Executor, Target: t.Name(), Plan: pl, Valid: invalid == nil}
		if invalid != nil {
			r.Plan, r.Reason, r.Defective = nil, "its plan is not valid: "+invalid.Error(), true
		} else {
			r.carryOut(ctx, x.problem, t, plan.RunOptions{Cap: x.net})
			if r.Available && x.baseline > 0 {
				r.Overhead = float64(r.Measurement.StepTime)/float64(x.baseline) - 1
			}
		}
		out = append(out, r)
	}
	return out
}

// notBegun are the results of managers that had not begun when planning was stopped.
func (x *contest) notBegun(managers []plan.Manager) []Result {
	var all []Result
	for _, m := range managers {
		all = append(all, Result{Info: m.Info(), Target: x.opt.Targets[0].Name(), Reason: neverBegan,
			Stopped: true})
	}
	return all
}
