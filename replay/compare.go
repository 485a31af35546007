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
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// Target carries plans out: the simulator, a device, the live process. It may be used from several goroutines
// unless it says otherwise.
type Target interface {
	// Name is the target's name, such as sim, cuda:0 or live.
	Name() string
	// Run carries a validated plan out and measures it.
	Run(ctx context.Context, p *plan.Problem, pl *plan.Plan, o plan.RunOptions) (plan.Measurement, error)
}

// Simulated is the simulator as a [Target].
type Simulated struct {
	// Charts records usage and what each queue did.
	Charts bool
}

// Name implements Target.
func (Simulated) Name() string { return "sim" }

// Run implements Target.
func (s Simulated) Run(ctx context.Context, p *plan.Problem, pl *plan.Plan,
	o plan.RunOptions) (plan.Measurement, error) {
	return sim.Run(ctx, p, pl, sim.Options{Spans: s.Charts, Usage: s.Charts, Cap: o.Cap})
}

// Options say how to compare.
type Options struct {
	// Budget is the device's, in bytes; 0 for none.
	Budget int64
	// Margin is kept free within the budget, in bytes.
	Margin int64
	Seed   uint64
	// Work bounds each manager's search in its own units; 0 is each one's default.
	Work int64
	// Known, if not nil, returns the plans that a manager made of the problem for other budgets: see
	// [plan.Request].
	Known func(manager string) []*plan.Plan
	// Targets carry out every plan as it is made, several at once; none means the simulator.
	Targets []Target
	// Devices carry out every plan too, one after the other after all are made, so that planning does not
	// disturb the measurements.
	Devices []Device
	// Eager, if not nil, turns a plan into what eager PyTorch can run, measured beside it; nil if nothing is
	// left of the plan then.
	Eager func(ctx context.Context, p *plan.Problem, pl *plan.Plan) (*plan.Plan, error)
	// Limit bounds the time for planning with one manager; 0 for none. A manager that reaches it returns its
	// best plan so far.
	Limit time.Duration
	// Parallel is how many managers plan at once; 0 for as many as there are processors.
	Parallel int
	// Update, if not nil, is called when planning with a manager begins, with its progress (Done false), and
	// with each result as it comes. It is called from one goroutine at a time.
	Update func(Progress)
}

// Progress reports on one manager.
type Progress struct {
	Index   int // of the manager in its list, or of the plan if a device carries it out
	Manager string
	Done    bool
	// Finished and Total are how much of its planning is done and to be done, in its own units; both are 0
	// when it begins, and while unknown.
	Finished, Total int64
	// Gap, if Bounded, is how much slower its best plan so far is than the proven bound, as a share of that.
	Gap     float64
	Bounded bool
	// Began is when planning with this manager began.
	Began   time.Time
	Results []Result
	// Target is the device that a plan is being carried out on, "" while managers plan; Doing says in a word
	// or two what is happening.
	Target, Doing string
}

// Result is one manager under one executor on one target.
type Result struct {
	Info     plan.Info
	Executor plan.Executor
	Target   string
	// Available says that the manager can plan the problem and made a plan; Reason says why not.
	Available bool
	Reason    string
	// Defective says that the planner failed or made an invalid plan: a bug in this program, never the
	// user's fault.
	Defective bool
	// Err says why the target did not carry the plan out, nil if it did or there was no plan.
	Err error
	// Stopped says that planning was stopped early, by the caller or at [Options.Limit]: the plan is the best
	// so far, or there is none yet.
	Stopped bool
	// Impossible says that no manager could meet the budget, because of what must stay resident.
	Impossible bool
	Plan       *plan.Plan
	// Valid says that [plan.Validate] accepted the plan. Other plans are neither measured nor shown as
	// results.
	Valid       bool
	Measurement plan.Measurement
	// Fits says that the footprint, the memory outside and the margin together are within the budget.
	Fits bool
	// MaxBatch is the largest batch that fits, 0 if not even one sample does. MaxBatchKnown means that it was
	// searched for, MaxBatchInferred that sizes at other batches were inferred from one recording.
	MaxBatch                        int
	MaxBatchKnown, MaxBatchInferred bool
	// Overhead is how much longer a step takes than with everything kept on the same target, as a share.
	Overhead float64
	// Work, if Worked, is the processor time that the plan adds to the training thread, as a share of the
	// simulated step time of keeping everything: what Overhead would be on an otherwise idle machine.
	Work   float64
	Worked bool
}

