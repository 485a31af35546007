// Package plannertest is a planner for tests of the screen: a made-up training, a handful of simple managers
// whose plans are valid and simulated like any others, no search and no clock, so that the same question has
// the same answer to the last byte.
package plannertest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/managers"
)

// Planner implements managers.Planner. The zero value plans a chain of 24 layers at once.
type Planner struct {
	// Kind is what the recording says; the zero value is dataflow.
	Kind traces.Kind
	// NoClock leaves durations out.
	NoClock bool
	// Double is a device of which the same training was recorded with everything twice as large, nil for
	// none.
	Double *timeline.Device
	// Together is how many ranks the training's problem stands for; 0 for one.
	Together int
	// Refusal, where not nil, is what Problem returns.
	Refusal error
	// Hold, where not nil, holds every manager up until something can be received from it, or planning is
	// cancelled.
	Hold chan struct{}
	// HasPlan says that a manager that is held up already has a plan, and returns it when it is cancelled.
	HasPlan bool
	// Busy, where not nil, holds the device up in the same way; Broken is a manager whose plan the device
	// finds wrong.
	Busy   chan struct{}
	Broken string
	// Watched is the training that is watched, "" for none; what it says of a plan is received from News, why
	// it ends from Fail, where not nil.
	Watched string
	News    chan live.News
	Fail    chan error
	// Other is what the training trains with though nobody asked for it here, Taken why it cannot be taken
	// away.
	Other string
	Taken error

	mu sync.Mutex
	// begun is how many managers were held up so far.
	begun int
	// Asked are the questions that Compare was asked, in order; Cancelled how many of them were cancelled.
	asked     []Question
	cancelled int
	trained   []Trained
	planned   *timeline.Device
}

// Trained is what Train was asked.
type Trained struct {
	Manager  string
	Budget   int64
	Hardware string
	Over     bool // it has ended
}

// Question is what Compare was asked.
type Question struct {
	Names  []string
	Budget int64
}

// Asked returns the questions that Compare was asked so far, and how many were cancelled.
func (f *Planner) Asked() (questions []Question, cancelled int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked), f.cancelled
}

// Begun returns how many managers were held up so far, or still are.
func (f *Planner) Begun() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

const mib = 1 << 20

// Managers implements managers.Planner.
func (f *Planner) Managers() []managers.Manager {
	var list []managers.Manager
	for _, m := range all {
		list = append(list, managers.Manager{Info: m.info, On: m.on})
	}
	return list
}

// Ranks implements managers.Together.
func (f *Planner) Ranks(*plan.Problem) (int, string) { return max(f.Together, 1), "rank 2" }

// Hardware implements managers.Planner.
func (f *Planner) Hardware() []plan.Hardware {
	fast := plan.Link{BytesPerSecond: 12e9, Latency: 10_000}
	slow := plan.Link{BytesPerSecond: 3e9, Latency: 10_000}
	return []plan.Hardware{{Name: "Fast link", Origin: "made up", D2H: fast, H2D: fast, Together: 1},
		{Name: "Slow link", Origin: "made up", D2H: slow, H2D: slow, Together: 1}}
}

// Problem implements managers.Planner.
func (f *Planner) Problem(ctx context.Context, d *timeline.Device, h plan.Hardware) (*plan.Problem, error) {
	f.mu.Lock()
	f.planned = d
	f.mu.Unlock()
	if f.Refusal != nil {
		return nil, f.Refusal
	}
	size := int64(64 * mib)
	if d != nil && d == f.Double {
		size *= 2
	}
	p := plantest.Chain(24, size, 4e6)
	p.Name, p.Hardware, p.HasTimes = "made-up training", h, !f.NoClock
	if f.Kind != 0 {
		p.Kind = f.Kind
	}
	return p, ctx.Err()
}

// Compare implements managers.Planner.
func (f *Planner) Compare(ctx context.Context, p *plan.Problem, names []string, budget int64,
	update func(replay.Progress)) (*replay.Comparison, error) {
	f.mu.Lock()
	f.asked = append(f.asked, Question{slices.Clone(names), budget})
	f.mu.Unlock()
	defer func() {
		if ctx.Err() != nil {
			f.mu.Lock()
			f.cancelled++
			f.mu.Unlock()
		}
	}()
	var list []plan.Manager
	for i := range all {
		if slices.Contains(names, all[i].info.Name) {
			list = append(list, held{&all[i], f, f.HasPlan})
		}
	}
	return replay.Compare(ctx, p, list, replay.Options{Budget: budget,
		Targets: []replay.Target{replay.Simulated{Charts: true}}, Parallel: 1, Update: update})
}

// Planned returns the device that was taken to plan for last.
func (f *Planner) Planned() *timeline.Device {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.planned
}

// Trained returns what Train was asked so far.
func (f *Planner) Trained() []Trained {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.trained)
}

// Training implements managers.Trainer.
func (f *Planner) Training() string { return f.Watched }

// Elsewhere implements managers.Trainer.
func (f *Planner) Elsewhere() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Other
}

// TakeAway implements managers.Trainer.
func (f *Planner) TakeAway(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Taken == nil {
		f.Other = ""
	}
	return f.Taken
}

