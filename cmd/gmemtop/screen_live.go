package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	screen "github.com/gmemtop/gmemtop/tui/managers"
)

// livePlanner is the planner of a screen that watches trainings: it has plans carried out in the one that is
// watched now.
type livePlanner struct {
	*screenPlanner
	mu  sync.Mutex
	now *watched // nil where none is watched
}

var (
	_ screen.Trainer  = (*livePlanner)(nil)
	_ screen.Measurer = (*livePlanner)(nil)
)

// watched is a job that the screen watches, and what it is asked to do.
type watched struct {
	shown func() *crew    // its processes that train together, with the one that is shown
	ctx   context.Context // until it is let go of
	stop  context.CancelFunc
	work  sync.WaitGroup
	turn  chan struct{} // one plan at a time: the next one waits until the one before is taken away
	last  atomic.Int64  // the number of the plan that steps ran under when the turn ended: one of ours
}

// errNoTraining says that there is nothing to carry a plan out in.
var errNoTraining = errors.New(screen.HowToWatch)

// newLivePlanner returns the planner of a screen that watches nothing yet.
func newLivePlanner() *livePlanner {
	return &livePlanner{screenPlanner: newScreenPlanner()}
}

// watch has plans carried out in a job from now on, until leave is called, which takes the last one away. It
// must be called before the job is let go of.
func (p *livePlanner) watch(shown func() *crew) (leave func()) {
	w := &watched{shown: shown, turn: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = w
	return func() {
		p.mu.Lock()
		if p.now == w {
			p.now = nil
		}
		w.stop()
		p.mu.Unlock()
		w.work.Wait()
	}
}

// training returns what is watched, nil where it carries no plans out.
func (w *watched) training() *crew {
	if w == nil {
		return nil
	}
	c := w.shown()
	t := c.lead
	if v := t.session.Snapshot(); !v.Began || v.Ended || !slices.Contains(v.Target.Capabilities,
		capture.CapabilityPlans) {
		return nil
	}
	return c
}

// Training implements screen.Trainer.
func (p *livePlanner) Training() string {
	p.mu.Lock()
	c := p.now.training()
	p.mu.Unlock()
	if c == nil {
		return ""
	}
	who := c.lead.session.Snapshot().Target
	return fmt.Sprintf("process %d: %s", who.PID, who.Command())
}

// with has f use the training until it is let go of, once whoever used it before is done.
func (p *livePlanner) with(ctx context.Context, f func(ctx context.Context, c *crew) error) error {
	p.mu.Lock()
	w := p.now
	c := w.training()
	if c == nil {
		p.mu.Unlock()
		return errNoTraining
	}
	w.work.Add(1)
	p.mu.Unlock()
	defer w.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	select {
	case w.turn <- struct{}{}:
		defer func() {
			w.last.Store(c.lead.under())
			<-w.turn
		}()
	case <-ctx.Done():
		return nil
	}
	if ctx.Err() != nil || w.ctx.Err() != nil { // let go of while it waited
		return nil
	}
	return ended(ctx, f(ctx, c))
}

// severed ends work with a training whose connection is lost while it goes on: nothing that was asked for
// comes any more, and no step says that it ended.
func (t *trainer) severed(ctx context.Context, end context.CancelCauseFunc) {
	_ = t.session.Until(ctx, func(v *capture.View) (bool, error) {
		if v.Severed != "" {
			end(errors.New(v.Severed))
		}
		return v.Severed != "", nil
	})
}

// ended returns nil where the end was wished for, and why it was not where the connection was lost.
func ended(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
		return why
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// errTaken says that somebody else's plan is carried out.
var errTaken = errors.New("it trains with a plan already (gmemtop run --manager, or another screen): T in " +
	"the Managers view of gmemtop attach takes that away")

// under returns the number of the plan that the last step ran under, 0 for none.
func (t *trainer) under() int64 {
	v := t.session.Snapshot()
	if n := len(v.Steps); n > 0 && !v.Ended {
		return v.Steps[n-1].Carried.Plan
	}
	return 0
}

// Elsewhere implements screen.Trainer.
func (p *livePlanner) Elsewhere() string {
	p.mu.Lock()
	w := p.now
	c := w.training()
	p.mu.Unlock()
	if c == nil || len(w.turn) > 0 {
		return ""
	}
	if n := c.lead.under(); n == 0 || n == w.last.Load() {
		return ""
	}
	v := c.lead.session.Snapshot()
	return cmp.Or(v.Said(keyTraining), "it trains with a plan")
}

// TakeAway implements screen.Trainer.
func (p *livePlanner) TakeAway(ctx context.Context) error {
	return p.with(ctx, func(ctx context.Context, c *crew) error { return c.takeAway(ctx) })
}

// freeWithin is how many steps may end until one has run without a plan.
const freeWithin = 3

// free waits until steps run without a plan.
func (t *trainer) free(ctx context.Context) error {
	before := t.session.Snapshot()
	return t.until(ctx, func(v *capture.View) (bool, error) {
		n := len(v.Steps)
		switch {
		case n == 0:
			return false, nil
		case v.Steps[n-1].Carried.Plan == 0:
			return true, nil
		case len(before.Steps) > 0 && v.Steps[n-1].Index >= before.Steps[len(before.Steps)-1].Index+freeWithin:
			return false, errTaken
		}
		return false, nil
	})
}

// chosen says of hardware whether somebody chose it on the screen: what is in force at first nobody did.
func (p *screenPlanner) chosen(h plan.Hardware) live.Hardware {
	if h.Name == ownHardware {
		return live.Hardware{Hardware: recordedHardware(""), Of: hardwareOf}
	}
	return live.Hardware{Hardware: h, Chosen: true}
}

// Train implements screen.Trainer.
func (p *livePlanner) Train(ctx context.Context, manager string, budget int64, h plan.Hardware,
	tell func(live.News)) error {
	return p.with(ctx, func(ctx context.Context, c *crew) error {
		w := managed(manager, p.chosen(h), func(*plan.Problem, int64) (int64, error) { return budget, nil })
		return c.train(ctx, w, tell)
	})
}

// Targets implements screen.Measurer.
func (p *livePlanner) Targets(ctx context.Context) []screen.Target {
	list := p.screenPlanner.Targets(ctx)
	if who := p.Training(); who != "" {
		list = append(list, screen.Target{Name: liveName, About: "the training itself, " + who})
	}
	return list
}

// liveName is the name of a training as a target.
var liveName = live.NewTarget(nil, live.Options{}).Name()

// Measure implements screen.Measurer.
func (p *livePlanner) Measure(ctx context.Context, c *replay.Comparison, target string,
	update func(replay.Progress)) error {
	if target != liveName {
		return p.screenPlanner.Measure(ctx, c, target, update)
	}
	return p.with(ctx, func(ctx context.Context, with *crew) error {
		return with.measure(ctx, c, p.chosen(c.Problem.Hardware), update)
	})
}

// measure describes a training, plans for it with the managers that a comparison has results of, and carries
// each plan out that eager PyTorch can. Beside each result comes what the simulator says of the same plan.
func (w *crew) measure(ctx context.Context, of *replay.Comparison, h live.Hardware,
	update func(replay.Progress)) error {
	var names []string
	for _, r := range of.Results {
		names = append(names, r.Info.Name)
	}
	u := replay.Progress{Target: liveName, Total: int64(len(names))}
	say := func(manager, doing string) {
		u := u
		u.Manager, u.Doing = manager, doing
		update(u)
	}
	say(names[0], "describe")
	target := w.target(false, live.Options{}, func(ctx context.Context, p *plan.Problem,
		manager string) (*plan.Plan, error) {
		m, err := managed(manager, h, func(*plan.Problem, int64) (int64, error) {
			return of.Budget,
				nil
		}).plan(ctx, p, 0)
		return m.Plan, err
	})
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
		reason := cmp.Or(r.Reason, errNothingLeaves.Error())
		x := u
		x.Manager, x.Done, x.Results = name, true, []replay.Result{{Info: r.Info, Executor: plan.TorchEager,
			Target: liveName, Reason: reason}}
		update(x)
	}
	c.Results = runnable
	done := u.Total - int64(len(runnable))
	return c.Measure(ctx, replay.Device{Target: target, Eager: true}, func(x replay.Progress) {
		x.Part, x.Total = x.Part+done, u.Total
		for i := range x.Results {
			if y := c.Simulated(&x.Results[i]); y != nil {
				x.Results = append(x.Results, *y)
			}
		}
		update(x)
	})
}

// eagerOf returns what a manager made for eager PyTorch, or what it made instead.
func eagerOf(results []replay.Result, name string) (found replay.Result) {
	for _, r := range results {
		if r.Info.Name == name && (found.Info.Name == "" || r.Executor == plan.TorchEager) {
			found = r
		}
	}
	return found
}
