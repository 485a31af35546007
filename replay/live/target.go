package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A training changes while it runs: data differ, others use the machine, clock rates fall. So a plan is
// measured between two stretches of the same training without it, and its overhead is relative to the mean of
// both. After each change a few steps pass untimed, until the allocator and the caches have settled. Memory
// is measured in a separate step, captured op by op, because capturing takes time. The figure is the peak of
// allocated bytes on the device, as in a prediction.
//
// Rejected: timing steps from before the request as the first stretch (some ran while the planner used the
// same processors); the allocator's own peak counters (they belong to the program, and a CPU has none); only
// one stretch without the plan (drift would look like overhead).

// Carrier is one process of a running training, as far as plans need it.
type Carrier interface {
	// Describe captures some of the next steps, with autograd's saves and loads. They must run under the plan
	// of that number; 0 takes steps as they come.
	Describe(ctx context.Context, number int64) (*traces.Trace, error)
	// Carry turns a plan on from the next step. The zero Order turns off the one that is on. The error says
	// why the order did not reach the process.
	Carry(ctx context.Context, o Order) error
	// Steps returns the next n steps that ran under the plan of that number, 0 for none, once they have
	// ended. The error says why there are no more: the training ended, or the plan was given up.
	Steps(ctx context.Context, number int64, n int) ([]Step, error)
	// Larger returns the most bytes of each tensor that a step saved under the plan of that number, in the
	// order of saving, and how many steps saved a larger tensor than any step before; nil if none did.
	Larger(number int64) (sizes []int64, steps int64)
}

// Order is a plan for a process to carry out; the zero value is none.
type Order struct {
	// Number identifies the plan in the steps that run under it: 0 for none, negative for a trial.
	Number int64
	// Plan is in the agent's format, nil for none.
	Plan []byte
	// Stays keeps the plan on after gmemtop is gone, for whatever reason. Otherwise the plan ends then:
	// nobody is left to judge it or to turn it off.
	Stays bool
}

// Step is what was measured in one step.
type Step struct {
	// Time is in nanoseconds.
	Time int64
	// Out and In are the bytes copied to the host and back, Again the time in rerun ops, in nanoseconds.
	Out, In, Again int64
	// Work is the processor time of the training thread, in nanoseconds; OutTime and InTime are the parts
	// that copies took.
	Work            maybe.Int
	OutTime, InTime int64
	// Missed counts the tensors that should have left memory but stayed or, for a pool's plan, the
	// allocations that found no place in its arena.
	Missed int64
	// Checked counts the tensors that were compared with what had left memory, which only some steps do, and
	// Differ those that were not bit-identical.
	Checked, Differ int64
	// Reserved is what torch's allocator holds at the end of the step, Resident the process's memory on the
	// host, in bytes.
	Reserved, Resident maybe.Int
}

// Options say how a plan is measured.
type Options struct {
	// Warm is how many steps pass untimed after each change, 3 by default; Steps how many are timed in each
	// of the three stretches, 20 by default and fewer where steps are long.
	Warm, Steps int
	// Patience is for how much of their own time steps are described once two captures were compared, watched
	// for their sizes, and timed in a stretch; 10 s by default. Where steps take seconds, more would make the
	// user wait for minutes, and a step that is larger than any of them is seen while the plan is on.
	Patience time.Duration
	// MostOverhead is the share of the step time that a plan may cost before it is turned off for good, 0 for
	// any.
	MostOverhead float64
	// NeverWithout says that there are no steps to compare a plan with: without one, what the training saves
	// waits on the host, since it would not fit.
	NeverWithout bool
	// Used returns what the process takes now, in bytes: the driver's count on a GPU, the kernel's on a CPU.
	// It is nil if neither can be asked.
	Used func() (int64, bool)
	// Results say whether to give up a plan under which a tensor comes back different.
	Results Results
	// Stays keeps a plan that [Target.Hold] turned on after gmemtop is gone. A plan that is only tried never
	// stays.
	Stays bool
	// Describing, if not nil, is told the progress of describing: which try begins, or how many steps have
	// been timed, or watched for their sizes.
	Describing func(News)
	// Again makes the plan again for the problem of a larger step; if nil, the plan stays as it is.
	Again func(ctx context.Context, p *plan.Problem) (Made, error)
	// Seat is this rank's among those of a training of several processes, nil for one process. With it, ranks
	// begin measured stretches together.
	Seat *Seat
}

