package managers_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/networks/networkstest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// slow are managers that solve integer programs, or ask all others: they are tried on fewer problems and
// budgets.
func slow(name string) bool {
	return strings.HasPrefix(name, "checkmate") || name == "tvdnn-ilp" || name == "portfolio"
}

// workOf keeps searches short: what holds for short ones holds for long ones. checkmate has no plan before it
// has solved its program.
func workOf(name string) int64 {
	if name == "checkmate" {
		return 0
	}
	if slow(name) || name == "joint" || name == "home" {
		return 40
	}
	return 0
}

// budgets are shares of what lies between the least that must reside and the peak; 0 stands for no budget.
var budgets = []float64{0, 1, 0.8, 0.5, 0.2}

func budgetOf(p *plan.Problem, share float64) int64 {
	if share == 0 {
		return 0
	}
	floor := p.MustReside().Total()
	peak, _ := p.PeakLive()
	return floor + int64(share*float64(max(peak-floor, 0)))
}

func TestEveryPlanOfEveryManagerIsValidAndMeasuresWhatItSays(t *testing.T) {
	plans, absent := map[string]int{}, map[string]int{}
	for seed := range uint64(9) {
		p := plantest.Random(seed, 12+int(seed))
		if seed%3 == 0 { // a training as everybody's is: large activations, made forward and needed backward
			p = plantest.Chain(6+int(seed)/2, 8<<20, 3_000_000)
		}
		p.Hardware.NoEngines = seed == 5 || seed == 6
		if seed == 3 || seed == 7 { // the host has room for little
			peak, _ := p.PeakLive()
			p.Hardware.PinnedBytes = max(peak/8, 1)
		}
		if seed == 4 { // one with layers that vDNN tells apart
			p = networkstest.Problem(t, "alexnet", 32, "v100-pcie-16gb")
		}
		for _, m := range managers.All() {
			name := m.Info().Name
			if slow(name) && seed > 0 {
				continue
			}
			for k, share := range budgets {
				if slow(name) && k != 3 {
					continue
				}
				r := plan.Request{Budget: budgetOf(p, share), Seed: seed, Work: workOf(name),
					Evaluator: sim.Simulator{}}
				pl, err := m.Plan(context.Background(), p, r)
				if errors.As(err, new(*plan.Unavailable)) || errors.As(err, new(*plan.TooSmall)) {
					continue
				}
				if err != nil {
					t.Errorf("seed %d, budget %d: %s: %v", seed, r.Budget, name, err)
					continue
				}
				if err := plan.Validate(p, pl); err != nil {
					t.Errorf("seed %d, budget %d: %v", seed, r.Budget, err)
					continue
				}
				if pl.Manager != name {
					t.Errorf("%s says that its plan is %q's", name, pl.Manager)
				}
				measured, err := sim.Run(context.Background(), p, pl, sim.Options{})
				if err != nil {
					t.Errorf("seed %d: %s: %v", seed, name, err)
					continue
				}
				live, _ := pl.PeakLive()
				if pl.Policy == nil && (measured.Footprint != pl.Footprint || measured.PeakLive != live ||
					measured.Footprint < live) {
					t.Errorf("seed %d: %s plans %d bytes and %d are measured, %d alive", seed, name,
						pl.Footprint, measured.Footprint, live)
				}
				if pl.StepBound > measured.StepTime && (r.Budget == 0 || pl.Footprint <= r.Budget) {
					t.Errorf("seed %d: %s proves that %d ns is the least and takes %d", seed, name,
						pl.StepBound, measured.StepTime)
				}
				plans[name]++
				absent[name] += len(pl.Absences)
				if pl.Parks {
					absent[name]++
				}
			}
		}
	}
	for _, m := range managers.All() {
		i := m.Info()
		if plans[i.Name] == 0 {
			t.Errorf("%s made no plan at all", i.Name)
		}
		if i.Family > plan.Pooling && absent[i.Name] == 0 {
			t.Errorf("%s never moved or dropped anything", i.Name)
		}
	}
}

