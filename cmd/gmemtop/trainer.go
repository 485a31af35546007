package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces"
)

// trainer is a process under the agent as package live sees it: what it did comes out of the session, what it
// is to do goes to the controller.
type trainer struct {
	session *capture.Session
	control capture.Controller

	mu     sync.Mutex
	orders map[int64]capture.OrderID // that began plans, by the plan's number
}

var _ live.Trainer = (*trainer)(nil)

// describedSteps is how many steps a plan is made of: what runs again has to have been the same in all of
// them.
const describedSteps = 2

// Why there are no more steps.
var (
	errEnded   = errors.New("the training ended")
	errGivenUp = errors.New("the plan is not carried out")
	errDiffer  = errors.New("turned off, since what is learnt may not be the same to the bit (--results any allows that)")
)

// orderError is an order that was refused, or a plan that ended.
type orderError struct{ capture.Answer }

func (e *orderError) Error() string { return e.Text }

// until waits until f has what it wants, or says that it cannot be had, or the training ends.
func (t *trainer) until(ctx context.Context, f func(v *capture.View) (bool, error)) error {
	return t.session.Until(ctx, func(v *capture.View) (bool, error) {
		if ok, err := f(v); ok || err != nil {
			return ok, err
		}
		if v.Ended {
			return false, fmt.Errorf("%w: %s", errEnded, v.End.Reason)
		}
		return false, nil
	})
}

// order gives an order and waits until it is done. The error is an orderError where it was refused.
func (t *trainer) order(ctx context.Context, o capture.Order) error {
	if err := t.control.Order(ctx, o); err != nil {
		return err
	}
	return t.until(ctx, func(v *capture.View) (bool, error) {
		a, _ := v.Answered(o.ID)
		if a.State == capture.OrderRefused {
			return false, &orderError{a}
		}
		return a.State == capture.OrderDone, nil
	})
}

// describe has steps captured and returns the window.
func (t *trainer) describe(ctx context.Context, o capture.Order) (w capture.Window, err error) {
	o.ID = capture.NewOrderID()
	if err := t.order(ctx, o); err != nil {
		return w, err
	}
	for _, w := range t.session.Snapshot().Windows {
		if slices.Contains(w.Orders, o.ID) && !w.Partial {
			return w, nil
		}
	}
	return w, errors.New("the captured steps were lost on their way: try again")
}

// offloads says whether what the training saves waits on the host where there is no plan.
func (t *trainer) offloads() bool { return t.session.Snapshot().Target.Offloads }

// keep has what is saved stay on the device where there is no plan, and waits until it does.
func (t *trainer) keep(ctx context.Context) error {
	return t.order(ctx, capture.Order{ID: capture.NewOrderID(), Do: capture.Keep})
}

// Describe implements live.Trainer.
func (t *trainer) Describe(ctx context.Context, number int64) (*traces.Trace, error) {
	w, err := t.describe(ctx, capture.Order{Do: capture.Describe, Steps: describedSteps, How: capture.HowOps, Saves: true})
	refused := (*orderError)(nil)
	switch {
	case err == nil && number != 0 && !t.ranUnder(number, w):
		return nil, fmt.Errorf("%w: it ended before the steps were described", errGivenUp)
	case errors.As(err, &refused) && number != 0 && refused.Reason == capture.ReasonSavesUnseen:
		return nil, fmt.Errorf("%w: %s", errGivenUp, refused.Text)
	case errors.As(err, &refused):
		return nil, fmt.Errorf("its steps cannot be described: %s", refused.Text)
	case err != nil:
		return nil, err
	}
	return w.Trace, nil
}

// ranUnder reports whether every step of a window ran under a plan.
func (t *trainer) ranUnder(number int64, w capture.Window) bool {
	return !slices.ContainsFunc(t.session.Snapshot().Steps, func(s capture.Step) bool {
		return w.First <= s.Index && s.Index <= w.Last && s.Carried.Plan != number
	})
}

// Carry implements live.Trainer.
func (t *trainer) Carry(ctx context.Context, number int64, words []byte) error {
	o := capture.Order{ID: capture.NewOrderID(), Do: capture.Carry, Number: number, Plan: words}
	t.mu.Lock()
	if t.orders == nil {
		t.orders = map[int64]capture.OrderID{}
	}
	t.orders[number] = o.ID
	t.mu.Unlock()
	return t.control.Order(ctx, o)
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
	t.mu.Lock()
	order := t.orders[number]
	t.mu.Unlock()
	var steps []live.Step
	err := t.until(ctx, func(v *capture.View) (bool, error) {
		steps = steps[:0]
		first, _ := slices.BinarySearchFunc(v.Steps, from+1, func(s capture.Step, at int64) int { return int(s.Index - at) })
		for _, s := range v.Steps[first:] {
			if s.Carried.Plan == number && len(steps) < n {
				steps = append(steps, liveStep(&s))
			}
		}
		if err := planEnded(v, number, order); err != nil {
			return false, err
		}
		return len(steps) == n, nil
	})
	return steps, err
}

// planEnded returns why a plan is not carried out, or no more; nil where it is or may still be.
func planEnded(v *capture.View, number int64, order capture.OrderID) error {
	a, ok := v.Answered(order)
	if number == 0 || !ok || a.State != capture.OrderRefused && a.State != capture.OrderEnded {
		return nil
	}
	switch a.Reason {
	case capture.ReasonTakenAway, capture.ReasonSuperseded:
		return live.ErrTakenAway
	case capture.ReasonDiffers:
		return fmt.Errorf("%w: %s", errDiffer, a.Text)
	}
	return fmt.Errorf("%w: %s", errGivenUp, a.Text)
}
