package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

// RankProblem is the iteration of one rank of a training.
type RankProblem struct {
	// Name is what people call it: rank 0.
	Name    string
	Problem *plan.Problem
}

// Ranks simulates plans for all ranks of a training together. It implements [replay.Target] for the problem
// of the rank that leads: plans are made for it.
type Ranks struct {
	list    []RankProblem
	lead    int
	charts  bool         // the leading rank's measurements are for charts
	request plan.Request // for plans of a rank's own; the budget comes with each plan
}

// newRanks returns the target for some ranks, at least one. The rank that holds most leads: it runs out of
// memory first.
func newRanks(list []RankProblem, seed uint64, work int64) *Ranks {
	fullest, most := 0, int64(0)
	for i := range list {
		if peak, _ := list[i].Problem.PeakLive(); peak > most {
			fullest, most = i, peak
		}
	}
	return &Ranks{list: list, lead: fullest, request: plan.Request{Seed: seed, Work: work,
		Evaluator: sim.Simulator{}}}
}

// OfRun makes the problems of the ranks of one training, whose traces were found in a folder. build makes a
// trace's timeline; of are the devices, as for [Task.OfTimeline]. damage is what was wrong with the first
// damaged trace, whose sound part is used; err names a trace of which no problem can be made.
func (t *Task) OfRun(ctx context.Context, found []load.Found, of report.Devices,
	build func(ctx context.Context, t *traces.Trace) (*timeline.Timeline, error)) (_ *Ranks, damage,
	err error) {
	var list []RankProblem
	for _, f := range found {
		tl, err := build(ctx, f.Trace)
		if err != nil {
			return nil, nil, err
		}
		name := load.Name(f.Path)
		if rank, ok := f.Rank.Value(); ok {
			name = fmt.Sprintf("rank %d", rank)
		}
		p, err := t.OfTimeline(ctx, tl, of, name)
		if errors.Is(err, ErrNoDevice) && f.Err != nil {
			err = f.Err
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		list = append(list, RankProblem{Name: name, Problem: p})
		damage = cmp.Or(damage, f.Err)
	}
	return newRanks(list, t.Seed, t.Work), damage, nil
}

// Lead returns the rank that plans are made for.
func (r *Ranks) Lead() RankProblem { return r.list[r.lead] }

// Len is how many ranks there are.
func (r *Ranks) Len() int { return len(r.list) }

// Name implements replay.Target: the ranks are simulated.
func (r *Ranks) Name() string { return replay.Simulated{}.Name() }

// keepAll is the manager of the plan by which [replay.KeepAll] asks for the step that keeps everything.
const keepAll = "keep-all"

// Run implements replay.Target. Every rank takes the plan if it is valid for it, and otherwise one of its own
// by the same manager. The measurement is for the training as a whole: the memory of the rank that holds
// most, and the step of the slowest, for which all others wait.
func (r *Ranks) Run(ctx context.Context, p *plan.Problem, pl *plan.Plan,
	o plan.RunOptions) (plan.Measurement, error) {
	m, err := replay.Simulated{Charts: r.charts}.Run(ctx, p, pl, o)
	if err != nil || len(r.list) == 1 {
		return m, err
	}
	lead := r.Lead()
	notes := []string{r.noteOf(lead.Name, &m)}
	for i, other := range r.list {
		if i == r.lead {
			continue
		}
		x, err := r.other(ctx, other.Problem, lead.Problem, pl, o)
		if err != nil {
			return m, fmt.Errorf("%s: %w", other.Name, err)
		}
		notes = append(notes, r.noteOf(other.Name, &x))
		if x.Footprint > m.Footprint {
			m.Footprint, m.PeakLive, m.Reserved = x.Footprint, x.PeakLive, x.Reserved
		}
		m.StepTime, m.StepP95 = max(m.StepTime, x.StepTime), max(m.StepP95, x.StepP95)
		m.SwappedOut, m.SwappedIn = max(m.SwappedOut, x.SwappedOut), max(m.SwappedIn, x.SwappedIn)
		m.RecomputeTime, m.CopyTime = max(m.RecomputeTime, x.RecomputeTime), max(m.CopyTime, x.CopyTime)
		m.PinnedPeak = max(m.PinnedPeak, x.PinnedPeak)
	}
	m.Notes = append(notes, m.Notes...)
	return m, nil
}

func (r *Ranks) noteOf(name string, m *plan.Measurement) string {
	return fmt.Sprintf("%s: %s, step %s", name, timeline.IEC.Bytes(m.Footprint),
		timeline.Duration(m.StepTime))
}

// other simulates the plan for the leading rank in another rank.
func (r *Ranks) other(ctx context.Context, own, lead *plan.Problem, pl *plan.Plan,
	o plan.RunOptions) (plan.Measurement, error) {
	if pl.Manager == keepAll {
		step, err := replay.KeepAll(ctx, own, replay.Simulated{})
		return plan.Measurement{StepTime: step, StepP95: step}, err
	}
	if own.Hash() != lead.Hash() || plan.Validate(own, pl) != nil {
		var err error
		if pl, err = r.planned(ctx, own, pl, o.Cap); err != nil {
			return plan.Measurement{}, err
		}
	}
	return replay.Simulated{}.Run(ctx, own, pl, o)
}

// planned plans for a rank by the manager of another plan, and as eager PyTorch can run it if that is.
func (r *Ranks) planned(ctx context.Context, p *plan.Problem, like *plan.Plan, budget int64) (*plan.Plan,
	error) {
	m, err := Manager(like.Manager)
	if err != nil {
		return nil, err
	}
	q := r.request
	q.Budget = budget
	own, err := m.Plan(ctx, p, q)
	if err != nil {
		return nil, err
	}
	if like.Executor == plan.TorchEager && own.Executor == plan.Ideal && len(own.Absences) > 0 {
		eager, err := managers.Eager(ctx, p, own)
		if err != nil {
			return nil, err
		}
		if eager != nil {
			return eager, nil
		}
	}
	if err := plan.Validate(p, own); err != nil {
		return nil, fmt.Errorf("its plan is not valid: %w", err)
	}
	return own, nil
}
