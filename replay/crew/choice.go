package crew

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Choice is the plan to run a training with, and its terms.
type Choice struct {
	// Name is the plan's display name.
	Name string
	// Budget returns the budget that the plan of a problem must fit into, given the room for tensors.
	// It is nil for a ready-made plan.
	Budget func(ctx context.Context, p *plan.Problem, room maybe.Int) (int64, error)
	// Make plans a problem for a budget, or reads a ready-made plan.
	Make func(ctx context.Context, p *plan.Problem, budget int64) (*plan.Plan, error)
	// Pools says that the plan chooses addresses and nothing else.
	Pools bool
	// Eager keeps the part of a plan that eager PyTorch can carry out, nil if there is none.
	Eager func(ctx context.Context, p *plan.Problem, pl *plan.Plan) (*plan.Plan, error)
	// Caching returns the memory that PyTorch's caching allocator needs for a step without a plan.
	Caching func(ctx context.Context, p *plan.Problem) (int64, error)
	// MostOverhead is the share of its step time that the plan may cost, 0 for any.
	MostOverhead float64
	Results      live.Results
	Hardware     live.Hardware
	// Offload keeps saved tensors on the host while there is no plan, even if they would fit on the device.
	Offload bool
	// Stays keeps the plan on after gmemtop is gone.
	Stays bool

	mu   sync.Mutex
	made map[string]live.Made // by the problem's shape, its room and the spare bytes
}

// RoomShare is the share of the device's free memory that plans may use: the rest is for workspaces, which no
// recording shows, and for gaps between tensors.
const RoomShare = 0.9

// ErrNothingLeaves says that eager PyTorch can carry out no part of a plan.
var ErrNothingLeaves = errors.New(say.NothingLeaves.Text())

// Plan plans a problem for a room in bytes. Problems of one shape, such as those of ranks that train on equal
// parts of a batch, share the plan made for the first of them. The plan promises the whole budget but is made
// for spare bytes less, because an earlier one exceeded its prediction by that much.
func (c *Choice) Plan(ctx context.Context, p *plan.Problem, room maybe.Int, spare int64) (live.Made, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shape := fmt.Sprintf("%s in %v but %d", p.Hash(), room, spare)
	for _, q := range p.Varied {
		shape += " beside " + q.Hash()
	}
	if m, ok := c.made[shape]; ok && plan.Validate(p, m.Plan) == nil {
		return m, nil
	}
	m, err := c.planned(ctx, p, room, spare)
	if err != nil {
		return m, err
	}
	if c.made == nil {
		c.made = map[string]live.Made{}
	}
	c.made[shape] = m
	return m, nil
}

func (c *Choice) planned(ctx context.Context, p *plan.Problem, room maybe.Int, spare int64) (m live.Made,
	err error) {
	m, err = c.within(ctx, p, room, spare)
	switch {
	case err != nil:
		return m, err
	case m.Parks:
	case len(m.Absences) == 0 && !c.Pools && p.Held() > m.Budget:
		return m, fmt.Errorf("%s: %w: %s%s", m.Manager, live.ErrNoGain, say.MovesNothing.Text(),
			replay.StillThere(p, m.Plan))
	case len(m.Absences) == 0 && !c.Pools:
		return m, errors.New(say.NothingToDo.Text(m.Manager, timeline.IEC.Bytes(m.Budget),
			timeline.IEC.Bytes(p.Held())))
	}
	if err := live.Gains(p, m.Plan); err != nil && !c.Pools {
		return m, fmt.Errorf("%s: %w%s", m.Manager, err, replay.StillThere(p, m.Plan))
	}
	if err := live.Fits(m.Plan, c.Pools, m.Budget); err != nil {
		if !c.Pools { // what stays does not tell where an arena has holes
			err = fmt.Errorf("%w%s", err, replay.StillThere(p, m.Plan))
		}
		return m, fmt.Errorf("%s: %w", m.Manager, err)
	}
	if m.Plan, err = c.varied(ctx, p, m, room, spare); err != nil {
		return m, err
	}
	with, err := sim.Simulator{}.Evaluate(ctx, p, m.Plan)
	if err != nil {
		return m, err
	}
	without, err := replay.KeepAll(ctx, p, replay.Simulated{})
	m.Added = with.StepTime - without
	return m, err
}

