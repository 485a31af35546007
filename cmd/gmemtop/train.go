package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// wish is what a training is to be run with: a manager's plan for a budget, or a plan from a file.
type wish struct {
	manager string
	file    string
	text    []byte // of the file
	// pools says that the plan only chooses addresses.
	pools bool
	// budget returns what the plan is to fit into; room is the bytes that there are for tensors, 0 where
	// unknown.
	budget func(p *plan.Problem, room int64) (int64, error)
	// most is the share of its step time that it may cost, 0 for any.
	most     float64
	results  live.Results
	hardware live.Hardware
	// offload has what is saved wait on the host for as long as there is no plan, though it would fit.
	offload bool

	mu   sync.Mutex
	made map[string]madePlan // by the problem's shape and the room for it
}

// managed is the wish for a manager's plan.
func managed(manager string, h live.Hardware, budget func(p *plan.Problem, room int64) (int64, error)) *wish {
	return &wish{manager: manager, pools: pools(manager), hardware: h, budget: budget}
}

// madePlan is a plan, and what the simulator predicts it to add to a step, in nanoseconds.
type madePlan struct {
	*plan.Plan
	added int64
}

// errNothingLeaves says that a plan is empty.
var errNothingLeaves = errors.New("nothing of this plan can be carried out by eager PyTorch")

// plan returns the plan of a problem for so many bytes of room, 0 where that is not known. Of problems of one
// shape, as those of ranks that train on equal parts of a batch, the first is planned for: its plan is that
// of the others as well.
func (w *wish) plan(ctx context.Context, p *plan.Problem, room int64) (madePlan, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shape := fmt.Sprintf("%s in %d", p.Hash(), room)
	if m, ok := w.made[shape]; ok && plan.Validate(p, m.Plan) == nil {
		return m, nil
	}
	m, err := w.planned(ctx, p, room)
	if err != nil {
		return m, err
	}
	if w.made == nil {
		w.made = map[string]madePlan{}
	}
	w.made[shape] = m
	return m, nil
}

// planned makes or reads the plan of a problem.
func (w *wish) planned(ctx context.Context, p *plan.Problem, room int64) (m madePlan, err error) {
	if w.file != "" {
		m.Plan, err = w.read(ctx, p)
	} else {
		m.Plan, err = w.make(ctx, p, room)
	}
	switch {
	case err != nil:
		return m, err
	case len(m.Absences) == 0 && !w.pools:
		fits := timeline.IEC.Bytes(m.Budget)
		return m, fmt.Errorf("%s has nothing to do: a step fits into %s as it is", m.Manager, fits)
	}
	with, err := sim.Simulator{}.Evaluate(ctx, p, m.Plan)
	if err != nil {
		return m, err
	}
	without, err := replay.KeepAll(ctx, p, replay.Simulated{})
	m.added = with.StepTime - without
	return m, err
}

// fits says whether the training runs without a plan as well: what PyTorch's caching allocator takes for it
// is within the share of the room that is planned with.
func (w *wish) fits(ctx context.Context, p *plan.Problem, room int64) (bool, error) {
	all, err := (&planFlags{budget: "100%"}).budgetBytes(ctx, p)
	return err == nil && room > 0 && float64(all) <= roomShare*float64(room), err
}

// read returns the plan of the wish's file.
func (w *wish) read(ctx context.Context, p *plan.Problem) (*plan.Plan, error) {
	pl, err := plan.ReadJSON(bytes.NewReader(w.text), p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.file, err)
	}
	return w.eager(ctx, p, pl)
}

// eager returns what eager PyTorch can carry out of a plan, and a plan that has nothing to do as it is; an
// error where nothing of a plan can be carried out.
func (w *wish) eager(ctx context.Context, p *plan.Problem, of *plan.Plan) (*plan.Plan, error) {
	if of.Executor == plan.TorchEager || w.pools {
		return of, nil
	}
	pl, err := managers.Eager(ctx, p, of)
	switch {
	case err != nil || pl != nil:
		return pl, err
	case len(of.Absences) == 0 && of.Footprint <= of.Budget:
		return of, nil
	case of.SectionBytes > 0:
		const why = "it cuts tensors, and eager PyTorch moves a tensor as a whole"
		return nil, fmt.Errorf("%s: %w: %s", of.Manager, errNothingLeaves, why)
	}
	return nil, fmt.Errorf("%s: %w: it moves and drops nothing that autograd saves", of.Manager, errNothingLeaves)
}

// make asks the wish's manager for a plan.
func (w *wish) make(ctx context.Context, p *plan.Problem, room int64) (*plan.Plan, error) {
	list, err := managers.Select(w.manager)
	if err != nil {
		return nil, usageError{err}
	}
	budget, err := w.budget(p, room)
	if err != nil {
		return nil, err
	}
	plans := func(budget int64) (*plan.Plan, error) {
		r := plan.Request{Budget: budget, Seed: 1, Evaluator: sim.Simulator{}}
		pl, err := list[0].Plan(ctx, p, r)
		if err != nil {
			return nil, err
		}
		return w.eager(ctx, p, pl)
	}
	if w.pools { // an arena has no holes but its plan's own
		return plans(budget)
	}
	return live.InRoom(ctx, p, room, budget, plans)
}

// replans is how often a plan that no longer fits the training is made anew before it is given up.
const replans = 3

// whyGivenUp returns the reason alone of a plan's end: that the training goes on is seen by its being planned
// for anew.
func whyGivenUp(err error) string {
	why := strings.TrimPrefix(oneLine(err), errGivenUp.Error()+": ")
	return strings.TrimPrefix(why, "off, and training goes on as before: ")
}

// train has a wish carried out in one process until ctx is done: it describes the training, plans, and holds
// the plan, and does so anew where the training's steps have become others. seat is the process's among those
// of a training of several. tell hears of every change. The error says why it is not carried out any more.
func (t *trainer) train(ctx context.Context, w *wish, seat *live.Seat, tell func(live.News)) error {
	defer seat.Leave()
	if err := t.until(ctx, func(v *capture.View) (bool, error) { return len(v.Steps) > 0, nil }); err != nil {
		return err
	}
	o := live.Options{MostOverhead: w.most, Results: w.results, Seat: seat, NeverWithout: t.offloads()}
	target, err := t.target(ctx, w.pools, o)
	if err != nil {
		return err
	}
	ended, heard := "", tell
	tell = func(n live.News) {
		n.Ended = ended
		heard(n)
	}
	for again := 0; ; again++ {
		seat.Begin()
		tell(live.News{Phase: live.Describing})
		p, err := target.Problem(ctx, w.hardware)
		if err != nil {
			return err
		}
		room := t.session.Snapshot().Target.Room
		if o.NeverWithout && !w.offload {
			fits, err := w.fits(ctx, p, room)
			if err != nil {
				return err
			}
			if fits || p.Source.Info.Kind == traces.DeviceCPU {
				if err := t.keep(ctx); err != nil {
					return err
				}
				o.NeverWithout = false
				if target, err = t.target(ctx, w.pools, o); err != nil {
					return err
				}
			}
		}
		if err := seat.Next(ctx); err != nil {
			return err
		}
		tell(live.News{Phase: live.Planning})
		m, err := w.plan(ctx, p, room)
		if err != nil {
			return err
		}
		if err := seat.Next(ctx); err != nil {
			return err
		}
		err = target.Hold(ctx, p, m.Plan, m.added, tell)
		if !errors.Is(err, errGivenUp) || again == replans {
			return err
		}
		ended = whyGivenUp(err)
	}
}
