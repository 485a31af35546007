package live

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// News is the state of a plan in a running training.
type News struct {
	Stage Stage
	// While the training is described: Try is the current one of at most Tries captures of its steps, and
	// Usual the time of a step that is not captured, in nanoseconds, 0 if unknown.
	Try, Tries int
	Usual      int64
	// If batches differ in shape: how many of Watch steps have been watched for the largest; 0 while steps
	// are captured.
	Watched, Watch int
	// How many of Time steps have been timed, with or without the plan or, while a training on a CPU is
	// described, to learn the cost of moving tensors; 0 while none is timed.
	Timed, Time int
	// Ended says why the previous plan ended if this one replaces it, "" if there was none.
	Ended string
	// Pooled says that the plan chooses addresses. Peak is then the arena, and PeakBefore what is alive at a
	// step's peak without the plan.
	Pooled bool
	// Before is the median time of steps without the plan, Step and P95 of those with it, in nanoseconds; 0
	// if not measured yet. Before stays 0 if the training does not fit without a plan.
	Before, Step, P95 int64
	// PeakBefore is the peak of allocated bytes in a step without the plan, Peak with it, and Predicted the
	// plan's prediction; 0 if not measured yet. Predicted is 0 if no plan is carried out.
	PeakBefore, Peak, Predicted int64
	// Added is the time that the simulation says the plan adds to a step, in nanoseconds, and PredictedStep
	// the sum of it and Before, 0 if that is not measured.
	Added, PredictedStep int64
	// Steps is how many steps ran under the plan; Missed is how many tensors of the last one stayed although
	// they should have left.
	Steps, Missed int64
	// Larger counts the steps that were larger than planned for. Above is by how many bytes they exceeded the
	// budget at most, as predicted or measured. Refused says why no plan was made for the last of them.
	Larger, Above int64
	Refused       string
	// Checked is how many tensors were compared with what had left memory, Differ how many of them were not
	// bit-identical.
	Checked, Differ int64
	// Out, In and Again are what the last step did: the bytes moved each way, and the nanoseconds of rerun
	// ops.
	Out, In, Again int64
	// Ranks are the processes of a training with several, nil for one process. All fields above are then
	// those of [Together]. Highest names the rank whose memory it is.
	Ranks   []Rank
	Highest string
}

// overhead is the share by which steps take longer with the plan; 0 if not measured yet.
func (n *News) overhead() float64 {
	if n.Before == 0 || n.Step == 0 {
		return 0
	}
	return float64(n.Step)/float64(n.Before) - 1
}

// Sentence returns the news as a sentence to follow the plan's name.
func (n *News) Sentence(name string, u timeline.Units) string {
	s := say.PlanDoes.Text(name, n.Stage)
	if x := n.aside(); x != "" {
		s += ": " + x
	} else if n.Stage == Describing {
		s += n.Capture()
	}
	if n.Stage == On {
		s = say.PlanOn.Text(name, timeline.Counted(n.Steps, "step"))
	}
	switch {
	case n.Pooled && n.Peak > 0:
		s += ": " + say.PlanArena.Text(u.Bytes(n.Peak), u.Bytes(n.PeakBefore))
	case n.Peak > 0:
		s += ": " + say.PlanPeak.Text(u.Bytes(n.Peak), u.Bytes(n.PeakBefore))
		if n.Predicted > 0 {
			s += " " + say.PlanPredicted.Text(u.Bytes(n.Predicted))
		}
	}
	if n.Highest != "" && n.Peak > 0 {
		s += ", " + say.PlanHighest.Text(n.Highest)
	}
	switch {
	case n.Step > 0 && n.Before == 0:
		s += ", " + say.PlanStep.Text(timeline.Duration(n.Step), timeline.Duration(n.Added))
	case n.Step > 0:
		predicted := float64(n.PredictedStep)/float64(n.Before) - 1
		s += ", " + say.PlanSlower.Text(timeline.Duration(n.Step), timeline.Duration(n.Before),
			percent(n.overhead()), percent(predicted))
	}
	switch {
	case n.Differ > 0:
		s += "; " + say.PlanDiffers.Text(n.Differ, n.Checked)
	case n.Checked > 0:
		s += "; " + say.PlanIdentical.Text(n.Checked)
	}
	switch {
	case n.Pooled && n.Missed > 0:
		s += "; " + say.PlanUnserved.Text(n.Missed)
	case n.Missed > 0:
		s += "; " + say.PlanStayed.Text(timeline.Counted(n.Missed, "tensor"))
	}
	s += n.LargerSteps(u)
	if n.Ended != "" && !n.Stage.Carried() {
		s += "; " + say.PlanBefore.Text(n.Ended)
	}
	if len(n.Ranks) > 1 {
		s += n.among()
	}
	return s
}