// Target is a running training as a target of plans. It is not safe for concurrent use.
type Target struct {
	carrier Carrier
	pool    PoolCarrier // nil for plans for what autograd saves
	library string
	opt     Options
	without []Step // timed without a plan while costs were measured, for Hold instead of its own
	next    int64  // the number of the next plan; no other viewer has used it in this process
	ended   bool   // a plan ended before anybody turned it off
}

// The defaults of [Options].
const (
	usualWarm, usualSteps = 3, 20
	usualPatience         = 10 * time.Second
)

// NewTarget returns a Target.
func NewTarget(t Carrier, o Options) *Target {
	if o.Warm <= 0 {
		o.Warm = usualWarm
	}
	if o.Steps <= 0 {
		o.Steps = usualSteps
	}
	if o.Patience <= 0 {
		o.Patience = usualPatience
	}
	return &Target{carrier: t, opt: o, next: time.Now().UnixMilli()}
}

// Name is the name of a running training as a target.
const Name = plan.LiveTarget

// Name implements replay.Target.
func (*Target) Name() string { return Name }

// Run implements replay.Target: the plan is carried out between two stretches without one, and is off
// afterwards. A plan that is predicted to exceed o.Cap is never turned on. Footprint and PeakLive are the
// peak of allocated bytes on the device within a step, as predicted by a plan's PeakLive; a process holds
// more than that. For a pool's plan Footprint is its arena.
func (t *Target) Run(
	ctx context.Context, p *plan.Problem, pl *plan.Plan, o plan.RunOptions,
) (m plan.Measurement, err error) {
	began := time.Now()
	m.Target = t.Name()
	if err := fitsAll(p, pl, t.pool != nil, o.Cap); err != nil {
		return m, err
	}
	words, err := t.encode(ctx, p, pl)
	if err != nil {
		return m, err
	}
	tell := func(doing string) {
		if o.Progress != nil {
			o.Progress(doing)
		}
	}
	tell("without")
	before, err := t.timed(ctx, nil)
	if err != nil {
		return m, err
	}
	m.KeepAllBefore, _ = spread(before)
	m.WorkBefore, m.ProcessBefore = work(before), t.process(ctx, p, 0, before)
	if err := t.opt.Seat.Next(ctx); err != nil {
		return m, err
	}
	tell("with")
	number, err := t.carry(ctx, words, false)
	if err != nil {
		return m, err
	}
	defer t.takeOff(ctx, &err)
	if err := t.measure(ctx, &m, p, pl, number); err != nil {
		return m, err
	}
	if err := t.opt.Seat.Next(ctx); err != nil {
		return m, err
	}
	tell("describe")
	if err := t.weigh(ctx, &m, p, pl, number); err != nil {
		return m, err
	}
	if err := fits(m.Footprint, o.Cap, true); err != nil {
		m.Notes = append(m.Notes, err.Error())
	}
	if err := t.opt.Seat.Next(ctx); err != nil {
		return m, err
	}
	tell("without")
	if err := t.carrier.Carry(ctx, Order{}); err != nil {
		return m, err
	}
	after, err := t.timed(ctx, nil)
	if err != nil {
		return m, err
	}
	m.KeepAllAfter, _ = spread(after)
	m.WorkAfter = work(after)
	m.Elapsed = time.Since(began)
	return m, nil
}

// measure times the steps under the plan of a number, and fills in what they report. A plan that costs more
// than it may is an error.
func (t *Target) measure(
	ctx context.Context, m *plan.Measurement, p *plan.Problem, pl *plan.Plan, number int64,
) error {
	passed, timed, err := t.stretch(ctx, number, nil)
	if err != nil {
		return t.orSegments(ctx, p, pl, err)
	}
	steps := append(passed, timed...)
	m.StepTime, m.StepP95 = spread(timed)
	m.Work, m.Process = work(timed), t.process(ctx, p, number, steps)
	for _, s := range steps {
		m.Reserved = max(m.Reserved, s.Reserved.Or(0))
	}
	m.PinnedPeak = slab(p, pl)
	if err := t.opt.allowed(m.KeepAllBefore, m.StepTime); err != nil {
		return err
	}
	moved(m, steps)
	if m.Process > 0 && m.ProcessBefore > 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("the whole process takes %s, and took %s without the plan",
			timeline.IEC.Bytes(m.Process), timeline.IEC.Bytes(m.ProcessBefore)))
	}
	if n := steps[len(steps)-1].Missed; n > 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("%d %s: the step does not run as it was recorded", n,
			t.missed()))
	}
	return nil
}

