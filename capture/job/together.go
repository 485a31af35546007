package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// The same step of several processes is one that none of them has begun. Each process counts its own steps
// from where the watching began, so the numbers of processes that were attached to at different steps differ:
// a step is the same if it ends at about the same time, since processes that train together wait for each
// other.

// Taken is what a process captured together with others.
type Taken struct {
	Process *Process
	Window  capture.Window
	// Err is why there is no window.
	Err error
}

const (
	// togetherLead is how far ahead the first step is, at least: every process must have its order by then.
	togetherLead = time.Second
	// togetherWait is how long to wait beyond the time that the steps should take.
	togetherWait = time.Minute
	// capturedSlower is how many times longer a step may take while it is captured.
	capturedSlower = 20
	// pacedBy is how many of the last steps tell how long a step takes.
	pacedBy = 16
)

// errNotSteppingTogether means that processes cannot capture the same step.
var errNotSteppingTogether = errors.New("it takes no orders, or no steps")

// Together captures the same steps of some processes of a job and returns once all have captured them or said
// why not. tell is called with progress messages.
func (j *Job) Together(ctx context.Context, list []*Process, steps int, tell func(text string)) []Taken {
	out := make([]Taken, len(list))
	views := make([]capture.View, len(list))
	paces := make([]int64, len(list))
	lead := -1 // the process that the others are compared with
	for i, p := range list {
		out[i].Process, views[i] = p, p.History.Snapshot()
		v := &views[i]
		if v.Ended || len(v.Steps) == 0 || v.Severed != "" || !p.Wants(v).Connected {
			out[i].Err = errNotSteppingTogether
			continue
		}
		paces[i] = paceOf(v.Steps)
		if lead < 0 {
			lead = i
		}
	}
	if lead < 0 {
		return out
	}
	first, slowest := int64(0), int64(0) // in the numbers of the leading process
	now := time.Now().UnixNano()
	for i := range list {
		if out[i].Err != nil {
			continue
		}
		last := views[i].Steps[len(views[i].Steps)-1]
		passed := max(now-last.End, 0) + int64(togetherLead)
		first = max(first, last.Index-apart(views[lead].Steps, views[i].Steps, paces[i])+2+passed/paces[i])
		slowest = max(slowest, paces[i])
	}
	tell(fmt.Sprintf("capturing step %d in %d processes", first, len(list)))
	wait := time.Duration(slowest*int64(steps)*capturedSlower) + togetherLead + togetherWait
	ctx, stop := context.WithTimeout(ctx, wait)
	defer stop()
	orders := make([]capture.OrderID, len(list))
	for i, p := range list {
		if out[i].Err != nil {
			continue
		}
		orders[i] = capture.NewOrderID()
		out[i].Err = p.Order(ctx, capture.Order{ID: orders[i], Do: capture.Describe, Steps: steps,
			From: first + apart(views[lead].Steps, views[i].Steps, paces[i])})
	}
	for i, p := range list {
		if out[i].Err == nil {
			out[i].Window, out[i].Err = p.window(ctx, orders[i])
		}
	}
	return out
}

// paceOf returns how many nanoseconds a step takes, at least one.
func paceOf(steps []capture.Step) int64 {
	var times []int64
	for _, s := range steps[max(len(steps)-pacedBy, 0):] {
		times = append(times, s.End-s.Start)
	}
	return max(stats.Median(times), 1)
}

// apart is by how much the numbers of a process's steps are above those of another for the same step. Where
// no step of the other ends near the last one, they are taken to be the same.
func apart(lead, steps []capture.Step, pace int64) int64 {
	last := steps[len(steps)-1]
	best, near := int64(0), pace/2
	for i := len(lead) - 1; i >= 0; i-- {
		by := lead[i].End - last.End
		if by < -pace {
			break
		}
		if by = max(by, -by); by <= near {
			best, near = last.Index-lead[i].Index, by
		}
	}
	return best
}

// window waits for the window that an order asked for.
func (p *Process) window(ctx context.Context, order capture.OrderID) (w capture.Window, err error) {
	err = p.History.Until(ctx, func(v *capture.View) (bool, error) {
		i := slices.IndexFunc(v.Windows,
			func(w capture.Window) bool { return slices.Contains(w.Orders, order) })
		if i >= 0 {
			w = v.Windows[i]
			return true, nil
		}
		switch a, _ := v.Answered(order); {
		case a.State == capture.OrderRefused:
			return false, errors.New(a.Text)
		case a.State == capture.OrderDone:
			return false, errors.New("it was captured, but there was no memory to keep it")
		case v.Ended:
			return false, errors.New("it ended before")
		}
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("it did not finish the step in time")
	}
	return w, err
}