// Doing describes this stage, the longest text first: with progress, and without.
func (n *News) Doing() []string {
	if aside := n.aside(); aside != "" {
		return []string{aside}
	}
	doing := n.Stage.Doing()
	switch {
	case n.Stage == Describing:
		return []string{doing + n.Capture(), doing}
	case n.Time > 0:
		return []string{doing + ": " + say.StepsTimed.Text(n.Timed, n.Time), doing}
	}
	return []string{doing}
}

// aside says what happens in steps that are not captured while the training is being described, and how long
// that will take; "" if nothing does.
func (n *News) aside() string {
	s, rest := "", 0
	switch {
	case n.Watch > 0:
		s, rest = say.WatchesSizes.Text(n.Watched, n.Watch), n.Watch-n.Watched
	case n.Time > 0 && n.Stage == Describing:
		s, rest = say.TimesCosts.Text(n.Timed, n.Time), n.Time-n.Timed
	}
	if rest > 0 && n.Usual > 0 {
		s += ", " + say.LeftToWait.Text(timeline.Roughly(int64(rest)*n.Usual))
	}
	return s
}

// Rest returns how many more steps a training runs until its plan is on, as far as that is known, and how
// many steps all in all time what a plan costs on a CPU: 0 unless times says that it trains on one whose
// costs nobody has named.
func (n *News) Rest(times bool) (steps, timing int) {
	usual := Options{Steps: usualSteps, Patience: usualPatience}
	untimed, each := usualWarm+usual.toTime(n.Usual), trialSteps
	switch {
	case times && n.Usual <= longStep: // steps without a plan are among those that are timed
		timing, untimed = max(trialTurns*kinds*(1+each), n.Time), 0
	case times:
		each = longTrialSteps
		timing = kinds * (1 + each)
	}
	// each of the plans that are timed begins a step late
	begun := func(steps int) int { return steps * (2 + each) / (1 + each) }
	switch {
	case n.Stage >= Planning: // how many steps without a plan have ended is not known
		return untimed, timing
	case n.Watch > 0:
		return n.Watch - n.Watched + untimed, timing
	case n.Time > 0:
		return begun(timing-n.Timed) + untimed, timing
	}
	return DescribedSteps + begun(timing) + untimed, timing
}

// Capture says, while the training is being described, which try this is and what a step usually takes, to
// follow the stage; "" if neither is known.
func (n *News) Capture() string {
	s := ""
	if n.Usual > 0 {
		s = " (" + say.UsualStep.Text(DescribedSteps, timeline.Duration(n.Usual)) + ")"
	}
	if n.Try > 1 {
		s += ", " + say.TriesAgain.Text(n.Try, n.Tries)
	}
	return s
}

// DescribedSteps is the number of steps in a capture for a plan: ops to recompute must be the same in all of
// them.
const DescribedSteps = 2

// percent returns a share as a change in percent.
func percent(share float64) string { return fmt.Sprintf("%+.1f %%", 100*share) }

// ErrNoGain is wrapped if a plan does not lower the peak.
var ErrNoGain = errors.New(say.NoGain.Text())

// Gains returns an error that wraps [ErrNoGain] if a step holds as much at its peak under a plan as without
// one.
func Gains(p *plan.Problem, pl *plan.Plan) error {
	before, _ := p.PeakLive()
	with, _ := pl.PeakLive()
	return gains(before, with)
}

func gains(before, with int64) error {
	if with < before {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrNoGain,
		say.HoldsAsMuch.Text(timeline.IEC.Bytes(with), timeline.IEC.Bytes(before)))
}

