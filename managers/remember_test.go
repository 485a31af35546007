package managers_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// memory holds the plans of managers that have been asked before. The law asks every manager itself, and
// joint asks them again for the same: planning twice would take most of the time. A plan made without a time
// to beat is one that a manager may also give if there is one; TestNoPlanIsLostToATimeThatItMeets checks that
// none is lost to such a time.
type memory struct {
	mu   sync.Mutex
	made map[asked]*sync.Once
	got  map[asked]answered
	used int // answers that were there already
}

type asked struct {
	manager      string
	p            *plan.Problem
	budget, work int64
	seed         uint64
}

type answered struct {
	pl  *plan.Plan
	err error
}

func newMemory() *memory { return &memory{made: map[asked]*sync.Once{}, got: map[asked]answered{}} }

// of returns a manager that remembers.
func (x *memory) of(m plan.Manager) plan.Manager { return remembering{m, x} }

type remembering struct {
	plan.Manager
	in *memory
}

// Plan implements plan.Manager.
func (m remembering) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	r.Beat = 0
	key := asked{m.Info().Name, p, r.Budget, r.Work, r.Seed}
	x := m.in
	x.mu.Lock()
	once := x.made[key]
	if once == nil {
		once = new(sync.Once)
		x.made[key] = once
	} else {
		x.used++
	}
	x.mu.Unlock()
	once.Do(func() {
		pl, err := m.Manager.Plan(ctx, p, r)
		x.mu.Lock()
		x.got[key] = answered{pl, err}
		x.mu.Unlock()
	})
	x.mu.Lock()
	got := x.got[key]
	x.mu.Unlock()
	if got.err != nil {
		return nil, got.err
	}
	pl := *got.pl // the caller may add to its notes
	pl.Notes = slices.Clone(pl.Notes)
	return &pl, nil
}

// TestNoPlanIsLostToATimeThatItMeets: given a time to beat that its plan just meets, a manager gives the same
// plan; given a shorter one, that plan or none.
func TestNoPlanIsLostToATimeThatItMeets(t *testing.T) {
	t.Parallel()
	kept, given := 0, 0
	for _, p := range []*plan.Problem{plantest.UnevenLayers(1, 16).Problem(), plantest.Random(2, 40),
		plantest.Chain(20, 1<<20, 1_000_000)} {
		for _, m := range managers.All() {
			i := m.Info()
			if i.Family <= plan.Pooling || slow(i.Name) || i.Name == "joint" {
				continue
			}
			for _, share := range []float64{0.7, 0.4} {
				r := plan.Request{Budget: budgetOf(p, share), Seed: 1, Evaluator: sim.Simulator{}}
				pl, err := m.Plan(t.Context(), p, r)
				if err != nil || pl.Footprint > r.Budget {
					continue
				}
				at, err := sim.Run(t.Context(), p, pl, sim.Options{})
				if err != nil {
					t.Fatal(err)
				}
				r.Beat = at.StepTime
				again, err := m.Plan(t.Context(), p, r)
				if err != nil || again.Footprint != pl.Footprint || !slices.Equal(again.Steps, pl.Steps) {
					t.Errorf("%s within %d bytes: its plan is lost to a time to beat that it meets: %v",
						i.Name, r.Budget, err)
				}
				kept++
				r.Beat--
				if again, err = m.Plan(t.Context(), p, r); errors.Is(err, plan.ErrBeaten) {
					given++
				} else if err != nil || !slices.Equal(again.Steps, pl.Steps) {
					t.Errorf("%s within %d bytes: another plan where there is a time to beat: %v", i.Name,
						r.Budget, err)
				}
			}
		}
	}
	if t.Logf("%d plans, %d given up where they are beaten", kept, given); kept < 40 || given < 5 {
		t.Error("hardly any plan was asked for again")
	}
}
