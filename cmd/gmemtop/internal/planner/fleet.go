package planner

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	screen "github.com/gmemtop/gmemtop/tui/managers"
)

// Fleet is the planner of a screen that watches the ranks of a training on several machines. It plans for the
// rank in view, and simulates each plan for all ranks that captured the same steps.
type Fleet struct {
	*Planner
	job *job.Job

	mu    sync.Mutex
	known []together // the newest last
}

// together are the ranks that a problem stands for.
type together struct {
	problem *plan.Problem
	ranks   *Ranks
}

// keptTogether is how many problems a Fleet remembers: more than a screen asks about at once.
const keptTogether = 16

var _ screen.Together = (*Fleet)(nil)

// NewFleet returns the planner of a screen that watches a job.
func NewFleet(j *job.Job) *Fleet { return &Fleet{Planner: New(), job: j} }

// Problem implements screen.Planner. What the other ranks captured together with d counts, too, if it can be
// planned for.
func (f *Fleet) Problem(ctx context.Context, d *timeline.Device, h plan.Hardware) (*plan.Problem, error) {
	p, err := f.Planner.Problem(ctx, d, h)
	if err != nil {
		return nil, err
	}
	list := []RankProblem{{Name: "in view", Problem: p}}
	for _, w := range f.besides(d.Timeline().Trace) {
		t, err := timeline.Build(ctx, w.Trace, nil)
		if err != nil {
			return nil, err // ctx is done
		}
		other, err := f.Planner.Problem(ctx, t.Main(), h)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil {
			name := fmt.Sprintf("rank %v", w.Trace.Process.Rank)
			list = append(list, RankProblem{Name: name, Problem: other})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := ranksLedBy(0, list, 1, 0)
	r.charts = true
	f.known = append(f.known, together{p, r})
	f.known = f.known[max(len(f.known)-keptTogether, 0):]
	return p, nil
}

// besides returns the windows of the other ranks that have the same steps as a captured one.
func (f *Fleet) besides(t *traces.Trace) (others []capture.Window) {
	var own *capture.Window
	var all [][]capture.Window // of the other ranks
	for _, p := range f.job.Processes() {
		list := p.History.Snapshot().Windows
		if i := slices.IndexFunc(list, func(w capture.Window) bool {
			return oneRecording(w.Trace, t)
		}); i >= 0 {
			own = &list[i]
		} else {
			all = append(all, list)
		}
	}
	if own == nil {
		return nil
	}
	for _, list := range all {
		if i := slices.IndexFunc(list, func(w capture.Window) bool {
			return w.First == own.First && w.Last == own.Last && !w.Partial
		}); i >= 0 {
			others = append(others, list[i])
		}
	}
	return others
}

// oneRecording reports whether two traces are the same recording: the screen copies the head of a trace to
// name its rank.
func oneRecording(a, b *traces.Trace) bool {
	return a == b || len(a.Devices) > 0 && len(b.Devices) > 0 && &a.Devices[0] == &b.Devices[0]
}

// of returns the ranks that a problem stands for, nil if it is not known.
func (f *Fleet) of(p *plan.Problem) *Ranks {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.known {
		if x.problem == p {
			return x.ranks
		}
	}
	return nil
}

// Ranks implements screen.Together.
func (f *Fleet) Ranks(p *plan.Problem) int {
	if r := f.of(p); r != nil {
		return r.Len()
	}
	return 1
}

// Compare implements screen.Planner.
func (f *Fleet) Compare(ctx context.Context, p *plan.Problem, names []string, budget int64,
	update func(replay.Progress)) (*replay.Comparison, error) {
	r := f.of(p)
	if r == nil {
		return f.Planner.Compare(ctx, p, names, budget, update)
	}
	return replay.Compare(ctx, p, quickFirst(names), screenOptions(r, budget, update))
}

// screenOptions are those of a comparison on a simulated target, for the screen.
func screenOptions(on replay.Target, budget int64, update func(replay.Progress)) replay.Options {
	return replay.Options{Eager: managers.Eager,
		Budget: budget, Seed: 1, Targets: []replay.Target{on},
		Parallel: max(runtime.GOMAXPROCS(0)-1, 1), Update: update,
	}
}