// Hold keeps a plan on until ctx is done and measures it: first steps without it, unless the training cannot
// run without a plan, then steps with it. Hold calls tell on every change, from this goroutine. When ctx is
// done Hold turns the plan off and returns nil. An error says why the plan is off: it was refused, did not
// fit its budget (an [*Above]), took more time than allowed, or saved no memory.
func (t *Target) Hold(ctx context.Context, p *plan.Problem, made Made, tell func(News)) (err error) {
	pooled := t.pool != nil
	if err := fitsAll(p, made.Plan, pooled, made.Budget); err != nil {
		return err
	}
	words, err := t.encode(ctx, p, made.Plan)
	if err != nil {
		return err
	}
	n := News{Stage: MeasuringWithout, Pooled: pooled, Added: made.Added,
		Predicted: predicted(made.Plan, pooled)}
	n.PeakBefore, _ = p.PeakLive()
	if !t.opt.NeverWithout {
		before := t.without
		if t.without = nil; len(before) == 0 {
			tell(n)
			if before, err = t.timed(ctx, n.progress(tell)); err != nil {
				return ended(ctx, err)
			}
		}
		n.Before, _ = spread(before)
		n.PredictedStep = n.Before + made.Added
	}
	if err := t.opt.Seat.Next(ctx); err != nil {
		return ended(ctx, err)
	}
	number, err := t.carry(ctx, words, t.opt.Stays)
	if err != nil {
		return ended(ctx, err)
	}
	defer t.takeOff(ctx, &err)
	n.Stage = MeasuringWith
	tell(n)
	on := larger{t: t, p: p, made: made, number: number}
	for first, again := true, false; ; first = false {
		var passed, timed []Step
		if first || again {
			passed, timed, err = t.stretch(ctx, on.number, n.progress(tell))
		} else {
			timed, err = t.carrier.Steps(ctx, on.number, t.opt.toTime(n.Step))
		}
		if err != nil {
			t.ended = ctx.Err() == nil
			return ended(ctx, t.orSegments(ctx, p, made.Plan, err))
		}
		n.add(passed, timed)
		if err := t.opt.allowed(n.Before, n.Step); err != nil {
			return err
		}
		switch {
		case first:
			n.Stage = MeasuringPeak
			tell(n)
			if err := t.opt.Seat.Next(ctx); err != nil {
				return ended(ctx, err)
			}
			asPlanned, err := t.checkPeak(ctx, &on, &n)
			if err != nil {
				return ended(ctx, err)
			}
			comparable := asPlanned && !n.Pooled && !t.opt.NeverWithout
			if err := gains(n.PeakBefore, n.Peak); err != nil && comparable {
				return err
			}
			t.opt.Seat.Leave() // from here on no measurement of this rank is compared with an earlier one
		case again:
			if _, err := t.checkPeak(ctx, &on, &n); err != nil {
				return ended(ctx, err)
			}
		}
		if again, err = on.heard(ctx, &n); err != nil {
			return ended(ctx, err)
		}
		n.Stage = On
		tell(n)
	}
}

// progress returns a function that tells how many steps have been timed in this stage, and of how many.
func (n *News) progress(tell func(News)) func(timed, of int) {
	return func(timed, of int) {
		x := *n
		x.Timed, x.Time = timed, of
		tell(x)
	}
}

// add adds the figures of further steps under the plan: of some that passed untimed, and of those after them.
func (n *News) add(passed, timed []Step) {
	steps := slices.Concat(passed, timed)
	last := steps[len(steps)-1]
	n.Steps += int64(len(steps))
	n.Step, n.P95 = spread(timed)
	n.Missed, n.Out, n.In, n.Again = last.Missed, last.Out, last.In, last.Again
	checked, differ := compared(steps)
	n.Checked += checked
	n.Differ += differ
}

// checkPeak measures the peak under the current plan and checks that it fits the budget. If steps were larger
// than planned for, asPlanned is false and the peak proves nothing: such a step holds more without the plan,
// too.
func (t *Target) checkPeak(ctx context.Context, on *larger, n *News) (asPlanned bool, err error) {
	if n.Peak, _, err = t.peak(ctx, on.number, on.p, on.made.Plan); err != nil {
		return false, err
	}
	if _, steps := t.carrier.Larger(on.number); steps > 0 {
		if b := on.made.Budget; b > 0 {
			n.Above = max(n.Above, n.Peak-b)
		}
		return false, nil
	}
	return true, fits(n.Peak, on.made.Budget, true)
}

// ended returns nil if ctx ended the work, else err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
