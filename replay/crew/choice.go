package crew

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
)

// Choice is what a training is to be run with: a plan, and on what terms.
type Choice struct {
	// Name is what people call the plan.
	Name string
	// Budget returns what the plan of a problem is to fit into, of so many bytes of room for tensors, 0 where
	// that is unknown; nil for a plan that was made before.
	Budget func(ctx context.Context, p *plan.Problem, room int64) (int64, error)
	// Make makes the plan of a problem for a budget, or reads it.
	Make func(ctx context.Context, p *plan.Problem, budget int64) (*plan.Plan, error)
	// Pools says that the plan only chooses addresses.
	Pools bool
	// Eager turns a plan into what eager PyTorch can carry out of it, nil where that is nothing.
	Eager func(ctx context.Context, p *plan.Problem, pl *plan.Plan) (*plan.Plan, error)
	// Caching returns what PyTorch's caching allocator takes for a step without a plan.
	Caching func(ctx context.Context, p *plan.Problem) (int64, error)
	// MostOverhead is the share of its step time that the plan may cost, 0 for any.
	MostOverhead float64
	Results      live.Results
	Hardware     live.Hardware
	// Offload has what is saved wait on the host for as long as there is no plan, though it would fit.
	Offload bool

	mu   sync.Mutex
	made map[string]Made // by the problem's shape and the room for it
}

// RoomShare is the share of the device's free memory that is planned with: the rest is for workspaces, which
// no recording shows, and for what lies between tensors.
const RoomShare = 0.9

// Made is a plan, and what the simulator predicts it to add to a step, in nanoseconds.
type Made struct {
	*plan.Plan
	added int64
}

// ErrNothingLeaves says that a plan is empty.
var ErrNothingLeaves = errors.New("nothing of this plan can be carried out by eager PyTorch")

// Plan returns the plan of a problem for so many bytes of room, 0 where that is not known. Of problems of one
// shape, as those of ranks that train on equal parts of a batch, the first is planned for: its plan is that
// of the others as well.
func (c *Choice) Plan(ctx context.Context, p *plan.Problem, room int64) (Made, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shape := fmt.Sprintf("%s in %d", p.Hash(), room)
	if m, ok := c.made[shape]; ok && plan.Validate(p, m.Plan) == nil {
		return m, nil
	}
	m, err := c.planned(ctx, p, room)
	if err != nil {
		return m, err
	}
	if c.made == nil {
		c.made = map[string]Made{}
	}
	c.made[shape] = m
	return m, nil
}

// planned makes or reads the plan of a problem.
func (c *Choice) planned(ctx context.Context, p *plan.Problem, room int64) (m Made, err error) {
	m.Plan, err = c.within(ctx, p, room)
	switch {
	case err != nil:
		return m, err
	case len(m.Absences) == 0 && !c.Pools && p.Held() > m.Budget:
		return m, fmt.Errorf("%s: %w: it moves nothing of this step; try another manager", m.Manager,
			live.ErrNoGain)
	case len(m.Absences) == 0 && !c.Pools:
		return m, fmt.Errorf("%s has nothing to do: a step fits into %s as it is, with %s at its peak",
			m.Manager, timeline.IEC.Bytes(m.Budget), timeline.IEC.Bytes(p.Held()))
	}
	if err := live.Gains(p, m.Plan); err != nil && !c.Pools {
		return m, fmt.Errorf("%s: %w", m.Manager, err)
	}
	with, err := sim.Simulator{}.Evaluate(ctx, p, m.Plan)
	if err != nil {
		return m, err
	}
	without, err := replay.KeepAll(ctx, p, replay.Simulated{})
	m.added = with.StepTime - without
	return m, err
}

