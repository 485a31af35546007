package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// wish is what a training is to be run with: a manager's plan for a budget, or a plan from a file.
type wish struct {
	manager string
	file    string
	budget  func(p *plan.Problem) (int64, error)
	// most is the share of its step time that it may cost, 0 for any.
	most     float64
	results  live.Results
	hardware live.Hardware
}

// errNothingLeaves says that a plan is empty.
var errNothingLeaves = errors.New("nothing of this plan can be carried out by eager PyTorch")

// plan makes the plan of a problem, and says what the simulator foretells it to add to a step, in nanoseconds.
func (w *wish) plan(ctx context.Context, p *plan.Problem) (pl *plan.Plan, added int64, err error) {
	if w.file != "" {
		pl, err = w.read(p)
	} else {
		pl, err = w.made(ctx, p)
	}
	if err != nil {
		return nil, 0, err
	}
	if pl.Executor != plan.TorchEager && !w.pools() {
		of := pl
		if pl, err = managers.Eager(ctx, p, of); err != nil {
			return nil, 0, err
		}
		if pl == nil {
			return nil, 0, fmt.Errorf("%s: %w: it moves and drops nothing that autograd saves", of.Manager, errNothingLeaves)
		}
	}
	with, err := sim.Simulator{}.Evaluate(ctx, p, pl)
	if err != nil {
		return nil, 0, err
	}
	without, err := replay.KeepAll(ctx, p, replay.Simulated{})
	if err != nil {
		return nil, 0, err
	}
	return pl, with.StepTime - without, nil
}

func (w *wish) read(p *plan.Problem) (*plan.Plan, error) {
	f, err := os.Open(w.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	pl, err := plan.ReadJSON(f, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.file, err)
	}
	return pl, nil
}

func (w *wish) made(ctx context.Context, p *plan.Problem) (*plan.Plan, error) {
	list, err := managers.Select(w.manager)
	if err != nil {
		return nil, usageError{err}
	}
	r := plan.Request{Seed: 1, Evaluator: sim.Simulator{}}
	if r.Budget, err = w.budget(p); err != nil {
		return nil, err
	}
	return list[0].Plan(ctx, p, r)
}

// replans is how often a plan that no longer fits the training is made anew before it is given up.
const replans = 3

// train has a wish carried out in a training until ctx is done: it describes the training, plans, and holds the plan, and does so anew where the training's
// steps have become others. tell hears of every change. The error says why it is not carried out any more.
func (t *trainer) train(ctx context.Context, w *wish, tell func(live.News)) error {
	if err := t.until(ctx, func(v *capture.View) (bool, error) { return len(v.Steps) > 0, nil }); err != nil {
		return err
	}
	target, err := t.target(ctx, w.pools(), live.Options{MostOverhead: w.most, Results: w.results})
	if err != nil {
		return err
	}
	for again := 0; ; again++ {
		tell(live.News{Doing: "describing"})
		p, err := target.Problem(ctx, w.hardware)
		if err != nil {
			return err
		}
		tell(live.News{Doing: "planning"})
		pl, added, err := w.plan(ctx, p)
		if err != nil {
			return err
		}
		err = target.Hold(ctx, p, pl, added, tell)
		if !errors.Is(err, errGivenUp) || again == replans {
			return err
		}
	}
}
