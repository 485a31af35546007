package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces"
)

// trainer is a process under the agent as package live sees it: what it did comes out of the session, what it is to do goes to the controller.
type trainer struct {
	session *capture.Session
	control capture.Carrier
}

var _ live.Trainer = (*trainer)(nil)

// describedSteps is how many steps a plan is made of: what runs again has to have been the same in all of them.
const describedSteps = 2

// A description that has not come so many steps and so long after it was asked for is asked for again, so many times in all: a window is lost where two viewers
// ask at once, or nobody took those before.
const (
	unanswered = 20
	mostAsked  = 3
)

var answerWithin = 20 * time.Second

// trainerLook is the time between two looks at the session.
const trainerLook = 20 * time.Millisecond

// Why there are no more steps.
var (
	errEnded   = errors.New("the training ended")
	errGivenUp = errors.New("the plan is not carried out")
	errDiffer  = errors.New("turned off, since what is learnt may not be the same to the bit (--results any allows that)")
)

// until looks at the session until f has what it wants, or says that it cannot be had.
func (t *trainer) until(ctx context.Context, f func(v *capture.View) (bool, error)) error {
	for tick := time.NewTicker(trainerLook); ; {
		v := t.session.Snapshot()
		ok, err := f(&v)
		switch {
		case ok || err != nil:
			tick.Stop()
			return err
		case v.Ended:
			tick.Stop()
			return fmt.Errorf("%w: %s", errEnded, v.End.Reason)
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Describe implements live.Trainer.
func (t *trainer) Describe(ctx context.Context) (*traces.Trace, error) {
	before := t.session.Snapshot()
	from := int64(-1)
	if n := len(before.Steps); n > 0 {
		from = before.Steps[n-1].Index
	}
	if err := t.control.DescribeSaves(ctx, describedSteps); err != nil {
		return nil, err
	}
	var found *traces.Trace
	asked, since, times := from, time.Now(), 1
	err := t.until(ctx, func(v *capture.View) (bool, error) {
		if n := len(v.Steps); n > 0 && v.Steps[n-1].Index > asked+unanswered && time.Since(since) > answerWithin {
			if times++; times > mostAsked {
				return false, fmt.Errorf("%d steps went by and none was described, though that was asked for %d times: attach again", v.Steps[n-1].Index-from, mostAsked)
			}
			if asked, since = v.Steps[n-1].Index, time.Now(); t.control.DescribeSaves(ctx, describedSteps) != nil {
				return false, nil // the session's end says why
			}
		}
		for _, w := range v.Windows {
			// One that somebody else asked for may come first, and does not tell what is saved.
			if w.First > from && w.How == capture.HowOps && !w.Partial && slices.Contains(w.Trace.Strings, plan.SaveOp) {
				found = w.Trace
			}
		}
		for _, n := range v.Notices {
			if n.Key == "ops" {
				return false, fmt.Errorf("its steps cannot be described: %s", n.Text)
			}
		}
		return found != nil, nil
	})
	return found, err
}

// Carry implements live.Trainer.
func (t *trainer) Carry(ctx context.Context, number int64, words []byte) error {
	if number != 0 { // what was said of an earlier plan of that number is not about this one
		t.session.Notice(capture.Notice{Key: capture.PlanKey(number)})
		t.session.Notice(capture.Notice{Key: capture.PlanDiffersKey(number)})
	}
	return t.control.Carry(ctx, number, words)
}

// liveStep says of a step what plans are judged by.
func liveStep(s *capture.Step) live.Step {
	return live.Step{Time: s.End - s.Start, Work: s.Work, OutTime: int64(s.Carried.OutTime), InTime: int64(s.Carried.InTime), Out: s.Carried.Out, In: s.Carried.In, Again: int64(s.Carried.Again),
		Missed: s.Carried.Missed, Checked: s.Carried.Checked, Differ: s.Carried.Differ,
		Reserved: s.Reserved, Resident: s.RSS}
}

// Steps implements live.Trainer.
func (t *trainer) Steps(ctx context.Context, number int64, n int) ([]live.Step, error) {
	from := int64(-1)
	if v := t.session.Snapshot(); len(v.Steps) > 0 {
		from = v.Steps[len(v.Steps)-1].Index
	}
	var steps []live.Step
	err := t.until(ctx, func(v *capture.View) (bool, error) {
		steps = steps[:0]
		first, _ := slices.BinarySearchFunc(v.Steps, from+1, func(s capture.Step, at int64) int { return int(s.Index - at) })
		for _, s := range v.Steps[first:] {
			if s.Carried.Plan == number && len(steps) < n {
				steps = append(steps, liveStep(&s))
			}
		}
		if number != 0 {
			for _, w := range v.Notices {
				switch w.Key {
				case capture.PlanKey(number):
					return false, fmt.Errorf("%w: %s", errGivenUp, w.Text)
				case capture.PlanDiffersKey(number):
					return false, fmt.Errorf("%w: %s", errDiffer, w.Text)
				}
			}
		}
		return len(steps) == n, nil
	})
	return steps, err
}
