package sweep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Progress says how far a run is.
type Progress struct {
	// Done of Total units are finished; Before of them were when the run began.
	Done, Total, Before int
	// Left is how long the rest may take at the pace so far, 0 while unknown.
	Left time.Duration
	// Trace, Manager and Budget are those of the last finished unit.
	Trace, Manager, Budget string
}

// String says how far the sweep is.
func (p Progress) String() string {
	left := ""
	if p.Left > 0 {
		left = ", about " + timeline.Roughly(p.Left.Nanoseconds()) + " left"
	}
	return fmt.Sprintf("%d of %d plans%s · %s %s %s", p.Done, p.Total, left, p.Trace, p.Manager, p.Budget)
}

// longSweep is how long a sweep may take on one machine before more machines are suggested.
const longSweep = 30 * time.Minute

// Advice suggests more machines where one takes long, "" where it does not.
func (p Progress) Advice() string {
	if p.Left <= longSweep {
		return ""
	}
	return fmt.Sprintf("this takes about %s more on this machine; --serve and --shard share it out",
		timeline.Roughly(p.Left.Nanoseconds()))
}

// Kept says what an interrupted sweep has kept in its journal, and how to go on.
func (p Progress) Kept(journal string) string {
	return fmt.Sprintf("%d of %d plans are done and kept in %s: the same command continues from there",
		p.Done, p.Total, journal)
}

// RunOptions say how to run.
type RunOptions struct {
	// Jobs is how many units are planned at once, at least 1.
	Jobs int
	// Open makes the problem of the trace at a path. With a problem it may return what was wrong with the
	// rest of the file.
	Open func(ctx context.Context, path string) (p *plan.Problem, readErr, err error)
	// Tell is called with the progress, from one goroutine at a time.
	Tell func(Progress)
	// Damaged is told what was wrong with a trace, whether it could still be planned or not.
	Damaged func(name string, err error)
}

// enough is how many units have to be finished before the rest can be estimated.
const enough = 50

// task is a unit with what it needs.
type task struct {
	unit
	problem  *plan.Problem
	inferred bool
	err      error // why there is no problem
}

// Run plans the units that the journal lacks. It opens the traces one after another, and skips those whose
// units are all there. If ctx is done it returns its error; finished units are in the journal.
func (s *Sweep) Run(ctx context.Context, j *Journal, o RunOptions) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p := Progress{Total: len(s.units)}
	for _, u := range s.units {
		if _, ok := j.get(u.key); ok {
			p.Before++
		}
	}
	p.Done = p.Before
	began := time.Now()
	var mu sync.Mutex
	tasks := make(chan task)
	var work sync.WaitGroup
	for range max(o.Jobs, 1) {
		work.Go(func() {
			for t := range tasks {
				d, err := s.one(ctx, t)
				if ctx.Err() != nil {
					continue // a manager that was interrupted may have planned less than it would
				}
				if err == nil {
					err = j.put(d)
				}
				if err != nil {
					stop(err)
					continue
				}
				mu.Lock()
				p.Done++
				if n := p.Done - p.Before; n >= enough {
					p.Left = time.Since(began) / time.Duration(n) * time.Duration(p.Total-p.Done)
				}
				p.Trace, p.Manager, p.Budget = s.traces[t.trace].name, t.manager, t.budget
				o.Tell(p)
				mu.Unlock()
			}
		})
	}
	err := s.feed(ctx, j, o, tasks)
	close(tasks)
	work.Wait()
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}

