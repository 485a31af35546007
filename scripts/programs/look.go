package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/scripts/internal/trial"
	"github.com/gmemtop/gmemtop/timeline"
)

// aboveFloor is the smallest budget, as a share of the bytes that cannot leave, if those are most of a step.
const aboveFloor = 1.05

// looked is the result for a program whose step was only described and planned for.
type looked struct {
	// Missing and Failed are those of a result.
	Missing string `json:"missing,omitempty"`
	Failed  string `json:"failed,omitempty"`
	// Refused is the sentence with which the step was not described or not planned for.
	Refused string        `json:"refused,omitempty"`
	Problem trial.Problem `json:"problem"`
	Budget  int64         `json:"budget"`
	// Describing is how long it took until the step was described, in nanoseconds.
	Describing time.Duration `json:"describing"`
	// Planned is the joint manager's plan as eager PyTorch can run it, in bytes at its peak; 0 for none.
	Planned  int64   `json:"planned"`
	Overhead float64 `json:"overhead"`
	// Unplanned says why there is no such plan.
	Unplanned string `json:"unplanned,omitempty"`
}

// look attaches to a program, lets it describe a step, and plans for a share of what the step holds.
func (o *options) look(ctx context.Context, p *program) (l looked) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	var err error
	if l.Missing, err = o.missing(ctx, p); err == nil && l.Missing == "" {
		err = o.lookAt(ctx, p, &l)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		l.Failed = fmt.Sprintf("no step was described and planned within %v of its start", o.limit)
	case err != nil:
		l.Failed = err.Error()
	}
	return l
}

// lookedAt returns the kept result of an earlier look at a program, nil if there is none.
func (o *options) lookedAt(p *program) (*looked, error) {
	data, err := os.ReadFile(o.planPath(p))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l := &looked{}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.planPath(p), err)
	}
	return l, nil
}

func (o *options) lookAt(ctx context.Context, p *program, l *looked) error {
	share, err := o.share()
	if err != nil {
		return fmt.Errorf("-plan-only plans for a share, as 70%%: %w", err)
	}
	t, err := o.start(ctx, p)
	if err != nil {
		return err
	}
	defer t.End()
	if err := t.Await(ctx, 2); err != nil {
		return err
	}
	return l.plan(ctx, t.PID(), share, o.hardware)
}

// share is the budget as a share of what a step holds.
func (o *options) share() (float64, error) {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(o.budget, "%"), 64)
	return percent / 100, err
}

// plan plans for a share of what a step of a process that trains holds, and leaves the process as it was.
func (l *looked) plan(ctx context.Context, pid int, share float64, costs string) (err error) {
	found, err := job.Attachable(pid)
	if err != nil {
		return err
	}
	w := job.NewWatch(job.Options{Unasked: true})
	run, stop := context.WithCancel(context.Background())
	w.Connect(run, pid, found.Started)
	defer func() {
		left := w.LetGo()
		stop()
		err = errors.Join(err, left, w.Close())
	}()
	lead := crew.OfWatch(w).Lead
	if err := lead.FirstStep(ctx); err != nil {
		return err
	}
	target, err := lead.Target(ctx, false, live.Options{})
	if err != nil {
		return err
	}
	var h live.Hardware
	if h.Chosen = costs != ""; h.Chosen {
		if h.Hardware, err = hardware.Load(costs); err != nil {
			return err
		}
	}
	began := time.Now()
	problem, err := target.Problem(ctx, h)
	l.Describing = time.Since(began)
	if err != nil {
		l.Refused = err.Error()
		return ctx.Err()
	}
	must := plan.LeastResident(problem)
	l.Problem = trial.Problem{Peak: problem.Held(), Reside: must, Ops: len(problem.Ops),
		Notes: problem.Notes}
	l.Budget = max(int64(share*float64(problem.Held())), int64(aboveFloor*float64(must)))
	joint, err := managers.Select("joint")
	if err != nil {
		return err
	}
	made, err := replay.Compare(ctx, problem, joint, replay.Options{Budget: l.Budget, Seed: 1,
		Eager: managers.Eager})
	if errors.Is(err, replay.ErrTooSmall) {
		l.Refused = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	r := made.Results[len(made.Results)-1]
	switch {
	case !r.Available:
		l.Unplanned = r.Reason
	case r.Executor != plan.TorchEager && len(r.Plan.Absences) > 0:
		l.Unplanned = "eager PyTorch cannot carry out any of the plan"
	case live.Gains(problem, r.Plan) != nil:
		l.Unplanned = live.Gains(problem, r.Plan).Error()
	default:
		l.Planned, l.Overhead = r.Measurement.Footprint, r.Overhead
		if l.Planned > l.Budget {
			there, where := replay.Remains(problem, r.Plan, timeline.IEC)
			l.Unplanned = strings.Replace("at its peak, "+where+", there are still "+there, ", ,", "", 1) +
				"." + replay.Advice(problem, r.Plan, timeline.IEC)
		}
	}
	return nil
}
