package crew

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/replay/live"
)

// Crew is the processes of a training.
type Crew struct {
	// Lead is the watched process, or the one on the screen.
	Lead *Member

	look func(ctx context.Context) (list []*Member, more bool)
	gate live.Gate
}

// OfWatch returns the ranks of the watched training, or the process alone if it has none.
func OfWatch(w *job.Watch) *Crew {
	return newCrew(newMember(w.History, w.Process), func(ctx context.Context) ([]*Member, bool) {
		list, more := w.Candidates(ctx)
		return membersOf(list), more
	})
}

// OfJob returns the processes that train together with lead. For a whole job they are the processes that
// train with the first one, for as long as the command runs.
func OfJob(j *job.Job, lead *job.Process, whole bool) *Crew {
	return newCrew(newMember(lead.History, lead), func(context.Context) ([]*Member, bool) {
		list, more := j.Candidates(lead, whole)
		return membersOf(list), more
	})
}

// newCrew returns a crew. look returns the processes that train now, with lead among them and in the order in
// which they are shown, and whether others may still come. It is called repeatedly while a plan is on.
func newCrew(lead *Member, look func(ctx context.Context) (list []*Member, more bool)) *Crew {
	return &Crew{Lead: lead, look: look}
}

// crewLook is the time between two calls of look: no process tells that it joins the training.
const crewLook = 500 * time.Millisecond

// keyTraining is the key of the notice about a plan's progress.
const keyTraining = "training"

// tell shows a plan's progress to every viewer of any of the processes.
func (c *Crew) tell(ctx context.Context, text string) {
	n := capture.Notice{Key: keyTraining, Text: text}
	c.Lead.History.Notice(n)
	list, _ := c.look(ctx)
	for _, m := range list {
		if m.Err == nil && m.History != c.Lead.History {
			m.History.Notice(n)
		}
	}
}

// offloads reports whether a process keeps saved tensors on the host while there is no plan.
func (c *Crew) offloads(ctx context.Context) bool {
	list, _ := c.look(ctx)
	return slices.ContainsFunc(list, func(m *Member) bool { return m.Err == nil && m.offloads() })
}

// patience is how long processes may take to end a plan.
const patience = 5 * time.Second

// TakeAway ends the plan in every process, whichever viewer started it. That viewer is told that its plan was
// turned off.
func (c *Crew) TakeAway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, _ := c.look(ctx)
	errs := make([]error, len(list))
	var work sync.WaitGroup
	for i, h := range list {
		if h.Err != nil {
			continue
		}
		work.Go(func() {
			err := h.order(ctx, capture.Order{ID: capture.NewOrderID(), Do: capture.Carry})
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%s: %s: %w", h.Name, say.StillOn.Text(), err)
			}
			errs[i] = err
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// muster merges the news of a training's ranks.
type muster struct {
	tell  func(live.News)
	mu    sync.Mutex
	ranks []live.Rank
}

// add adds a rank and returns a function that changes its news. A restarted rank replaces the one that ended.
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

// say tells the merged news.
func (p *muster) say() {
	if len(p.ranks) == 1 {
		p.tell(p.ranks[0].News)
		return
	}
	p.tell(live.Together(slices.Clone(p.ranks)))
}

// gone reports whether a rank that ended with err has ended with its process.
func gone(err error) bool { return errors.Is(err, errEnded) }

// Train carries a choice out in every process until ctx is done, including processes that join later. It
// calls tell with every change, one at a time. The error says why no process carries it out any more.
func (c *Crew) Train(ctx context.Context, w *Choice, tell func(live.News)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	p := &muster{tell: tell}
	known := map[int]bool{}
	over := make(chan error)
	running := 0
	tick := time.NewTicker(crewLook)
	defer tick.Stop()
	for {
		list, more := c.look(ctx)
		var seats []*live.Seat
		var fresh []*Member
		for _, h := range list {
			if !known[h.PID] {
				known[h.PID] = true
				seat := c.gate.Seat()
				seat.Begin() // before any other goes on
				seats, fresh = append(seats, seat), append(fresh, h)
			}
		}
		for i, h := range fresh {
			running++
			news := p.add(h.Name)
			go func() { over <- h.join(ctx, w, seats[i], news) }()
		}
		if running == 0 && !(more && allGone(p.ranks)) {
			if len(p.ranks) == 0 {
				return errEnded
			}
			return live.Failed(p.ranks)
		}
		select {
		case err := <-over:
			if running--; errors.Is(err, live.ErrTakenAway) { // one process stands for all
				end(live.ErrTakenAway)
			}
		case <-tick.C:
		case <-ctx.Done():
			for ; running > 0; running-- {
				<-over
			}
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

// join carries a choice out in one process of several.
func (m *Member) join(ctx context.Context, w *Choice, seat *live.Seat, news func(func(r *live.Rank))) error {
	err := m.Err
	if err == nil {
		err = m.reachable(ctx, func(ctx context.Context) error {
			return m.train(ctx, w, seat, func(n live.News) { news(func(r *live.Rank) { r.News = n }) })
		})
	}
	seat.Leave()
	if err != nil && ctx.Err() == nil {
		news(func(r *live.Rank) { r.Err, r.Gone = err, gone(err) })
	}
	return err
}
