package replay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// What comparing is asked for, and what it finds: targets, options, results and the questions they answer.

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

// StoppedEarly marks results that planning for longer might improve.
const StoppedEarly = "stopped early"

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

// today returns the result of PyTorch's default allocator, nil if it was not compared.
func (c *Comparison) today() *Result {
	for i := range c.Results {
		if c.Results[i].isToday() {
			return &c.Results[i]
		}
	}
	return nil
}

// least returns the result with the smallest footprint among those that of accepts, nil for none.
func (c *Comparison) least(of func(r *Result) bool) *Result {
	var least *Result
	for i := range c.Results {
		if r := &c.Results[i]; r.Available && of(r) &&
			(least == nil || r.Measurement.Footprint < least.Measurement.Footprint) {
			least = r
		}
	}
	return least
}

func (c *Comparison) firstTarget() string {
	if len(c.Results) == 0 {
		return Simulated{}.Name()
	}
	return c.Results[0].Target
}

// runnable reports whether PyTorch can carry the result's plan out today: it is a plan for eager PyTorch, or
// it moves nothing and only chooses addresses, with ops in the program's order.
func (r *Result) runnable() bool {
	return r.Executor == plan.TorchEager || r.Plan == nil ||
		len(r.Plan.Absences) == 0 && r.Executor != plan.Reordering
}

// isToday reports whether it is the result of that allocator.
func (r *Result) isToday() bool { return r.Info.Name == Today && r.Available }

// Today is PyTorch's default allocator, which is the baseline of the comparison.
const Today = "caching"

// Name is the manager's name, with a mark if planning was stopped early.
func (r *Result) Name() string {
	if r.Stopped {
		return r.Info.Name + ", " + StoppedEarly
	}
	return r.Info.Name
}

func pointers(list []Result) []*Result {
	all := make([]*Result, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// free is the overhead up to which a plan counts as costing no time.
const free = 0.0005

// Device is a target on real hardware, whose measurements are compared with the simulation.
type Device struct {
	Target
	// About describes it for people: NVIDIA H200, 139.8 GiB.
	About string
	// Eager means that it is a running training: it carries out only plans for [plan.TorchEager], its
	// footprint is a step's peak of allocated bytes, and its program decides how long steps take.
	Eager bool
	// Pools means that it is the allocator of a running training: it carries out plans that only choose
	// addresses.
	Pools bool
}

// fitsAsItIs is [FitsAsItIs] of the comparison's problem.
func (c *Comparison) fitsAsItIs() bool {
	held, _ := c.Problem.PeakLive()
	return FitsAsItIs(c.Problem.Source, held, c.Net)
}

// FitsAsItIs reports whether a training needs no plan: it was recorded on a CPU, where no allocator keeps
// segments, and its peak of live bytes is within net, what the budget leaves for buffers.
func FitsAsItIs(source *timeline.Device, peak, net int64) bool {
	return source != nil && source.Info.Kind == traces.DeviceCPU && peak <= net
}

// Smallest is the smallest budget that was found in which a plan fits.
type Smallest struct {
	// Budget is the device's, in bytes, and Text what to type for it.
	Budget int64
	Text   string
	// Result is the answer of a comparison with this budget.
	Result Result
	// Least says that no budget below can be met, up to the rounding of Text.
	Least bool
	// Runnable is the smallest budget for a plan that PyTorch can run today, nil if Result is one or none was
	// found.
	Runnable *Smallest
	// Command is the command line that compares with this budget, "" if nobody set it.
	Command string
}
