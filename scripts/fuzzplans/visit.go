package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/scripts/internal/trial"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

const (
	costs = "scripts/programs/thread.json" // what copies cost, as compare --hardware
	plans = 3                              // how many plans a visit tries
	work  = 200                            // how much a manager may search
)

// names are the managers that a plan is drawn from.
var names = []string{"autoswap", "sqrt", "joint", "joint", "capuchin", "dtr"}

// visits are gmemtop's visits to one program.
type visits struct {
	draw *rand.Rand
	t    *trial.Training
	r    *result
}

// visit attaches to the program, carries plans out, and lets it go. The error says why it could not, or that
// there was no time left.
func (v *visits) visit(ctx context.Context) (err error) {
	found, err := job.Attachable(v.t.PID())
	if err != nil {
		return err
	}
	w := job.NewWatch(job.Options{Unasked: true})
	run, stop := context.WithCancel(context.Background())
	w.Connect(run, v.t.PID(), found.Started)
	defer func() {
		view := w.History.Snapshot()
		if view.Ended && view.End.Reason == capture.Disarmed {
			v.r.fail("%s", view.End.Sentence())
		}
		left := w.LetGo()
		stop()
		if left = errors.Join(left, w.Close()); left != nil && ctx.Err() == nil && !view.Ended {
			v.r.fail("let go: %v", left)
		}
	}()
	of := crew.OfWatch(w)
	if err := of.Lead.FirstStep(ctx); err != nil {
		return err
	}
	if v.draw.IntN(3) == 0 {
		return v.held(ctx, of)
	}
	return v.tried(ctx, of)
}

// choice draws a manager and a budget.
func (v *visits) choice() (*crew.Choice, error) {
	name, share := names[v.draw.IntN(len(names))], v.draw.Float64()
	all, err := managers.Select(name)
	if err != nil {
		return nil, err
	}
	h, err := hardware.Load(costs)
	if err != nil {
		return nil, err
	}
	c := &crew.Choice{Name: name, Eager: managers.Eager, Hardware: live.Hardware{Hardware: h, Chosen: true}}
	c.Budget = func(_ context.Context, p *plan.Problem, _ maybe.Int) (int64, error) {
		least := plan.LeastResident(p)
		return least + int64(share*float64(p.Held()-least)), nil
	}
	c.Make = func(ctx context.Context, p *plan.Problem, budget int64) (*plan.Plan, error) {
		r := plan.Request{Budget: budget, Seed: 1, Evaluator: sim.Simulator{}, Work: work}
		return all[0].Plan(ctx, p, r)
	}
	return c, nil
}

// tried carries a few plans out one after the other, as compare does.
func (v *visits) tried(ctx context.Context, of *crew.Crew) error {
	target, err := of.Lead.Target(ctx, false, live.Options{Warm: 1, Steps: 3})
	if err != nil {
		return err
	}
	var p *plan.Problem
	for range plans {
		c, err := v.choice()
		if err != nil {
			return err
		}
		if p == nil {
			if p, err = target.Problem(ctx, c.Hardware); err != nil {
				v.r.says("describe: " + err.Error())
				return ctx.Err()
			}
		}
		made, err := c.Plan(ctx, p, maybe.Int{}, 0)
		if made.Plan == nil || len(made.Absences) == 0 {
			v.r.says(fmt.Sprintf("%s: %v", c.Name, err))
			continue
		} // a plan that is above its budget, or gains nothing, must do no harm either
		m, err := target.Run(ctx, p, made.Plan, plan.RunOptions{})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			v.r.says(fmt.Sprintf("%s is not carried out: %v", c.Name, err))
			continue
		}
		v.r.carried++
		for _, n := range m.Notes {
			if strings.Contains(n, "should have left") || strings.Contains(n, "bit") {
				v.r.says(c.Name + ": " + n)
			}
		}
		if takes := made.Footprint; m.Footprint > takes+takes/10 {
			v.r.says(fmt.Sprintf("%s holds %d KiB, and its plan takes %d KiB", c.Name, m.Footprint>>10,
				takes>>10))
		}
	}
	return nil
}

// held has a plan held for some time, as on the screen.
func (v *visits) held(ctx context.Context, of *crew.Crew) error {
	c, err := v.choice()
	if err != nil {
		return err
	}
	some, stop := context.WithCancel(ctx)
	defer stop()
	on := false
	err = of.Train(some, c, func(n live.News) {
		if n.Stage == live.On && !on {
			on = true
			time.AfterFunc(time.Duration(500+v.draw.IntN(2000))*time.Millisecond, stop)
		}
	})
	if on {
		v.r.carried++
	}
	if err != nil && ctx.Err() == nil {
		v.r.says("hold " + c.Name + ": " + err.Error())
	}
	return ctx.Err()
}