func TestEqualSeedAndWorkGiveEqualPlans(t *testing.T) {
	quick, err := managers.Select("vdnn-*,autoswap,dtr,capuchin,home")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(2) {
		p := plantest.Random(seed+100, 25)
		for _, m := range managers.All() {
			name := m.Info().Name
			if slow(name) && seed > 0 {
				continue
			}
			if name == "portfolio" { // those of its seeds that take long are tried one by one
				m = joint.New(quick...)
			}
			r := plan.Request{Budget: budgetOf(p, 0.6), Seed: seed, Work: workOf(name),
				Evaluator: sim.Simulator{}}
			a, errA := m.Plan(context.Background(), p, r)
			b, errB := m.Plan(context.Background(), p, r)
			if (errA == nil) != (errB == nil) {
				t.Errorf("%s: %v, then %v", m.Info().Name, errA, errB)
				continue
			}
			if errA == nil && (!slices.Equal(a.Steps, b.Steps) || !slices.Equal(a.Instances, b.Instances)) {
				t.Errorf("%s gives another plan the second time (seed %d)", m.Info().Name, seed)
			}
		}
	}
}

func TestCancelledPlanningReturnsAValidPlanOrTheContextsError(t *testing.T) {
	p := plantest.Random(7, 60)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, m := range managers.All() {
		pl, err := m.Plan(ctx, p, plan.Request{Budget: budgetOf(p, 0.5), Evaluator: sim.Simulator{}})
		switch {
		case err != nil && !errors.Is(err, context.Canceled):
			t.Errorf("%s: %v is not the context's error", m.Info().Name, err)
		case err == nil && pl == nil:
			t.Errorf("%s returns nothing", m.Info().Name)
		case err == nil:
			if err := plan.Validate(p, pl); err != nil {
				t.Errorf("%s: %v", m.Info().Name, err)
			}
		}
	}
}

// looked is a context that counts the calls of its Err, and ends after so many.
type looked struct {
	context.Context
	end  context.CancelFunc
	asks atomic.Int64
	most int64
}

func (c *looked) Err() error {
	if c.asks.Add(1) > c.most {
		c.end()
	}
	return c.Context.Err()
}

// A solver that is cancelled in the last quarter of its search returns a plan that is better than keeping
// everything. checkmate has none before its end.
func TestASolverThatIsCancelledReturnsItsBest(t *testing.T) {
	p := plantest.Chain(24, 1<<20, 1_000_000)
	for i := range p.Ops { // nothing is so regular that the first guess is the best
		p.Ops[i].Duration += int64(i*7%5) * 150_000
	}
	// nor do copies hide behind ops
	p.Hardware.D2H.BytesPerSecond, p.Hardware.H2D.BytesPerSecond = 1<<28, 1<<28
	searching, err := managers.Select("exact,vdnn-dyn,autoswap,tvdnn-ilp,checkmate-lp,capuchin,home,joint")
	if err != nil {
		t.Fatal(err)
	}
	// a portfolio of all asks those that solve integer programs for their whole answers
	quick, err := managers.Select("vdnn-*,capuchin")
	if err != nil {
		t.Fatal(err)
	}
	searching = append(searching, joint.New(quick...))
	peak, _ := p.PeakLive()
	for _, m := range searching {
		name := m.Info().Name
		r := plan.Request{Budget: budgetOf(p, 0.5), Seed: 1, Work: workOf(name), Evaluator: sim.Simulator{}}
		p := p
		switch name {
		case "exact": // it is done with a chain at once
			p = wide(400)
			r.Budget, r.Work = 0, 400_000
		case "tvdnn-ilp":
			r.Work = 1500
		}
		ask := func(most int64) (*plan.Plan, *looked, error) {
			ctx, end := context.WithCancel(context.Background())
			defer end()
			c := &looked{Context: ctx, end: end, most: most}
			pl, err := m.Plan(c, p, r)
			return pl, c, err
		}
		_, whole, err := ask(math.MaxInt64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		asks := whole.asks.Load()
		for _, share := range []int64{75, 95} {
			pl, c, err := ask(asks * share / 100)
			if c.Context.Err() == nil {
				t.Errorf("%s: not cancelled at %d %% of %d looks", name, share, asks)
			}
			if err != nil {
				t.Errorf("%s: cancelled at %d %% of %d looks it gives nothing: %v", name, share, asks, err)
				continue
			}
			if err := plan.Validate(p, pl); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if live, _ := pl.PeakLive(); m.Info().Family > plan.Pooling && live >= peak {
				t.Errorf("%s: cancelled at %d %% of %d looks it keeps everything", name, share, asks)
			}
		}
	}
}

func TestABudgetBelowTheFloorIsRefusedByAll(t *testing.T) {
	p := plantest.Chain(6, 1<<20, 1000)
	for _, m := range managers.All() {
		_, err := m.Plan(context.Background(), p, plan.Request{Budget: p.MustReside().Total() - 1,
			Evaluator: sim.Simulator{}})
		if !errors.As(err, new(*plan.TooSmall)) {
			t.Errorf("%s: %v", m.Info().Name, err)
		}
	}
}