// weigh describes a step under the plan of a number, and fills in what that and the largest step so far hold.
func (t *Target) weigh(
	ctx context.Context, m *plan.Measurement, p *plan.Problem, pl *plan.Plan, number int64,
) (err error) {
	var evaluated int64
	if m.Footprint, evaluated, err = t.peak(ctx, number, p, pl); err != nil {
		return err
	}
	if evaluated > m.Footprint {
		m.Notes = append(m.Notes, fmt.Sprintf("an evaluation between two steps holds %s: the plan does not "+
			"cover it", timeline.IEC.Bytes(evaluated)))
	}
	if m.Allocated = t.pool == nil; m.Allocated {
		m.PeakLive = m.Footprint
	} else {
		m.PeakLive, _ = pl.PeakLive()
	}
	return t.countLarger(m, p, pl, number)
}

// moved fills in what the steps of a plan moved and reran, taken from the last of them, and whether what
// returned was the same.
func moved(m *plan.Measurement, steps []Step) {
	checked, differ := compared(steps)
	m.Verified = checked > 0 && differ == 0
	if differ > 0 {
		m.Notes = append(m.Notes, say.PlanDiffers.Text(differ, checked)+": "+say.PlanAlters.Text())
	}
	last := steps[len(steps)-1]
	m.SwappedOut, m.SwappedIn, m.RecomputeTime = last.Out, last.In, last.Again
	if m.CopyTime = last.OutTime + last.InTime; m.CopyTime > 0 {
		m.OutRate, m.InRate = rate(last.Out, last.OutTime), rate(last.In, last.InTime)
	}
}

// countLarger makes steps that were larger than planned for count: a budget is for all steps, not just for
// the described one.
func (t *Target) countLarger(m *plan.Measurement, p *plan.Problem, pl *plan.Plan, number int64) error {
	sizes, steps := t.carrier.Larger(number)
	if steps == 0 {
		return nil
	}
	held, err := passed(p, pl, sizes)
	if err != nil {
		return err
	}
	m.Notes = append(m.Notes, fmt.Sprintf("%s larger than planned for; under the plan such a step should "+
		"hold %s", counted(steps), timeline.IEC.Bytes(held)))
	if held > m.Footprint {
		m.Footprint, m.PeakLive = held, held
	}
	return nil
}

// rate is in bytes per second, 0 if nothing was moved.
func rate(bytes, time int64) float64 {
	if bytes == 0 || time == 0 {
		return 0
	}
	return float64(bytes) / float64(time) * 1e9
}

// furtherSteps is how many more batches of steps to wait for one that reports the process's memory: reading
// it is expensive, so few steps do, on a busy machine even fewer.
const furtherSteps = 5

// process returns the driver's or the kernel's count of the process's bytes. If Options.Used does not know
// it, one of the given steps of a training on a CPU may report it, or one of the next; it is 0 if none does.
func (t *Target) process(ctx context.Context, p *plan.Problem, number int64, steps []Step) int64 {
	if t.opt.Used != nil {
		if n, ok := t.opt.Used(); ok {
			return n
		}
	}
	if !onCPU(p) { // the process's memory on the host says nothing about the device
		return 0
	}
	for further := 0; ; further++ {
		for _, s := range slices.Backward(steps) {
			if resident, ok := s.Resident.Value(); ok {
				return resident
			}
		}
		if further == furtherSteps {
			return 0
		}
		var err error
		if steps, err = t.carrier.Steps(ctx, number, t.opt.Steps); err != nil {
			return 0
		}
	}
}

// onCPU reports whether a problem is from a training on a CPU.
func onCPU(p *plan.Problem) bool { return p.Source != nil && p.Source.Info.Kind == traces.DeviceCPU }

// carry turns a plan on from the next step and returns its number. stays is [Order.Stays].
func (t *Target) carry(ctx context.Context, words []byte, stays bool) (int64, error) {
	number := t.next
	t.next++
	return number, t.carrier.Carry(ctx, Order{Number: number, Plan: words, Stays: stays})
}

