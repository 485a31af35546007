package planner

import (
	"context"
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

// Fleet is the planner of a screen that watches the ranks of a training on several machines. Whichever rank
// is in view, it plans for all ranks that captured the same steps: see [Ranks].
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

// Problem implements screen.Planner. It returns the problem of the fullest of the ranks that captured the
// same steps as d's, leaving out those that cannot be planned for.
func (f *Fleet) Problem(ctx context.Context, d *timeline.Device, h plan.Hardware) (*plan.Problem, error) {
	p, err := f.Planner.Problem(ctx, d, h)
	if err != nil {
		return nil, err
	}
	own, others := f.sameSteps(d.Timeline().Trace)
	list := []RankProblem{{Name: own.name, Problem: p}}
	for _, w := range others {
		t, err := timeline.Build(ctx, w.Trace, nil)
		if err != nil {
			return nil, err // ctx is done
		}
		other, err := f.Planner.Problem(ctx, t.Main(), h)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil {
			list = append(list, RankProblem{Name: w.name, Problem: other})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := newRanks(list, 1, 0)
	r.charts = true
	p = r.Lead().Problem
	f.known = append(f.known, together{p, r})
	f.known = f.known[max(len(f.known)-keptTogether, 0):]
	return p, nil
}

// rankWindow is what a rank has captured.
type rankWindow struct {
	capture.Window
	name string // of the rank
}

// sameSteps returns the window of a captured trace, and those of the other ranks that have the same steps.
func (f *Fleet) sameSteps(t *traces.Trace) (own rankWindow, others []rankWindow) {
	var all []capture.View // of the other ranks
	for _, p := range f.job.Processes() {
		v := p.History.Snapshot()
		if i := slices.IndexFunc(v.Windows, func(w capture.Window) bool {
			return oneRecording(w.Trace, t)
		}); i >= 0 {
			own = rankWindow{v.Windows[i], v.Info.Name()}
		} else {
			all = append(all, v)
		}
	}
	if own.Trace == nil {
		return own, nil
	}
	for _, v := range all {
		if i := slices.IndexFunc(v.Windows, func(w capture.Window) bool {
			return w.First == own.First && w.Last == own.Last && !w.Partial
		}); i >= 0 {
			others = append(others, rankWindow{v.Windows[i], v.Info.Name()})
		}
	}
	return own, others
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
func (f *Fleet) Ranks(p *plan.Problem) (n int, fullest string) {
	if r := f.of(p); r != nil {
		return r.Len(), r.Lead().Name
	}
	return 1, ""
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
