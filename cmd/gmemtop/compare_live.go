package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/replay/live"
)

// live reports whether --target names a running training.
func (f *deviceFlags) live() bool {
	return strings.HasPrefix(f.target, "live") && !strings.Contains(f.target, ",")
}

// livePID returns the process that --target names.
func livePID(target string) (int, error) {
	number, ok := strings.CutPrefix(target, "live:")
	pid, err := strconv.Atoi(number)
	if !ok || err != nil || pid <= 0 {
		return 0, usageError{fmt.Errorf("--target %q is none: write live:PID, with the number of a process "+
			"that trains", target)}
	}
	return pid, nil
}

// runLive has plans carried out in a training that runs, and leaves it as it was.
func (c *compareCommand) runLive(ctx context.Context) error {
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	pid, err := livePID(c.devices.target)
	if err != nil {
		return err
	}
	switch {
	case c.plan.network != "" || c.plan.iteration != "" || c.maxBatch:
		return usageError{errors.New("--target live:PID plans the step that the training runs: leave " +
			"--network, --iteration and --max-batch away")}
	case c.devices.iterations < 1 || c.devices.iterations > 10_000:
		return usageError{fmt.Errorf("--iterations %d: time between 1 and 10000 of them",
			c.devices.iterations)}
	}
	c.live.Steps = c.devices.iterations
	if c.live.Results, err = liveResults(c.devices.results); err != nil {
		return err
	}
	list, err := managers.Select(c.names)
	if err != nil {
		return usageError{err}
	}
	pooling, others := apart(list, c.names)
	if c.flags.json && len(pooling) > 0 && len(others) > 0 {
		return usageError{fmt.Errorf("--json writes one comparison, and %s is planned on another problem "+
			"than %s: compare them one after the other",
			pooling[0].Info().Name, others[0].Info().Name)}
	}
	var made []*replay.Comparison
	left := c.training(ctx, pid, func(w *crew.Crew) error {
		for _, x := range []struct {
			list   []plan.Manager
			pooled bool
		}{{others, false}, {pooling, true}} {
			if len(x.list) == 0 {
				continue
			}
			one, err := c.comparedLive(ctx, w, x.pooled, x.list)
			if one != nil {
				made = append(made, one)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if len(made) == 0 {
		return left
	}
	err = firstError(c.writeComparison(made...), left)
	for _, one := range made {
		err = firstError(err, unmeasured(one))
	}
	return err
}

// training has f use a training that runs, once one of its steps has ended, and leaves its processes as they
// were.
func (c *planning) training(ctx context.Context, pid int, f func(w *crew.Crew) error) error {
	found, err := job.Attachable(pid)
	if err != nil {
		return err
	}
	w := job.NewWatch(job.Options{Unasked: true, Attached: attachedBy})
	run, stop := context.WithCancel(context.Background())
	defer stop()
	w.Connect(run, pid, found.Started)
	all := crew.OfWatch(w)
	c.note("waiting for a step of process %d to end", pid)
	if err = all.Lead.Until(ctx, func(v *capture.View) (bool, error) {
		return len(v.Steps) > 0,
			nil
	}); err == nil {
		err = f(all)
	}
	left := w.LetGo()
	stop()
	return errors.Join(err, left, w.Close())
}

// problemOf is a target that describes what runs on it.
type problemOf interface {
	Problem(ctx context.Context, h live.Hardware) (*plan.Problem, error)
}

// describedNow has a training described and returns the iteration that process t runs.
func (c *planning) describedNow(ctx context.Context, target problemOf, pooled bool,
	m *crew.Member) (*plan.Problem, error) {
	h, err := c.plan.liveHardware()
	if err != nil {
		return nil, err
	}
	name := "process %d"
	if pooled {
		name = "what process %d allocates"
		c.note("recording the allocations of %d of its steps", crew.RecordedSteps)
	} else {
		c.note("describing two of its steps")
	}
	p, err := target.Problem(ctx, h)
	if err != nil {
		return nil, err
	}
	p.Name = fmt.Sprintf(name, m.Session.Snapshot().Target.PID)
	p.Outside, err = optionalBytes("outside", c.plan.outside)
	return p, err
}

// comparedLive describes a training, plans, and has plans carried out in all of its processes. Plans that
// choose addresses are made of another problem than the others, what its allocator was asked for, and are
// compared with what allocators do without a plan.
func (c *compareCommand) comparedLive(ctx context.Context, w *crew.Crew, pooled bool,
	list []plan.Manager) (*replay.Comparison, error) {
	if pooled {
		today, err := managers.Select("caching,expandable")
		if err != nil {
			return nil, err
		}
		list = append(today, list...)
	}
	target := w.Target(pooled, c.live, func(ctx context.Context, p *plan.Problem, manager string) (*plan.Plan,
		error) {
		m, err := oneManager(manager)
		if err != nil {
			return nil, err
		}
		x := planner.Choose(m, c.plan.budgetIn)
		x.Hardware = live.Hardware{Hardware: p.Hardware}
		made, err := x.Plan(ctx, p, 0)
		return made.Plan, err
	})
	p, err := c.describedNow(ctx, target, pooled, w.Lead)
	if err != nil {
		return nil, err
	}
	about := w.Lead.Session.Snapshot().Target.Command()
	if n := target.Ranks(); n > 1 {
		about += fmt.Sprintf(", %d ranks", n)
	}
	opt, err := c.plan.options(ctx, p)
	if err != nil {
		return nil, err
	}
	opt.Limit = c.limit
	if !pooled {
		opt.Eager = managers.Eager
	}
	opt.Devices = []replay.Device{{Target: target, About: about, Eager: !pooled, Pools: pooled}}
	return c.compared(ctx, p, list, opt)
}

// apart takes the managers that only choose addresses out of a list, where they were named: they are not
// carried out unasked.
func apart(list []plan.Manager, names string) (pooling, others []plan.Manager) {
	if names == "" || names == "all" {
		return nil, list
	}
	for _, m := range list {
		if m.Info().Family == plan.Pooling {
			pooling = append(pooling, m)
		} else {
			others = append(others, m)
		}
	}
	return pooling, others
}
