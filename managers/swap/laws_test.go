package swap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// budgets are what a law is tried with: none, whole, and shares between the floor and the peak.
func budgets(p *plan.Problem) []int64 {
	peak, _ := p.PeakLive()
	floor := p.MustReside().Total()
	return []int64{0, peak, floor + (peak-floor)*3/4, floor + (peak-floor)/3, floor}
}

// trials are the managers of the package that move buffers within an iteration. Each tries every size of
// candidate, so that small problems exercise it.
func trials() []plan.Manager {
	all := slices.DeleteFunc(All(), func(m plan.Manager) bool { return m == zeroOffload{} })
	for i, m := range all {
		switch x := m.(type) {
		case autoswap:
			x.smallest = 1
			all[i] = x
		case tvdnn:
			x.section = 8192
			all[i] = x
		}
	}
	return all
}

// workOf keeps the integer program short: laws hold of any answer.
func workOf(m plan.Manager) int64 {
	if x, ok := m.(tvdnn); ok && x.ilp {
		return 1500
	}
	return 0
}

func TestEveryPlanValidatesAndCostsWhatItSays(t *testing.T) {
	problems := 120
	if testing.Short() {
		problems = 20
	}
	absences := map[string]int{}
	for _, m := range trials() {
		name := m.Info().Name
		t.Run(name, func(t *testing.T) {
			problems := problems
			if x, ok := m.(tvdnn); ok && x.ilp {
				problems /= 3 // two plans a round, and a solver
			}
			for seed := range uint64(problems) {
				p := plantest.Random(seed, 8+int(seed%90))
				for _, budget := range budgets(p) {
					pl, err := m.Plan(t.Context(), p, plan.Request{Budget: budget, Seed: seed,
						Work: workOf(m), Evaluator: sim.Simulator{}})
					if err != nil {
						t.Fatalf("seed %d, budget %d: %v", seed, budget, err)
					}
					if err := plan.Validate(p, pl); err != nil {
						t.Fatalf("seed %d, budget %d: %v", seed, budget, err)
					}
					got, err := sim.Simulator{}.Evaluate(t.Context(), p, pl)
					if err != nil {
						t.Fatalf("seed %d, budget %d: %v", seed, budget, err)
					}
					live, _ := pl.PeakLive()
					if got.Footprint != pl.Footprint || got.PeakLive != live || pl.Footprint < live {
						t.Errorf("seed %d, budget %d: simulated footprint %d and live "+
							"%d, the plan's %d and %d", seed, budget, got.Footprint, got.PeakLive,
							pl.Footprint, live)
					}
					if pl.Manager != name || pl.Budget != budget || pl.Planning <= 0 {
						t.Errorf("seed %d: signed %q for %d in %v", seed, pl.Manager, pl.Budget, pl.Planning)
					}
					absences[name] += len(pl.Absences)
				}
			}
		})
		if absences[name] < problems/3 {
			t.Errorf("%s: only %d absences in %d problems: the law was hardly tried", name, absences[name],
				problems)
		}
	}
}

func TestTheSameRequestGivesTheSamePlan(t *testing.T) {
	for _, m := range trials() {
		for seed := range uint64(20) {
			p := plantest.Random(seed, 60)
			r := plan.Request{Budget: budgets(p)[2], Seed: seed, Work: workOf(m), Evaluator: sim.Simulator{}}
			a, err := m.Plan(t.Context(), p, r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := m.Plan(t.Context(), p, r)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(a.Steps, b.Steps) || !slices.Equal(a.Instances, b.Instances) ||
				!slices.Equal(a.Notes, b.Notes) || a.Work != b.Work {
				t.Errorf("%s, seed %d: two plans", m.Info().Name, seed)
			}
		}
	}
}

func TestCancelledPlanningReturnsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := plantest.Random(3, 80)
	for _, m := range trials() {
		pl, err := m.Plan(ctx, p, plan.Request{Budget: budgets(p)[2]})
		switch {
		case err != nil && !errors.Is(err, context.Canceled):
			t.Errorf("%s: %v", m.Info().Name, err)
		case err == nil && plan.Validate(p, pl) != nil:
			t.Errorf("%s: %v", m.Info().Name, plan.Validate(p, pl))
		}
	}
}

func TestAPoorRecordingOrBudgetIsRefusedByName(t *testing.T) {
	p := plantest.Chain(4, 1<<20, 1e6)
	for _, m := range All() {
		var small *plan.TooSmall
		if _, err := m.Plan(t.Context(), p, plan.Request{Budget: 1}); !errors.As(err, &small) {
			t.Errorf("%s: %v for a budget of one byte", m.Info().Name, err)
		}
		poor := *p
		poor.Kind = m.Info().Needs - 1
		var missing *plan.Unavailable
		if _, err := m.Plan(t.Context(), &poor, plan.Request{}); !errors.As(err, &missing) {
			t.Errorf("%s: %v for a poorer recording", m.Info().Name, err)
		}
	}
}

func TestEveryManagerSaysWhatItIs(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range All() {
		i := m.Info()
		if i.Name == "" || seen[i.Name] || i.After == "" || i.Reading == "" || i.Summary == "" ||
			i.Family != plan.Swapping {
			t.Errorf("%+v", i)
		}
		seen[i.Name] = true
	}
}

// run plans and measures.
func run(t testing.TB, m plan.Manager, p *plan.Problem, r plan.Request) (*plan.Plan, plan.Measurement) {
	t.Helper()
	pl, err := m.Plan(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	got, err := sim.Simulator{}.Evaluate(t.Context(), p, pl)
	if err != nil {
		t.Fatal(err)
	}
	return pl, got
}

func BenchmarkPlan(b *testing.B) {
	for _, m := range All() {
		for _, n := range []int{10_000, 100_000} {
			p := plantest.Chain(n/2, 2<<20, 1e6) // n ops, 1.5 n buffers; a copy takes as long as two ops
			b.Run(fmt.Sprintf("%s/%d", m.Info().Name, n), func(b *testing.B) {
				peak, _ := p.PeakLive()
				for b.Loop() {
					if _, err := m.Plan(b.Context(), p, plan.Request{Budget: peak / 2}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