// Train implements managers.Trainer: what it says comes from the test.
func (f *Planner) Train(ctx context.Context, manager string, budget int64, h plan.Hardware,
	tell func(live.News)) error {
	f.mu.Lock()
	i := len(f.trained)
	f.trained = append(f.trained, Trained{Manager: manager, Budget: budget, Hardware: h.Name})
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.trained[i].Over = true
		f.mu.Unlock()
	}()
	for {
		select {
		case n := <-f.News:
			tell(n)
		case err := <-f.Fail:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// Targets implements managers.Measurer: a device that works, one that does not, and the training that is
// watched.
func (f *Planner) Targets(context.Context) []managers.Target {
	list := []managers.Target{{Name: "cuda:0", About: "a device for tests, 12.0 GiB"},
		{Name: "cuda:1", Why: "the GPU accepts no further process"}}
	if f.Watched != "" {
		list = append(list, managers.Target{Name: "live", About: "the training itself, " + f.Watched})
	}
	return list
}

// Measure implements managers.Measurer: a device that takes a little longer than the simulator, and twice as
// long for copies.
func (f *Planner) Measure(ctx context.Context, c *replay.Comparison, target string,
	update func(replay.Progress)) error {
	if target == "live" {
		return f.measureLive(ctx, c, update)
	}
	return c.Measure(ctx, replay.Device{Target: slower{target, f}, About: "a device for tests"}, update)
}

// measureLive is a training that plans for itself: a plan of its own for every manager, the middle one of
// which it cannot carry out.
func (f *Planner) measureLive(ctx context.Context, of *replay.Comparison,
	update func(replay.Progress)) error {
	n := len(of.Results)
	for i, r := range of.Results {
		u := replay.Progress{Index: i, Manager: r.Info.Name, Target: "live", Doing: "with",
			Finished: int64(i), Total: int64(n)}
		update(u)
		again := *r.Plan
		x := replay.Result{Info: r.Info, Executor: plan.TorchEager, Target: "live", Plan: &again,
			Available: true, Valid: true, Fits: true, Overhead: 0.021}
		x.Measurement = plan.Measurement{Target: "live", Footprint: 900 * mib, PeakLive: 900 * mib,
			Allocated: true, StepTime: 102e6, StepP95: 103e6, KeepAllBefore: 100e6, KeepAllAfter: 100e6}
		y := x
		y.Target, y.Measurement.PeakLive, y.Overhead = "sim", 890*mib, 0.02
		u.Done, u.Results = true, []replay.Result{x, y}
		if i == n/2 {
			u.Results = []replay.Result{{Info: r.Info, Executor: plan.TorchEager, Target: "live",
				Reason: "nothing of this plan can be carried out by eager PyTorch"}}
		}
		update(u)
	}
	return ctx.Err()
}

type slower struct {
	name string
	f    *Planner
}

func (d slower) Name() string { return d.name }

func (d slower) Run(
	ctx context.Context, p *plan.Problem, pl *plan.Plan, o plan.RunOptions,
) (plan.Measurement, error) {
	if pl.Manager == d.f.Broken {
		return plan.Measurement{}, errors.New(d.name + ": the device found wrong bytes")
	}
	base, err := replay.KeepAll(ctx, p, replay.Simulated{})
	if err != nil {
		return plan.Measurement{}, err
	}
	for _, doing := range []string{"verify", "keep everything", "time"} {
		o.Progress(doing)
	}
	if d.f.Busy != nil {
		select {
		case <-d.f.Busy:
		case <-ctx.Done():
			return plan.Measurement{}, ctx.Err()
		}
	}
	m, err := replay.Simulated{}.Run(ctx, p, pl, o)
	m.KeepAllBefore, m.KeepAllAfter, m.Verified = base+base/50, base+base/50, true
	m.StepTime += base/50 + m.Stall
	m.StepP95 = m.StepTime + base/100
	if m.SwappedOut > 0 {
		m.OutRate, m.InRate = p.Hardware.D2H.BytesPerSecond/2, p.Hardware.H2D.BytesPerSecond
	}
	return m, err
}

// MaxBatch implements managers.Batcher.
func (f *Planner) MaxBatch(ctx context.Context, recorded []managers.Recorded, goal managers.Goal,
	names []string, budget int64, update func(managers.BatchNews)) error {
	var points []batch.Point
	for _, r := range recorded {
		points = append(points, batch.Point{Batch: r.Batch, Sequence: r.Sequence, Problem: r.Problem})
	}
	scale, err := batch.Scaling(points...)
	if err != nil {
		return err
	}
	at := func(n int) (*plan.Problem, error) {
		if goal.Longest {
			return scale.At(goal.At, n)
		}
		return scale.At(n, goal.At)
	}
	for i := range all {
		m := held{&all[i], f, false}
		news := managers.BatchNews{Manager: m.info.Name, Inferred: scale.Inferred()}
		if !slices.Contains(names, m.info.Name) {
			continue
		}
		news.Largest, err = batch.MaxBatch(ctx, func(n int) (*plan.Problem, error) {
			u := news
			u.Trying = n
			update(u)
			return at(n)
		}, func(p *plan.Problem) (bool, error) {
			c, err := replay.Compare(ctx, p, []plan.Manager{m}, replay.Options{Budget: budget, Parallel: 1})
			return err == nil && c.Results[0].Available && c.Results[0].Fits, err
		})
		if err != nil {
			return err
		}
		news.Done = true
		update(news)
	}
	return nil
}
