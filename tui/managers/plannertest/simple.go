package plannertest

import (
	"context"
	"errors"
	"slices"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// held is a manager that may be held up.
type held struct {
	*manager
	f   *Planner
	has bool // a plan by the time planning is cancelled
}

// Plan implements plan.Manager.
func (h held) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	if h.f.Hold != nil {
		r.Report(1, 2)
		h.f.mu.Lock()
		h.f.begun++
		h.f.mu.Unlock()
		select {
		case <-h.f.Hold:
		case <-ctx.Done():
			if h.has {
				return h.manager.Plan(context.WithoutCancel(ctx), p, r)
			}
			return nil, ctx.Err()
		}
	}
	return h.manager.Plan(ctx, p, r)
}

// manager is a simple one: it takes as few gaps as fit, widest first, and swaps or recomputes their buffers.
type manager struct {
	info plan.Info
	on   bool
	// policy is the online allocator of a baseline.
	policy *plan.Policy
	// how is what becomes of a buffer in its gap; every says for every second one to recompute.
	how   plan.How
	every bool
	moves bool
	// late fetches at the last moment, so that compute waits.
	late bool
	err  error
}

var all = []manager{
	{info: plan.Info{Name: "caching", Family: plan.Baseline, Needs: traces.Lifetimes,
		Summary: "An allocator of today."}, on: true, policy: &plan.Policy{Name: "caching"}},
	{info: plan.Info{Name: "direct", Family: plan.Baseline, Needs: traces.Lifetimes,
		Summary: "Every block from the driver."}, policy: &plan.Policy{Name: "direct"}},
	{info: plan.Info{Name: "packed", After: "Someone 2019", Family: plan.Pooling, Needs: traces.Lifetimes,
		Summary: "Chooses addresses."}, on: true},
	{info: plan.Info{Name: "swap-late", After: "Another 2016", Family: plan.Swapping, Needs: traces.Accesses,
		Summary: "Swaps whatever is idle, and fetches at the last moment."},
		on: true, moves: true, late: true},
	{info: plan.Info{Name: "re-run", After: "Yet Another 2020", Family: plan.Recomputing,
		Needs: traces.Dataflow, Summary: "Drops every second activation."},
		on: true, moves: true, how: plan.Recompute, every: true},
	{info: plan.Info{Name: "broken", After: "Nobody 2021", Family: plan.Combining, Needs: traces.Lifetimes,
		Summary: "Never makes a plan."}, err: errors.New("no plan was found")},
	{info: plan.Info{Name: "ours", Ours: true, Family: plan.Combining, Needs: traces.Lifetimes,
		Summary: "Swaps what hides behind compute."}, on: true, moves: true},
}

// Info implements plan.Manager.
func (m *manager) Info() plan.Info { return m.info }

// Plan implements plan.Manager.
func (m *manager) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	if m.err != nil {
		return nil, m.err
	}
	if err := p.Serve(m.info); err != nil {
		return nil, err
	}
	gaps := p.Gaps(mib, 4)
	slices.SortStableFunc(gaps, func(a, b plan.Gap) int {
		return int(b.Before-b.After) - int(a.Before-a.After)
	})
	if !m.moves || p.Kind < traces.Accesses || r.Budget <= 0 {
		gaps = nil
	}
	bound := int64(0)
	if m.info.Ours && r.Budget > 0 && p.HasTimes {
		bound = joint.Bound(p, 0) // that of a budget takes seconds
	}
	var best *plan.Plan
	for n := 0; n <= len(gaps); n++ {
		pl, err := m.with(p, gaps[:n])
		if err != nil {
			return nil, err
		}
		pl.Manager, pl.Budget, pl.LowerBound = m.info.Name, r.Budget, 0
		pl.StepBound = bound
		if best == nil || pl.Footprint < best.Footprint {
			best = pl
		}
		if pl.Policy != nil || pl.Footprint <= r.Budget || ctx.Err() != nil {
			break
		}
	}
	return best, ctx.Err()
}

// with makes the plan that has the buffers of some gaps away.
func (m *manager) with(p *plan.Problem, gaps []plan.Gap) (*plan.Plan, error) {
	var d plan.Decisions
	for _, g := range gaps {
		x := plan.Absence{Buffer: g.Buffer, After: g.After, Before: g.Before, Release: g.After + 2,
			Fetch: g.Before - 2, Why: "idle long enough for both copies"}
		if m.late {
			x.Release, x.Fetch, x.Blocking, x.Why = g.After+1, g.Before, true,
				"every idle activation is swapped"
		}
		if m.how == plan.Recompute {
			if g.Buffer%2 == 0 || g.Buffer == 0 {
				continue
			}
			chain, ok := p.Producer(g.Buffer, g.Before)
			if !ok {
				continue
			}
			x.How, x.Fetch, x.Why = plan.Recompute, g.Before, "its op is cheap to run again"
			d.Reruns = append(d.Reruns, plan.Rerun{Before: g.Before, Ops: chain})
		}
		d.Absences = append(d.Absences, x)
	}
	pl, err := plan.Assemble(p, d)
	if err != nil {
		return nil, err
	}
	if m.policy != nil {
		pl.Policy = m.policy
	} else {
		place(pl)
	}
	pl.Order(p)
	return pl, nil
}

// place puts every instance at the lowest address that is free throughout, largest first, those that stay at
// the bottom.
func place(pl *plan.Plan) {
	ids := make([]int, len(pl.Instances))
	for i := range ids {
		ids[i] = i
	}
	slices.SortStableFunc(ids, func(a, b int) int {
		x, y := &pl.Instances[a], &pl.Instances[b]
		if x.Size != y.Size {
			return int(y.Size - x.Size)
		}
		return int(x.From - y.From)
	})
	offsets := make([]int64, len(pl.Instances))
	var placed []int
	for _, i := range ids {
		x := &pl.Instances[i]
		for moved := true; moved; {
			moved = false
			for _, k := range placed {
				y := &pl.Instances[k]
				if x.From < y.To && y.From < x.To && offsets[i] < offsets[k]+y.Size &&
					offsets[k] < offsets[i]+x.Size {
					offsets[i], moved = offsets[k]+y.Size, true
				}
			}
		}
		placed = append(placed, i)
	}
	pl.Place(offsets)
}