// feed opens the traces and hands out the units that are missing.
func (s *Sweep) feed(ctx context.Context, j *Journal, o RunOptions, tasks chan<- task) error {
	opened := -1 // the trace whose problem is recorded
	var recorded *plan.Problem
	var failed error
	var made task // the problem at one batch size
	for _, u := range s.units {
		if _, ok := j.get(u.key); ok {
			continue
		}
		t := s.traces[u.trace]
		if opened != u.trace {
			var readErr error
			recorded, readErr, failed = o.Open(ctx, t.path)
			if recorded == nil && failed == nil {
				failed = readErr
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// The units are named after what the file held when the sweep began.
			if now, err := hashFile(ctx, t.path); err != nil || now != t.hash {
				return errors.Join(fmt.Errorf("%s: %w", t.name, errMoved), err)
			}
			if err := errors.Join(readErr, failed); err != nil {
				o.Damaged(t.name, err)
			}
			opened, made = u.trace, task{}
		}
		if made.problem == nil && made.err == nil || made.batch != u.batch {
			made = task{unit: unit{batch: u.batch}, err: failed}
			if failed == nil {
				made.problem, made.inferred, made.err = problem(recorded, t.recorded, u.batch)
			}
		}
		next := task{unit: u, problem: made.problem, inferred: made.inferred, err: made.err}
		select {
		case tasks <- next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// one plans a unit. Its error is about the sweep; a unit that cannot be planned is a row that says so.
func (s *Sweep) one(ctx context.Context, t task) (Done, error) {
	from := s.traces[t.trace]
	row := Row{Trace: from.name, Hash: from.hash, Batch: known(t.batch), Recorded: known(from.recorded),
		Manager: t.manager, Budget: t.budget, Inferred: t.inferred}
	done := func(status, reason string) (Done, error) {
		row.Status, row.Reason = status, reason
		return Done{t.key, []Row{row}}, nil
	}
	// A fresh manager, since some keep what they learn while they plan.
	list, err := managers.Select(t.manager)
	if err != nil {
		return Done{}, err
	}
	row.Family, row.Executor = fmt.Sprint(list[0].Info().Family), plan.Ideal.String()
	if t.err != nil {
		return done(unplannable, t.err.Error())
	}
	p := t.problem
	row.Hardware = p.Hardware.Name
	row.Held, row.Outside = maybe.Known(p.Held()), maybe.Known(p.Outside)
	work := s.options.Task
	work.Budget = t.budget
	opt, err := work.Options(p)
	if err != nil {
		return Done{}, err
	}
	row.BudgetBytes = maybe.Known(opt.Budget)
	opt.Parallel, opt.Eager = 1, managers.Eager
	made, err := replay.Compare(ctx, p, list, opt)
	var small *plan.TooSmall
	switch {
	case ctx.Err() != nil:
		return Done{}, ctx.Err()
	case errors.As(err, &small):
		return done(impossible, small.Error())
	case err != nil:
		return done(unplannable, err.Error())
	}
	d := Done{Key: t.key}
	for _, r := range made.Results {
		x := row
		x.fill(&r, made, p)
		d.Rows = append(d.Rows, x)
	}
	return d, nil
}

// fill puts a result in a row.
func (x *Row) fill(r *replay.Result, c *replay.Comparison, p *plan.Problem) {
	x.Executor, x.Reason = r.Executor.String(), r.Reason
	if p.HasTimes {
		x.KeepAll, x.TimesInferred = maybe.Known(c.Baseline), p.TimesInferred
	}
	if !r.Available {
		x.Status = unavailable
		return
	}
	x.Status = tooLarge
	if r.Fits {
		x.Status = fits
	}
	m := r.Measurement
	x.Footprint = maybe.Known(m.Footprint)
	x.SwappedOut, x.SwappedIn = maybe.Known(m.SwappedOut), maybe.Known(m.SwappedIn)
	if p.HasTimes {
		x.Step, x.Recomputed = maybe.Known(m.StepTime), maybe.Known(m.RecomputeTime)
	}
}

// Finished returns all units of the sweep in their order. It is an error if the journal lacks any.
func (s *Sweep) Finished(j *Journal) ([]Done, error) {
	var all []Done
	for _, u := range s.units {
		d, ok := j.get(u.key)
		if !ok {
			return nil, fmt.Errorf("the plan %s of %s is missing: run the same command again", u.key,
				s.traces[u.trace].name)
		}
		all = append(all, d)
	}
	return all, nil
}