// Comparison is the results for one problem.
type Comparison struct {
	Problem *plan.Problem
	Budget  int64
	// Net is how much of the budget is left for buffers.
	Net int64
	// Baseline is the step time of keeping everything in memory, in nanoseconds, on the first target.
	Baseline int64
	Results  []Result
	// Measured is the devices' measurements of the plans in Results: device by device, each in the order of
	// Results.
	Measured []Result
	// Replanned is what the simulator predicts of measured plans that are not in Results: a running training
	// is planned for again.
	Replanned []Result
	// Trained says that a training ran with a plan, of this comparison or another; predictions are then
	// marked as such.
	Trained bool
	// Devices are the devices that measured.
	Devices []Device
	// BatchNotes say what the largest batches are based on; BatchSequence is the sequence length that they
	// are for, 0 for the recording's.
	BatchNotes    []string
	BatchSequence int
	// Smallest is the smallest budget that fits, nil unless it was looked for and found.
	Smallest *Smallest
	Elapsed  time.Duration
	// Fidelity is nil if it was not asked for, or the problem does not come from a recording.
	Fidelity *Fidelity
}

// ErrTooSmall is wrapped by Compare's error if no manager can meet the budget.
var ErrTooSmall = errors.New("the budget is below what has to stay in memory")

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

// carryOut measures the result's plan of a problem on a target.
func (r *Result) carryOut(ctx context.Context, p *plan.Problem, t Target, o plan.RunOptions) {
	m, err := t.Run(ctx, p, r.Plan, o)
	if err != nil {
		r.Reason, r.Err = err.Error(), err
		return
	}
	r.Available, r.Measurement = true, m
	r.Fits = o.Cap == 0 || m.Footprint <= o.Cap
}

// Fastest returns the result with the shortest step time among those that fit, for one executor and target;
// ties go to the smaller footprint. ok is false if none fits.
func (c *Comparison) Fastest(e plan.Executor, target string) (Result, bool) {
	var best *Result
	for i := range c.Results {
		r := &c.Results[i]
		if !r.Available || !r.Fits || r.Executor != e || r.Target != target {
			continue
		}
		if best == nil || better(r, best) {
			best = r
		}
	}
	if best == nil {
		return Result{}, false
	}
	return *best, true
}

// Best returns the fastest result that fits on a target, for any executor: what eager PyTorch can run, others
// can too. Ties go to the smaller footprint and then to the original plan. ok is false if none fits.
func (c *Comparison) Best(target string) (Result, bool) {
	best, ok := c.Fastest(plan.Ideal, target)
	if eager, found := c.Fastest(plan.TorchEager, target); found && (!ok || better(&eager, &best)) {
		return eager, true
	}
	return best, ok
}

// AnyFits reports whether a plan fits in the budget, at the recorded batch or another one searched for, or
// the training does without one; without a budget all do.
func (c *Comparison) AnyFits() bool {
	return c.Budget <= 0 || c.fitsAsItIs() || slices.ContainsFunc(c.Results, func(r Result) bool {
		return r.Available && r.Fits || r.MaxBatchKnown && r.MaxBatch > 0
	})
}

func better(a, b *Result) bool {
	if a.Measurement.StepTime != b.Measurement.StepTime {
		return a.Measurement.StepTime < b.Measurement.StepTime
	}
	return a.Measurement.Footprint < b.Measurement.Footprint
}