// within plans for this room and returns the part that eager PyTorch can carry out.
func (c *Choice) within(ctx context.Context, p *plan.Problem, room maybe.Int, spare int64) (m live.Made,
	err error) {
	plans := func(budget int64) (*plan.Plan, error) {
		pl, err := c.Make(ctx, p, budget)
		if err != nil {
			return nil, err
		}
		return c.eager(ctx, p, pl)
	}
	if c.Budget == nil {
		if m.Plan, err = plans(0); err == nil {
			m.Budget = m.Plan.Budget
		}
		return m, err
	}
	m.Budget, err = c.Budget(ctx, p, room)
	switch {
	case err != nil:
		return m, err
	case c.Pools: // an arena has only the holes that its plan leaves
		m.Plan, err = plans(m.Budget)
		return m, err
	}
	m.Plan, err = live.InRoom(ctx, p, room.Or(0), m.Budget-spare, plans)
	return m, err
}

// mostVaried bounds for how many other steps to plan where they exceed the budget.
const mostVaried = 4

// varied returns the plan with what it does in addition in other described steps that save what the planned
// one does not, as far as these exceed the budget otherwise. Whether they then keep it is for the training's
// target to say.
func (c *Choice) varied(ctx context.Context, p *plan.Problem, m live.Made, room maybe.Int,
	spare int64) (*plan.Plan, error) {
	if c.Budget == nil || c.Pools || m.Budget <= 0 {
		return m.Plan, nil
	}
	pl := m.Plan
	for range mostVaried {
		which, takes, err := live.Fullest(p, pl)
		if err != nil || takes <= m.Budget || pl.Varied != nil && pl.Varied[which] != nil {
			return pl, err
		}
		of, err := pl.Of(p.Varied[which])
		if err != nil {
			return nil, err
		}
		q := *of
		q.Hardware = p.Hardware // what was measured holds for all steps
		own, err := live.InRoom(ctx, &q, room.Or(0), m.Budget-spare, func(budget int64) (*plan.Plan, error) {
			made, err := c.Make(ctx, &q, budget)
			if err != nil {
				return nil, err
			}
			return c.eager(ctx, &q, made)
		})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil { // the plan so far says what the step takes
			return pl, nil
		}
		if own.Parks && !pl.Parks {
			if pl, err = c.parked(ctx, p, pl); err != nil {
				return nil, err
			}
		}
		with, err := live.Join(p, pl, which, own)
		if err != nil || with == pl {
			return pl, err
		}
		pl = with
	}
	return pl, nil
}

// parked returns a plan that in addition has optimizer state wait on the host.
func (c *Choice) parked(ctx context.Context, p *plan.Problem, of *plan.Plan) (*plan.Plan, error) {
	q, state := p.Parked()
	if q == nil { // another step's state can leave, and this one's cannot
		return of, nil
	}
	pl, err := plan.Assemble(q, plan.Decisions{Absences: of.Absences, Reruns: of.Reruns})
	if err != nil {
		return nil, err
	}
	pl.Manager = of.Manager
	if pl, err = c.Eager(ctx, q, pl); err != nil || pl == nil {
		return of, err
	}
	pl.Budget, pl.Parks, pl.Varied = of.Budget, true, of.Varied
	pl.Note("%s of optimizer state stays on the host between optimizer steps", timeline.IEC.Bytes(state))
	return pl, nil
}

// eager returns the part of a plan that eager PyTorch can carry out. It returns a plan that has nothing to do
// unchanged, and an error if no part of a plan can be carried out.
func (c *Choice) eager(ctx context.Context, p *plan.Problem, of *plan.Plan) (*plan.Plan, error) {
	if of.Executor == plan.TorchEager || of.Parks || c.Pools {
		return of, nil
	}
	pl, err := c.Eager(ctx, p, of)
	switch {
	case err != nil || pl != nil:
		return pl, err
	case len(of.Absences) == 0 && of.Footprint <= of.Budget:
		return of, nil
	case of.SectionBytes > 0:
		return nil, fmt.Errorf("%s: %w: %s", of.Manager, ErrNothingLeaves, say.CutsTensors.Text())
	case len(of.Absences) > 0:
		return nil, fmt.Errorf("%s: %w: %s", of.Manager, ErrNothingLeaves, replay.Obstacles(p, of))
	}
	return nil, fmt.Errorf("%s: %w: %s%s", of.Manager, ErrNothingLeaves, say.MovesNoSaved.Text(),
		replay.StillThere(p, of))
}

// fits reports whether the training also runs without a plan: whether PyTorch's caching allocator needs at
// most RoomShare of the room.
func (c *Choice) fits(ctx context.Context, p *plan.Problem, room maybe.Int) (bool, error) {
	all, err := c.Caching(ctx, p)
	return err == nil && room.IsKnown() && float64(all) <= RoomShare*float64(room.Or(0)), err
}