// within returns the part of the plan for this room that eager PyTorch can carry out.
func (c *Choice) within(ctx context.Context, p *plan.Problem, room int64) (*plan.Plan, error) {
	plans := func(budget int64) (*plan.Plan, error) {
		pl, err := c.Make(ctx, p, budget)
		if err != nil {
			return nil, err
		}
		return c.eager(ctx, p, pl)
	}
	if c.Budget == nil {
		return plans(0)
	}
	budget, err := c.Budget(ctx, p, room)
	switch {
	case err != nil:
		return nil, err
	case c.Pools: // an arena has no holes but its plan's own
		return plans(budget)
	}
	return live.InRoom(ctx, p, room, budget, plans)
}

// eager returns the part of a plan that eager PyTorch can carry out. It returns a plan that has nothing to do
// as it is, and an error where no part of one can be carried out.
func (c *Choice) eager(ctx context.Context, p *plan.Problem, of *plan.Plan) (*plan.Plan, error) {
	if of.Executor == plan.TorchEager || c.Pools {
		return of, nil
	}
	pl, err := c.Eager(ctx, p, of)
	switch {
	case err != nil || pl != nil:
		return pl, err
	case len(of.Absences) == 0 && of.Footprint <= of.Budget:
		return of, nil
	case of.SectionBytes > 0:
		const why = "it cuts tensors, and eager PyTorch moves a tensor as a whole"
		return nil, fmt.Errorf("%s: %w: %s", of.Manager, ErrNothingLeaves, why)
	}
	return nil, fmt.Errorf("%s: %w: it moves and drops nothing that autograd saves", of.Manager,
		ErrNothingLeaves)
}

// fits reports whether the training runs without a plan too: what PyTorch's caching allocator takes for it is
// within the share of the room that is planned with.
func (c *Choice) fits(ctx context.Context, p *plan.Problem, room int64) (bool, error) {
	all, err := c.Caching(ctx, p)
	return err == nil && room > 0 && float64(all) <= RoomShare*float64(room), err
}

// replans is how often a plan that no longer fits the training is made again before it is given up.
const replans = 3

// whyGivenUp returns the reason of a plan's end without saying that the training goes on: it is planned for
// again, which says so.
func whyGivenUp(err error) string {
	why := strings.TrimPrefix(report.Printable(strings.TrimSpace(err.Error())), errGivenUp.Error()+": ")
	return strings.TrimPrefix(why, "off, and training goes on as before: ")
}

// train has a choice carried out in one process until ctx is done: it describes the training, plans, and
// holds the plan, and begins again where the training's steps have changed. seat is the process's among the
// ranks. It calls tell with every change. The error says why the choice is no longer carried out.
func (m *Member) train(ctx context.Context, c *Choice, seat *live.Seat, tell func(live.News)) error {
	defer seat.Leave()
	if err := m.FirstStep(ctx); err != nil {
		return err
	}
	o := live.Options{MostOverhead: c.MostOverhead, Results: c.Results, Seat: seat,
		NeverWithout: m.offloads()}
	target, err := m.Target(ctx, c.Pools, o)
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
		p, err := target.Problem(ctx, c.Hardware)
		if err != nil {
			return err
		}
		room := m.History.Snapshot().Target.Room
		if o.NeverWithout && !c.Offload {
			fits, err := c.fits(ctx, p, room)
			if err != nil {
				return err
			}
			onCPU := p.Source.Info.Kind == traces.DeviceCPU
			if fits || onCPU {
				if err := m.keep(ctx); err != nil {
					return err
				}
				o.NeverWithout = false
				if target, err = m.Target(ctx, c.Pools, o); err != nil {
					return err
				}
			}
			if onCPU && !c.Hardware.Chosen { // what a plan costs there is measured in steps without one
				if p, err = target.Problem(ctx, c.Hardware); err != nil {
					return err
				}
			}
		}
		if err := seat.Next(ctx); err != nil {
			return err
		}
		tell(live.News{Phase: live.Planning})
		made, err := c.Plan(ctx, p, room)
		if err != nil {
			return err
		}
		if err := seat.Next(ctx); err != nil {
			return err
		}
		err = target.Hold(ctx, p, made.Plan, made.added, tell)
		if !errors.Is(err, errGivenUp) || again == replans {
			return err
		}
		ended = whyGivenUp(err)
	}
}
