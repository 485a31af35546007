package planner

import (
	"cmp"
	"context"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces/maybe"
	screen "github.com/gmemtop/gmemtop/tui/managers"
)

// Live is the planner of a screen that watches trainings: it carries plans out in the training that is
// watched now.
type Live struct {
	*Planner
	crew.Turns
}

var (
	_ screen.Trainer  = (*Live)(nil)
	_ screen.Measurer = (*Live)(nil)
)

// NewLive returns the planner of a screen that watches nothing yet.
func NewLive() *Live {
	return &Live{Planner: New()}
}

// TakeAway implements screen.Trainer.
func (p *Live) TakeAway(ctx context.Context) error {
	return p.Use(ctx, func(ctx context.Context, c *crew.Crew) error { return c.TakeAway(ctx) })
}

// chosen marks hardware that the user chose on the screen; the screen's initial choice does not count.
func (p *Planner) chosen(h plan.Hardware) live.Hardware {
	if h.Name == ownHardware {
		return live.Hardware{Hardware: recordedHardware(""), Of: hardwareOf}
	}
	return live.Hardware{Hardware: h, Chosen: true}
}

// Train implements screen.Trainer.
func (p *Live) Train(ctx context.Context, manager string, budget int64, h plan.Hardware,
	tell func(live.News)) error {
	return p.Use(ctx, func(ctx context.Context, c *crew.Crew) error {
		w, err := choose(manager, p.chosen(h), budget)
		if err != nil {
			return err
		}
		return c.Train(ctx, w, tell)
	})
}

// Targets implements screen.Measurer.
func (p *Live) Targets(ctx context.Context) []screen.Target {
	list := p.Planner.Targets(ctx)
	if who := p.Training(); who != "" {
		list = append(list, screen.Target{Name: live.Name, About: "the training itself, " + who})
	}
	return list
}

// Measure implements screen.Measurer.
func (p *Live) Measure(ctx context.Context, c *replay.Comparison, target string,
	update func(replay.Progress)) error {
	if target != live.Name {
		return p.Planner.Measure(ctx, c, target, update)
	}
	return p.Use(ctx, func(ctx context.Context, with *crew.Crew) error {
		return measured(ctx, with, c, p.chosen(c.Problem.Hardware), update)
	})
}

// measured describes a training, plans for it with the managers in a comparison, and carries out each plan
// that eager PyTorch can run. With each result comes the simulator's prediction for the same plan.
func measured(ctx context.Context, w *crew.Crew, of *replay.Comparison, h live.Hardware,
	update func(replay.Progress)) error {
	var names []string
	for _, r := range of.Results {
		names = append(names, r.Info.Name)
	}
	u := replay.Progress{Target: live.Name, Total: int64(len(names))}
	say := func(manager, doing string) {
		u := u
		u.Manager, u.Doing = manager, doing
		update(u)
	}
	say(names[0], "describe")
	replan := func(ctx context.Context, p *plan.Problem, manager string, spare int64) (*plan.Plan, error) {
		x, err := choose(manager, h, of.Budget)
		if err != nil {
			return nil, err
		}
		m, err := x.Plan(ctx, p, maybe.Int{}, spare)
		return m.Plan, err
	}
	target := w.Target(false, live.Options{}, replan)
	p, err := target.Problem(ctx, h)
	if err != nil {
		return err
	}
	c, err := replay.Compare(ctx, p, quickFirst(names), replay.Options{Eager: managers.Eager,
		Budget: of.Budget, Seed: 1, Parallel: 1,
		Update: func(x replay.Progress) { say(x.Manager, "plan") }})
	if err != nil {
		return err
	}
	var runnable []replay.Result
	for _, name := range names { // in the table's order
		r := eagerOf(c.Results, name)
		if r.Executor == plan.TorchEager && r.Valid {
			runnable = append(runnable, r)
			continue
		}
		reason := cmp.Or(r.Reason, crew.ErrNothingLeaves.Error())
		x := u
		x.Manager, x.Done, x.Results = name, true, []replay.Result{{Info: r.Info, Executor: plan.TorchEager,
			Target: live.Name, Reason: reason}}
		update(x)
	}
	c.Results = runnable
	done := u.Total - int64(len(runnable))
	return c.Measure(ctx, replay.Device{Target: target, Eager: true}, func(x replay.Progress) {
		x.Finished, x.Total = x.Finished+done, u.Total
		for i := range x.Results {
			if y := c.Simulated(&x.Results[i]); y != nil {
				x.Results = append(x.Results, *y)
			}
		}
		update(x)
	})
}

// eagerOf returns what a manager made for eager PyTorch, or else whatever it made.
func eagerOf(results []replay.Result, name string) (found replay.Result) {
	for _, r := range results {
		if r.Info.Name == name && (found.Info.Name == "" || r.Executor == plan.TorchEager) {
			found = r
		}
	}
	return found
}
