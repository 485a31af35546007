package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
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
		return 0, usageError{fmt.Errorf("--target %q is none: write live:PID, with the number of a process that trains", target)}
	}
	return pid, nil
}

// compareLive has plans carried out in a training that runs, and leaves it as it was.
func (a *app) compareLive(ctx context.Context, f *planFlags, o comparing) error {
	if err := a.mayWrite(a.flags.output); err != nil {
		return err
	}
	pid, err := livePID(o.devices.target)
	if err != nil {
		return err
	}
	switch {
	case f.network != "" || f.iteration != "" || o.maxBatch:
		return usageError{errors.New("--target live:PID plans the step that the training runs: leave --network, --iteration and --max-batch away")}
	case o.devices.iterations < 1 || o.devices.iterations > 10_000:
		return usageError{fmt.Errorf("--iterations %d: time between 1 and 10000 of them", o.devices.iterations)}
	}
	o.live.Steps = o.devices.iterations
	if o.live.Results, err = liveResults(o.devices.results); err != nil {
		return err
	}
	list, err := managers.Select(o.names)
	if err != nil {
		return usageError{err}
	}
	pooling, others := apart(list, o.names)
	if a.flags.json && len(pooling) > 0 && len(others) > 0 {
		return usageError{fmt.Errorf("--json writes one comparison, and %s is planned on another problem than %s: compare them one after the other",
			pooling[0].Info().Name, others[0].Info().Name)}
	}
	var made []*replay.Comparison
	left := a.training(ctx, pid, func(w *crew) error {
		for _, x := range []struct {
			list []plan.Manager
			made func(context.Context, *crew, *planFlags, []plan.Manager, comparing) (*replay.Comparison, error)
		}{{others, a.comparedLive}, {pooling, a.pooledLive}} {
			if len(x.list) == 0 {
				continue
			}
			c, err := x.made(ctx, w, f, x.list, o)
			if c != nil {
				made = append(made, c)
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
	err = firstError(a.writeComparison(o.notes, made...), left)
	for _, c := range made {
		err = firstError(err, unmeasured(c))
	}
	return err
}

// training has f use a training that runs, once one of its steps has ended, and leaves its processes as they were.
func (a *app) training(ctx context.Context, pid int, f func(c *crew) error) error {
	found, err := attachable(pid)
	if err != nil {
		return err
	}
	w := newWatching("", "")
	w.unasked = true
	run, stop := context.WithCancel(context.Background())
	defer stop()
	w.connect(run, pid, found.Started)
	c := w.crew()
	a.note("waiting for a step of process %d to end", pid)
	if err = c.lead.until(ctx, func(v *capture.View) (bool, error) { return len(v.Steps) > 0, nil }); err == nil {
		err = f(c)
	}
	left := w.letGo()
	stop()
	return errors.Join(err, left, w.close())
}

// problemOf is a target that describes what runs on it.
type problemOf interface {
	Problem(ctx context.Context, h live.Hardware) (*plan.Problem, error)
}

// describedNow has a training described and returns the iteration that process t runs.
func (a *app) describedNow(ctx context.Context, target problemOf, pooled bool, f *planFlags, t *trainer) (*plan.Problem, error) {
	h, err := f.liveHardware()
	if err != nil {
		return nil, err
	}
	name := "process %d"
	if pooled {
		name = "what process %d allocates"
		a.note("recording the allocations of %d of its steps", recordedSteps)
	} else {
		a.note("describing two of its steps")
	}
	p, err := target.Problem(ctx, h)
	if err != nil {
		return nil, err
	}
	p.Name = fmt.Sprintf(name, t.session.Snapshot().Target.PID)
	p.Outside, err = optionalBytes("outside", f.outside)
	return p, err
}

// onGPUs adds to options what the driver counts for the process, where it trains on a GPU.
func (t *trainer) onGPUs(o live.Options) live.Options {
	if who := t.session.Snapshot().Target; strings.HasPrefix(who.Device, "cuda") {
		o.Used = usedBy(who.PID, func(string) bool { return true })
	}
	return o
}

// comparedLive describes the training, plans and has the plans carried out.
func (a *app) comparedLive(ctx context.Context, w *crew, f *planFlags, list []plan.Manager, o comparing) (*replay.Comparison, error) {
	opt := replay.Options{Seed: f.seed, Work: f.work, Limit: o.limit, Eager: managers.Eager}
	return a.comparedIn(ctx, w, false, f, list, opt, o.live)
}

// comparedIn describes a training, plans, and has plans carried out in all of its processes.
func (a *app) comparedIn(ctx context.Context, w *crew, pooled bool, f *planFlags, list []plan.Manager, opt replay.Options, how live.Options) (*replay.Comparison, error) {
	target := w.target(pooled, how, func(ctx context.Context, p *plan.Problem, manager string) (*plan.Plan, error) {
		m, err := managed(manager, live.Hardware{Hardware: p.Hardware}, func(p *plan.Problem, _ int64) (int64, error) { return f.budgetBytes(ctx, p) }).plan(ctx, p, 0)
		return m.Plan, err
	})
	p, err := a.describedNow(ctx, target, pooled, f, w.lead)
	if err != nil {
		return nil, err
	}
	about := w.lead.session.Snapshot().Target.Command()
	if n := len(target.ranks); n > 1 {
		about += fmt.Sprintf(", %d ranks", n)
	}
	opt.Devices = []replay.Device{{Target: target, About: about, Eager: !pooled, Pools: pooled}}
	if opt.Budget, err = f.budgetBytes(ctx, p); err != nil {
		return nil, err
	}
	if opt.Margin, err = optionalBytes("margin", f.margin); err != nil {
		return nil, err
	}
	return a.compared(ctx, p, list, opt)
}