// tryOut turns a plan on from the next step, only to measure it, and returns its number. That is negative, so
// viewers can tell a trial from a plan that somebody turned on.
func (t *Target) tryOut(ctx context.Context, words []byte) (int64, error) {
	number := -t.next
	t.next++
	return number, t.carrier.Carry(ctx, Order{Number: number, Plan: words})
}

// offWithin is how long we wait for a plan to be off.
const offWithin = 5 * time.Second

// ErrTakenAway is wrapped by the error of a plan that another viewer turned off or replaced.
var ErrTakenAway = errors.New(say.TurnedOff.Text())

// takeOff turns the plan off, even if ctx is done. A failure goes to err unless err is set already.
func (t *Target) takeOff(ctx context.Context, err *error) {
	if errors.Is(*err, ErrTakenAway) { // the current plan is not ours
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), offWithin)
	defer cancel()
	if e := t.carrier.Carry(ctx, Order{}); *err == nil {
		*err = e
	}
}

// allowed returns an error if steps take longer with a plan than the options allow. Both are step times;
// without is 0 if it was not measured.
func (o *Options) allowed(without, with int64) error {
	over := float64(with)/float64(without) - 1
	if o.MostOverhead > 0 && without > 0 && over > o.MostOverhead {
		unsigned := func(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
		return errors.New(say.TooSlow.Text(unsigned(over), unsigned(o.MostOverhead)))
	}
	return nil
}

// encode returns a plan in the agent's format. A pool's plan is refused if it gains nothing. Any other plan
// lists sizes, even if the described steps had one shape: two batches of varying shapes may be alike by
// chance.
func (t *Target) encode(ctx context.Context, p *plan.Problem, pl *plan.Plan) ([]byte, error) {
	if t.pool != nil {
		if err := pays(ctx, p, pl); err != nil {
			return nil, err
		}
		return EncodePool(p, pl, t.library)
	}
	return encodeFor(p, pl, t.opt.Results, true)
}

// peakTries bounds how often the steps under a plan are described: until the program does not evaluate
// meanwhile, and a step saves as many tensors as a planned one.
const peakTries = 3

// peak returns the peak under the plan of that number, which is on now, in bytes. If the program evaluates
// between the described steps, and did not between the planned ones, they say nothing about the plan: then
// others are described, and evaluated is what the most of them held. If all of them save fewer tensors than a
// planned step, as where layers are dropped at random, others are described, too, and the highest peak
// counts.
func (t *Target) peak(
	ctx context.Context, number int64, p *plan.Problem, pl *plan.Plan,
) (peak, evaluated int64, err error) {
	if t.pool != nil {
		return pl.Footprint, 0, nil
	}
	planned := p.Source.Timeline().Trace
	for try := 1; ; try++ {
		tr, err := t.carrier.Describe(ctx, number)
		if err != nil {
			return 0, 0, err
		}
		d, err := trainingDevice(ctx, tr)
		if err != nil {
			return 0, 0, err
		}
		held := d.Totals.PeakAllocated
		if try < peakTries && evaluates(tr) && !evaluates(planned) {
			evaluated = max(evaluated, held)
			continue
		}
		peak = max(peak, held)
		if try == peakTries || len(p.Varied) > 0 || mostSaves(tr) >= mostSaves(planned) {
			return peak, evaluated, nil
		}
	}
}

// mostSaves returns the most tensors that a step of a recording saves.
func mostSaves(tr *traces.Trace) (most int) {
	for m := range stepMarks(tr) {
		saves := 0
		for i := range tr.Ops {
			op := &tr.Ops[i]
			if m.Start <= op.Start && op.Start < m.End && tr.Text(op.Name) == plan.SaveOp {
				saves++
			}
		}
		most = max(most, saves)
	}
	return most
}

// evaluates reports whether a module ran without gradients within a recording's steps.
func evaluates(tr *traces.Trace) bool { return tr.Setting(described.EvaluatesSetting) == "true" }

// missed says what a step's Missed counts.
func (t *Target) missed() string {
	if t.pool != nil {
		return "allocations did not fit in the arena"
	}
	return "tensors stayed that should have left"
}

// compared adds up how many tensors were compared in steps, and how many were not the same.
func compared(steps []Step) (checked, differ int64) {
	for _, s := range steps {
		checked, differ = checked+s.Checked, differ+s.Differ
	}
	return checked, differ
}
