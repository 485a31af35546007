package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
)

// Training is a running training that a task is for. Its methods leave the processes as they were.
type Training struct {
	Task *Task
	PID  int
	// Attach says how to attach to it.
	Attach job.Options
	// Note is told what is waited for, and how far that has come.
	Note func(text string)
}

// Problem describes the step that the training runs. If pooled is set, the plan will only choose addresses,
// and the problem is what the process allocates.
func (t *Training) Problem(ctx context.Context, pooled bool) (p *plan.Problem, err error) {
	err = t.in(ctx, func(w *crew.Crew) error {
		target, err := w.Lead.Target(ctx, pooled, t.describing(live.Options{}, w.Lead, pooled))
		if err == nil {
			p, err = t.described(ctx, target, w.Lead, pooled)
		}
		return err
	})
	return p, err
}

// A Compare plans for a problem with managers and carries the plans out.
type Compare func(ctx context.Context, p *plan.Problem, list []plan.Manager,
	o replay.Options) (*replay.Comparison, error)

// Compare describes the training once for each round and compares the round's managers in all of its
// processes. With an error it returns the comparisons that were made before.
func (t *Training) Compare(ctx context.Context, rounds []Round, o live.Options,
	compare Compare) (made []*replay.Comparison, err error) {
	err = t.in(ctx, func(w *crew.Crew) error {
		for _, round := range rounds {
			one, err := t.round(ctx, w, round, o, compare)
			if one != nil {
				made = append(made, one)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return made, err
}

// round compares the managers of a round.
func (t *Training) round(ctx context.Context, w *crew.Crew, r Round, o live.Options,
	compare Compare) (*replay.Comparison, error) {
	target := w.Target(r.Pooled, t.describing(o, w.Lead, r.Pooled), t.Task.replan)
	p, err := t.described(ctx, target, w.Lead, r.Pooled)
	if err != nil {
		return nil, err
	}
	opt, err := t.Task.liveOptions(p, w, target, r.Pooled)
	if err != nil {
		return nil, err
	}
	return compare(ctx, p, r.Managers, opt)
}

// in runs f on the training once one of its steps has ended.
func (t *Training) in(ctx context.Context, f func(w *crew.Crew) error) error {
	found, err := job.Attachable(t.PID)
	if err != nil {
		return err
	}
	w := job.NewWatch(t.Attach)
	run, stop := context.WithCancel(context.Background())
	defer stop()
	w.Connect(run, t.PID, found.Started)
	all := crew.OfWatch(w)
	t.Note(fmt.Sprintf("waiting for a step of process %d to end", t.PID))
	if err = t.awaitStep(ctx, all.Lead.FirstStep, longStep); err == nil {
		err = f(all)
	}
	left := w.LetGo()
	stop()
	return errors.Join(err, left, w.Close())
}

// longStep is how long to wait for a step before saying what gmemtop takes for one.
const longStep = time.Minute

// awaitStep waits for the first step. If that takes longer than long, it says once what gmemtop takes for a
// step.
func (t *Training) awaitStep(ctx context.Context, wait func(context.Context) error,
	long time.Duration) error {
	first, stop := context.WithTimeout(ctx, long)
	defer stop()
	err := wait(first)
	if err == nil || first.Err() == nil || ctx.Err() != nil {
		return err
	}
	t.Note(fmt.Sprintf("no step has ended within %s: either the steps are long, or gmemtop does not "+
		"recognise them. It recognises the optimizers of torch.optim, and most loops that change "+
		"parameters after a backward pass", timeline.Duration(int64(long))))
	return wait(ctx)
}

// describing returns options that have how far the description of process m has come noted.
func (t *Training) describing(o live.Options, m *crew.Member, pooled bool) live.Options {
	if pooled {
		return o
	}
	o.Describing = func(n live.News) {
		n.Usual = m.Usual()
		t.Note(n.Doing()[0])
	}
	return o
}

// described describes the training and returns the iteration that process m runs, or what it allocates if
// pooled is set.
func (t *Training) described(ctx context.Context, d describer, m *crew.Member,
	pooled bool) (*plan.Problem, error) {
	name := fmt.Sprintf("process %d", m.History.Snapshot().Info.PID)
	if pooled {
		name = "what " + name + " allocates"
		t.Note(fmt.Sprintf("recording the allocations of %d of its steps", crew.RecordedSteps))
	}
	p, err := t.Task.Described(ctx, d, name)
	if err == nil {
		t.Note(live.Planning.Doing())
	}
	return p, err
}
