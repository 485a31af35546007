package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
)

// A training of several processes, the ranks of torchrun, is one training: a plan is carried out in all of
// them or it saves nothing, since the rank that holds most runs out of memory, and all wait for the slowest.
//
// Each rank is described, planned for, switched and measured by itself, at its own steps, by the same code
// that does so for a training of one process; a gate has them begin what is measured together. Ranks of one
// shape share a plan: that two are alike is seen in their descriptions and nowhere else, since ranks of a
// pipeline, or the first and the last part of a sharded model, are not. What becomes of a rank is its own:
// one that refuses, ends or comes later keeps the others from nothing, and what they learn is the same to the
// bit whether a plan is on in one, in some or in all.
//
// Ranks on other machines are not seen from here.

// crew is the processes of a training.
type crew struct {
	// lead is the process that is watched by itself, or shown.
	lead *trainer
	// look returns the processes that train now, the lead with them, in the order in which they are shown;
	// and whether others may still come. It is asked now and then for as long as a plan is on.
	look func(ctx context.Context) (list []*hand, more bool)
	gate live.Gate
}

// hand is a process of a crew.
type hand struct {
	*trainer
	pid  int
	name string
	// err says why it takes no orders, nil where it does.
	err error
}

// handsOf returns the members of a job as those of a crew.
func handsOf(list []job.Member) (hands []*hand) {
	for _, m := range list {
		h := &hand{pid: m.PID, name: m.Name, err: m.Err}
		if m.Process != nil {
			h.trainer = &trainer{session: m.Session, control: m.Process}
		}
		hands = append(hands, h)
	}
	return hands
}

// crewOf returns what the ranks of a training that is watched are, or the process alone where it has none.
func crewOf(w *job.Watch) func() *crew {
	return func() *crew {
		t := &trainer{session: w.Session, control: w.Process}
		return &crew{lead: t, look: func(ctx context.Context) ([]*hand, bool) {
			list, more := w.Members(ctx)
			return handsOf(list), more
		}}
	}
}

// crewOfJob returns the processes that train together with lead. Of the whole job they are those that train
// with the first, for as long as the command runs.
func crewOfJob(j *job.Job, lead *job.Process, whole bool) *crew {
	t := &trainer{session: lead.Session, control: lead}
	return &crew{lead: t, look: func(context.Context) ([]*hand, bool) {
		list, more := j.Members(lead, whole)
		return handsOf(list), more
	}}
}

// crewLook is the time between two looks at which processes there are.
const crewLook = 500 * time.Millisecond

// note has a notice shown by all who watch one of the processes.
func (c *crew) note(ctx context.Context, n capture.Notice) {
	c.lead.session.Notice(n)
	list, _ := c.look(ctx)
	for _, h := range list {
		if h.trainer != nil && h.session != c.lead.session {
			h.session.Notice(n)
		}
	}
}

// offloads says whether what one of the processes saves waits on the host where there is no plan.
func (c *crew) offloads(ctx context.Context) bool {
	list, _ := c.look(ctx)
	return slices.ContainsFunc(list, func(h *hand) bool { return h.trainer != nil && h.trainer.offloads() })
}

// patience is how long processes may take to end a plan.
const patience = 5 * time.Second