// replans bounds how often to plan again for a training that changed or exceeded its plan.
const replans = 3

// tries are the plans for a training that have ended.
type tries struct {
	ended int
	// spare is how many bytes of the budget further plans leave free: as many as earlier plans exceeded it
	// by.
	spare int64
	above error // the error with which the last of these ended
}

// again reports whether to plan once more after a plan ended with err.
func (t *tries) again(c *Choice, err error) bool {
	if c.Budget != nil && !c.Pools && t.less(err) {
		return true
	}
	if t.ended == replans || !errors.Is(err, errGivenUp) {
		return false
	}
	t.ended++
	return true
}

// less reports whether to plan once more for less, because of err: the plan exceeded its budget when it was
// measured, or by prediction in another step than the one planned for.
func (t *tries) less(err error) bool {
	above := (*live.Above)(nil)
	if t.ended == replans || !errors.As(err, &above) || !above.Measured && !above.Other {
		return false
	}
	t.spare, t.above = t.spare+above.Takes-above.Budget, err
	t.ended++
	return true
}

// spared runs a plan and, as long as it exceeds its budget, plans made for as much less: again is told for
// how many bytes. If there is no such plan, the error is that of the last one that ran. The measurement names
// the plan that was carried out if it is not the first one.
func spared(pl *plan.Plan, run func(*plan.Plan) (plan.Measurement, error),
	again func(spare int64) (*plan.Plan, error)) (plan.Measurement, error) {
	m, err := run(pl)
	if above := (*live.Above)(nil); errors.As(err, &above) && above.Other {
		// the given plan is for one step, and a new one also acts in others
		if whole, noPlan := again(0); noPlan == nil {
			if m, err = run(whole); err == nil {
				m.Plan = whole
			}
		}
	}
	for t := (tries{}); t.less(err); {
		less, noPlan := again(t.spare)
		if noPlan != nil {
			return m, err
		}
		if m, err = run(less); err == nil {
			m.Plan = less
			m.Notes = append(m.Notes, fmt.Sprintf("made for %s less than the budget: under a plan for all "+
				"of it another captured step would exceed it", timeline.IEC.Bytes(t.spare)))
		}
	}
	return m, err
}

// whyGivenUp returns why a plan ended, for a sentence that already says that it did.
func whyGivenUp(err error) string {
	return strings.TrimPrefix(report.Printable(strings.TrimSpace(err.Error())), errGivenUp.Error()+": ")
}

// train carries a choice out in one process until ctx is done: it describes the training, plans, holds the
// plan, and starts over when the training's steps change. seat is the process's seat among the ranks. It
// calls tell with every change. The error says why the choice is no longer carried out.
func (m *Member) train(ctx context.Context, c *Choice, seat *live.Seat, tell func(live.News)) error {
	defer seat.Leave()
	if err := m.FirstStep(ctx); err != nil {
		return err
	}
	if m.offloads() && !c.Offload && m.onCPU() { // else its steps would be described twice
		if err := m.keep(ctx); err != nil {
			return err
		}
	}
	o := live.Options{MostOverhead: c.MostOverhead, Results: c.Results, Seat: seat,
		NeverWithout: m.offloads(), Stays: c.Stays}
	var tries tries
	o.Again = func(ctx context.Context, p *plan.Problem) (live.Made, error) {
		return c.Plan(ctx, p, m.History.Snapshot().Info.Room, tries.spare)
	}
	o.Describing = func(n live.News) {
		n.Usual = m.Usual()
		tell(n)
	}
	target, err := m.Target(ctx, c.Pools, o)
	if err != nil {
		return err
	}
	ended, heard := "", tell
	tell = func(n live.News) {
		n.Ended = ended
		heard(n)
	}
	for {
		seat.Begin()
		p, err := target.Problem(ctx, c.Hardware)
		if err != nil {
			return err
		}
		room := m.History.Snapshot().Info.Room
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
			if onCPU && !c.Hardware.Chosen { // a plan's cost there is measured against steps without one
				if p, err = target.Problem(ctx, c.Hardware); err != nil {
					return err
				}
			}
		}
		if err := seat.Next(ctx); err != nil {
			return err
		}
		tell(live.News{Stage: live.Planning})
		made, err := c.Plan(ctx, p, room, tries.spare)
		if err != nil {
			return cmp.Or(tries.above, err)
		}
		if err := seat.Next(ctx); err != nil {
			return err
		}
		err = target.Hold(ctx, p, made, tell)
		if !tries.again(c, err) {
			return err
		}
		ended = whyGivenUp(err)
	}
}
