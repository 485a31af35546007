package crew

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
)

// Target presents a training of several processes as one target of plans.
type Target struct {
	crew   *Crew
	pooled bool
	opt    live.Options
	plan   Replan
	ranks  []*targetRank
}

// A Replan plans with the named manager for a process whose problem differs from the one first planned for,
// or for spare bytes less than the budget.
type Replan func(ctx context.Context, p *plan.Problem, manager string, spare int64) (*plan.Plan, error)

// Target returns the processes as a target of plans that choose addresses if pooled is set, and otherwise of
// plans that move and drop saved tensors.
func (c *Crew) Target(pooled bool, o live.Options, replan Replan) *Target {
	return &Target{crew: c, pooled: pooled, opt: o, plan: replan}
}

// targetRank is one process of the training.
type targetRank struct {
	name   string
	of     *Member
	seat   *live.Seat
	target *live.Target
	p      *plan.Problem
}

var _ replay.Target = (*Target)(nil)

// Ranks returns how many processes were described.
func (t *Target) Ranks() int { return len(t.ranks) }

// Name implements replay.Target.
func (*Target) Name() string { return live.Name }

// each runs f for all ranks at once, each while it is connected, and returns their errors by name.
func (t *Target) each(ctx context.Context, f func(ctx context.Context, i int, r *targetRank) error) error {
	errs := make([]live.Rank, len(t.ranks))
	var work sync.WaitGroup
	for i, r := range t.ranks {
		errs[i].Name = r.name
		r.seat.Begin()
		work.Go(func() {
			defer r.seat.Leave()
			done := false
			errs[i].Err = r.of.reachable(ctx, func(ctx context.Context) error {
				err := f(ctx, i, r)
				done = err == nil
				return err
			})
			if !done && errs[i].Err == nil { // the caller asked for the end, and there is nothing to report
				errs[i].Err = ctx.Err()
			}
		})
	}
	work.Wait()
	if err := live.Failed(errs); err != nil {
		return err
	}
	return live.Refused(errs)
}

// Problem describes all processes and returns the problem of the one that holds most.
func (t *Target) Problem(ctx context.Context, h live.Hardware) (*plan.Problem, error) {
	list, _ := t.crew.look(ctx)
	for _, x := range list {
		if x.Err != nil {
			return nil, fmt.Errorf("%s: %w", x.Name, x.Err)
		}
		o := t.opt
		if len(t.ranks) > 0 { // one of them reports progress
			o.Describing = nil
		}
		o.Seat = t.crew.gate.Seat()
		target, err := x.Target(ctx, t.pooled, o)
		if err != nil {
			return nil, err
		}
		t.ranks = append(t.ranks, &targetRank{name: x.Name, of: x, seat: o.Seat, target: target})
	}
	err := t.each(ctx, func(ctx context.Context, _ int, r *targetRank) (err error) {
		r.p, err = r.target.Problem(ctx, h)
		return err
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil || len(t.ranks) == 0 {
		return nil, cmp.Or(err, errEnded)
	}
	var most *plan.Problem
	var peak int64
	for _, r := range t.ranks {
		if b, _ := r.p.PeakLive(); most == nil || b > peak {
			most, peak = r.p, b
		}
	}
	return most, nil
}

// Run implements replay.Target: every process carries out the plan or, if its problem differs, its own plan
// by the same manager. Where steps run different ops and another than the one planned for is predicted to
// exceed the budget, the plan is made again for less, as in [Crew.Train]. The measurement is for the training
// as a whole: the memory of the process that holds most, the time of the slowest.
func (t *Target) Run(ctx context.Context, p *plan.Problem, pl *plan.Plan,
	o plan.RunOptions) (plan.Measurement, error) {
	all := make([]plan.Measurement, len(t.ranks))
	shape := p.Hash()
	err := t.each(ctx, func(ctx context.Context, i int, r *targetRank) (err error) {
		own := pl
		if r.p != p && (r.p.Hash() != shape || plan.Validate(r.p, pl) != nil) {
			if own, err = t.plan(ctx, r.p, pl.Manager, 0); err != nil {
				return err
			}
		}
		ro := o
		if i > 0 { // one rank reports for all
			ro.Progress = nil
		}
		all[i], err = spared(own, func(pl *plan.Plan) (plan.Measurement, error) {
			return r.target.Run(ctx, r.p, pl, ro)
		}, func(spare int64) (*plan.Plan, error) { return t.plan(ctx, r.p, pl.Manager, spare) })
		return err
	})
	if err != nil {
		return plan.Measurement{Target: t.Name()}, err
	}
	if len(all) == 1 {
		return all[0], nil
	}
	m := merged(all)
	for i, r := range t.ranks {
		x := &all[i]
		if r.p == p {
			m.Plan = x.Plan
		}
		m.Notes = append(m.Notes, fmt.Sprintf("%s: %s, step %s instead of %s", r.name,
			timeline.IEC.Bytes(x.Footprint), timeline.Duration(x.StepTime), timeline.Duration(x.KeepAll())))
		for _, n := range x.Notes {
			m.Notes = append(m.Notes, r.name+": "+n)
		}
	}
	return m, nil
}

// merged returns the measurement of a training as a whole: the memory of the process that holds most, the
// time of the slowest, and the pinned memory of all, which are on one host. Notes and the plan are left to
// the caller.
func merged(all []plan.Measurement) plan.Measurement {
	m := all[0]
	m.Notes, m.Plan = nil, nil
	for i := range all[1:] {
		x := &all[1+i]
		if x.Footprint > m.Footprint {
			m.Footprint, m.PeakLive, m.Reserved = x.Footprint, x.PeakLive, x.Reserved
		}
		if x.Process > m.Process {
			m.Process, m.ProcessBefore = x.Process, x.ProcessBefore
		}
		if x.StepTime > m.StepTime {
			m.StepTime, m.StepP95 = x.StepTime, x.StepP95
		}
		m.KeepAllBefore = max(m.KeepAllBefore, x.KeepAllBefore)
		m.KeepAllAfter = max(m.KeepAllAfter, x.KeepAllAfter)
		m.SwappedOut = max(m.SwappedOut, x.SwappedOut)
		m.SwappedIn = max(m.SwappedIn, x.SwappedIn)
		m.RecomputeTime = max(m.RecomputeTime, x.RecomputeTime)
		m.Work = max(m.Work, x.Work)
		m.WorkBefore = max(m.WorkBefore, x.WorkBefore)
		m.WorkAfter = max(m.WorkAfter, x.WorkAfter)
		m.CopyTime = max(m.CopyTime, x.CopyTime)
		m.Elapsed = max(m.Elapsed, x.Elapsed)
		m.Verified = m.Verified && x.Verified
		m.PinnedPeak += x.PinnedPeak
	}
	return m
}
