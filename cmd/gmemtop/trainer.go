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

// offloads says whether what the training saves waits on the host where there is no plan.
func (t *trainer) offloads() bool {
	v := t.session.Snapshot()
	return offloads(&v)
}

func offloads(v *capture.View) bool {
	return slices.ContainsFunc(v.Notices, func(n capture.Notice) bool { return n.Key == capture.UnplannedKey && n.State && n.Text != "" })
}

// keep has what is saved stay on the device where there is no plan, and waits until it does.
func (t *trainer) keep(ctx context.Context) error {
	if err := t.control.Keep(ctx); err != nil {
		return err
	}
	return t.until(ctx, func(v *capture.View) (bool, error) { return !offloads(v), nil })
}

// Describe implements live.Trainer.
func (t *trainer) Describe(ctx context.Context) (*traces.Trace, error) {
	before := t.session.Snapshot()
	from, under := int64(-1), int64(0)
	if n := len(before.Steps); n > 0 {
		from, under = before.Steps[n-1].Index, before.Steps[n-1].Carried.Plan
	}
	// Of an earlier description, and of a plan that has ended while the last step that is known ran under it: not of this one.
	unseen, ended := said(&before, capture.PlanKey(0)), said(&before, capture.PlanKey(under))
	if err := t.control.DescribeSaves(ctx, describedSteps); err != nil {
		return nil, err
	}
	var found *traces.Trace
	err := t.until(ctx, func(v *capture.View) (bool, error) {
		for _, w := range v.Windows {
			// One that somebody else asked for may come first, and does not tell what is saved.
			if w.First > from && w.How == capture.HowOps && !w.Partial && slices.Contains(w.Trace.Strings, plan.SaveOp) {
				found = w.Trace
			}
		}
		why := said(v, "ops")
		if now := said(v, capture.PlanKey(0)); why == "" && found == nil && now != unseen {
			why = now
		}
		if why != "" {
			return false, fmt.Errorf("its steps cannot be described: %s", why)
		}
		if over := said(v, capture.PlanKey(under)); under != 0 && over != "" && over != ended && found == nil { // and with it what tells of saves
			return false, fmt.Errorf("%w: %s", errGivenUp, over)
		}
		return found != nil, nil
	})
	return found, err
}

// said returns the notice of a key, "" for none.
func said(v *capture.View, key string) string {
	for _, n := range v.Notices {
		if n.Key == key {
			return n.Text
		}
	}
	return ""
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

// takenAfter is how many steps run otherwise until a plan is taken to have been turned off by somebody else: why it ended by itself is said by then.
const takenAfter = 3

// longSince is how many steps are looked through for the last one under a plan.
const longSince = 1000

// Steps implements live.Trainer.
func (t *trainer) Steps(ctx context.Context, number int64, n int) ([]live.Step, error) {
	from, was, behind := int64(-1), false, 0 // whether a step ran under the plan already, and how many have since
	if v := t.session.Snapshot(); len(v.Steps) > 0 {
		from = v.Steps[len(v.Steps)-1].Index
		for i := len(v.Steps) - 1; number != 0 && !was && i >= max(len(v.Steps)-longSince, 0); i-- {
			was, behind = v.Steps[i].Carried.Plan == number, len(v.Steps)-1-i
		}
	}
	var steps []live.Step
	err := t.until(ctx, func(v *capture.View) (bool, error) {
		steps = steps[:0]
		on, others := was, behind // others are the steps behind the last one under the plan
		first, _ := slices.BinarySearchFunc(v.Steps, from+1, func(s capture.Step, at int64) int { return int(s.Index - at) })
		for _, s := range v.Steps[first:] {
			if others++; s.Carried.Plan != number {
				continue
			}
			if on, others = true, 0; len(steps) < n {
				steps = append(steps, liveStep(&s))
			}
		}
		if number != 0 {
			if why := said(v, capture.PlanKey(number)); why != "" {
				return false, fmt.Errorf("%w: %s", errGivenUp, why)
			}
			if why := said(v, capture.PlanDiffersKey(number)); why != "" {
				return false, fmt.Errorf("%w: %s", errDiffer, why)
			}
		}
		if number != 0 && on && others >= takenAfter && len(steps) < n {
			return false, live.ErrTakenAway
		}
		return len(steps) == n, nil
	})
	return steps, err
}