// takeAway ends the plan in every process, whoever started it. That viewer sees that its plan was turned off.
func (c *crew) takeAway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, _ := c.look(ctx)
	errs := make([]error, len(list))
	var work sync.WaitGroup
	for i, h := range list {
		if h.err != nil {
			continue
		}
		work.Go(func() {
			err := h.order(ctx, capture.Order{ID: capture.NewOrderID(), Do: capture.Carry})
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%s: the plan is not taken away yet, as no step has ended since it was "+
					"asked for: %w", h.name, err)
			}
			errs[i] = err
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// muster is what a plan comes to in the ranks of a training, told as one.
type muster struct {
	tell  func(live.News)
	mu    sync.Mutex
	ranks []live.Rank
}

// add makes room for a rank and returns what takes its news. One that was started anew takes the place of the
// one that ended.
func (p *muster) add(name string) func(f func(r *live.Rank)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.IndexFunc(p.ranks, func(r live.Rank) bool { return r.Gone && r.Name == name })
	if at < 0 {
		p.ranks, at = append(p.ranks, live.Rank{}), len(p.ranks)
	}
	p.ranks[at] = live.Rank{Name: name}
	return func(f func(r *live.Rank)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		f(&p.ranks[at])
		p.say()
	}
}

// say tells what there is to say now.
func (p *muster) say() {
	if len(p.ranks) == 1 {
		p.tell(p.ranks[0].News)
		return
	}
	p.tell(live.Together(slices.Clone(p.ranks)))
}

// gone reports whether a rank that ended with err has ended with its process.
func gone(err error) bool { return errors.Is(err, errEnded) }

// train has a wish carried out in every process until ctx is done, in those as well that come later. tell
// hears of every change, one at a time. The error says why it is carried out in none of them any more.
func (c *crew) train(ctx context.Context, w *wish, tell func(live.News)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	p := &muster{tell: tell}
	known := map[int]bool{}
	over := make(chan error)
	running := 0
	for tick := time.NewTicker(crewLook); ; {
		list, more := c.look(ctx)
		var seats []*live.Seat
		var fresh []*hand
		for _, h := range list {
			if !known[h.pid] {
				known[h.pid] = true
				seat := c.gate.Seat()
				seat.Begin() // before any of those who begin now goes on
				seats, fresh = append(seats, seat), append(fresh, h)
			}
		}
		for i, h := range fresh {
			running++
			news := p.add(h.name)
			go func() { over <- h.join(ctx, w, seats[i], news) }()
		}
		if running == 0 && !(more && allGone(p.ranks)) {
			tick.Stop()
			if len(p.ranks) == 0 {
				return errEnded
			}
			return live.Failed(p.ranks)
		}
		select {
		case err := <-over:
			if running--; errors.Is(err, live.ErrTakenAway) { // who takes it away from one means all
				end(live.ErrTakenAway)
			}
		case <-tick.C:
		case <-ctx.Done():
			for ; running > 0; running-- {
				<-over
			}
			tick.Stop()
			if why := context.Cause(ctx); errors.Is(why, live.ErrTakenAway) {
				return why
			}
			return nil
		}
	}
}

// allGone reports whether all of some ranks have ended.
func allGone(ranks []live.Rank) bool {
	return !slices.ContainsFunc(ranks, func(r live.Rank) bool { return !r.Gone })
}

// join has a wish carried out in one process of several.
func (h *hand) join(ctx context.Context, w *wish, seat *live.Seat, news func(func(r *live.Rank))) error {
	err := h.err
	if err == nil {
		err = h.reachable(ctx, func(ctx context.Context) error {
			return h.trainer.train(ctx, w, seat,
				func(n live.News) { news(func(r *live.Rank) { r.News = n }) })
		})
	}
	seat.Leave()
	if err != nil && ctx.Err() == nil {
		news(func(r *live.Rank) { r.Err, r.Gone = err, gone(err) })
	}
	return err
}

// reachable has f use a process, once nobody else's plan is on, for as long as it is connected.
func (t *trainer) reachable(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go t.severed(ctx, end)
	err := t.free(ctx)
	if err == nil {
		err = f(ctx)
	}
	// it was once, since it is known
	if errors.Is(err, pytorch.ErrNotConnected) || errors.Is(err, job.ErrNotConnected) {
		return errEnded
	}
	return ended(ctx, err)
}

// crewTarget is a training of several processes as one target of plans.
type crewTarget struct {
	crew   *crew
	pooled bool
	opt    live.Options
	// plan makes the plan that a manager has for a process that is not like the one that was planned for.
	plan  func(ctx context.Context, p *plan.Problem, manager string) (*plan.Plan, error)
	ranks []*targetRank
}

// target returns the processes as a target of plans that choose addresses, or of those that move and drop
// what is saved; manage makes a plan by a manager's name for a process that is not like the one that was
// planned for.
func (c *crew) target(pooled bool, o live.Options, manage func(ctx context.Context, p *plan.Problem,
	manager string) (*plan.Plan, error)) *crewTarget {
	return &crewTarget{crew: c, pooled: pooled, opt: o, plan: manage}
}

// targetRank is one process of it.
type targetRank struct {
	name   string
	of     *trainer
	seat   *live.Seat
	target *live.Target
	p      *plan.Problem
}

var _ replay.Target = (*crewTarget)(nil)

// Name implements replay.Target.
func (*crewTarget) Name() string { return liveName }

// each has f done for all ranks at once, each for as long as it is connected, and returns their errors by
// name.
func (t *crewTarget) each(ctx context.Context, f func(ctx context.Context, i int,
	r *targetRank) error) error {
	errs := make([]live.Rank, len(t.ranks))
	var work sync.WaitGroup
	for i, r := range t.ranks {
		errs[i].Name = r.name
		r.seat.Begin()
		work.Go(func() {
			defer r.seat.Leave()
			errs[i].Err = r.of.reachable(ctx, func(ctx context.Context) error { return f(ctx, i, r) })
		})
	}
	work.Wait()
	return firstError(live.Failed(errs), live.Refused(errs))
}

// Problem describes all processes and returns the problem of the one that holds most.
func (t *crewTarget) Problem(ctx context.Context, h live.Hardware) (*plan.Problem, error) {
	list, _ := t.crew.look(ctx)
	for _, x := range list {
		if x.err != nil {
			return nil, fmt.Errorf("%s: %w", x.name, x.err)
		}
		o := x.onGPUs(t.opt)
		o.Seat = t.crew.gate.Seat()
		target, err := x.target(ctx, t.pooled, o)
		if err != nil {
			return nil, err
		}
		t.ranks = append(t.ranks, &targetRank{name: x.name, of: x.trainer, seat: o.Seat, target: target})
	}
	err := t.each(ctx, func(ctx context.Context, _ int, r *targetRank) (err error) {
		r.p, err = r.target.Problem(ctx, h)
		return err
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil || len(t.ranks) == 0 {
		return nil, firstError(err, errEnded)
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

// Run implements replay.Target: every process carries out the plan, or where it is not like the one that was
// planned for, its own by the same manager. What is measured is said of the training as a whole: the memory
// of the process that holds most, the time of the slowest.
func (t *crewTarget) Run(ctx context.Context, p *plan.Problem, pl *plan.Plan,
	o plan.RunOptions) (plan.Measurement, error) {
	all := make([]plan.Measurement, len(t.ranks))
	shape := p.Hash()
	err := t.each(ctx, func(ctx context.Context, i int, r *targetRank) (err error) {
		own := pl
		if r.p != p && (r.p.Hash() != shape || plan.Validate(r.p, pl) != nil) {
			if own, err = t.plan(ctx, r.p, pl.Manager); err != nil {
				return err
			}
		}
		ro := o
		if i > 0 { // it is told once what all do
			ro.Progress = nil
		}
		all[i], err = r.target.Run(ctx, r.p, own, ro)
		return err
	})
	if err != nil {
		return plan.Measurement{Target: t.Name()}, err
	}
	m := all[0]
	if len(all) == 1 {
		return m, nil
	}
	m.Notes = nil
	for i := range all {
		x := &all[i]
		if x.Footprint > m.Footprint {
			m.Footprint, m.PeakLive, m.Reserved = x.Footprint, x.PeakLive, x.Reserved
		}
		if x.Process > m.Process {
			m.Process, m.ProcessBefore = x.Process, x.ProcessBefore
		}
		if x.StepTime > m.StepTime {
			m.StepTime, m.StepP95 = x.StepTime, x.StepP95
		}
		m.KeepAllBefore, m.KeepAllAfter = max(m.KeepAllBefore, x.KeepAllBefore),
			max(m.KeepAllAfter, x.KeepAllAfter)
		m.SwappedOut, m.SwappedIn, m.RecomputeTime = max(m.SwappedOut, x.SwappedOut),
			max(m.SwappedIn, x.SwappedIn), max(m.RecomputeTime, x.RecomputeTime)
		m.Work, m.WorkBefore, m.WorkAfter = max(m.Work, x.Work), max(m.WorkBefore, x.WorkBefore),
			max(m.WorkAfter, x.WorkAfter)
		m.CopyTime = max(m.CopyTime, x.CopyTime)
		m.Elapsed, m.Verified = max(m.Elapsed, x.Elapsed), m.Verified && x.Verified
		if i > 0 { // of the one host
			m.PinnedPeak += x.PinnedPeak
		}
	}
	for i, r := range t.ranks {
		x := &all[i]
		m.Notes = append(m.Notes, fmt.Sprintf("%s: %s, step %s instead of %s", r.name,
			timeline.IEC.Bytes(x.Footprint), timeline.Duration(x.StepTime), timeline.Duration(x.KeepAll())))
		for _, n := range x.Notes {
			m.Notes = append(m.Notes, r.name+": "+n)
		}
	}
	return m, nil
}
