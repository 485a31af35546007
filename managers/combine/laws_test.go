package combine

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/traces"
)

// evaluator is the simulator with its spans, which the planners profit from.
var evaluator plan.Evaluator = sim.Simulator{}

// budgets returns some budgets from what must reside up to what keeping everything takes, and one for no
// budget.
func budgets(p *plan.Problem) []int64 {
	low := p.MustReside().Total()
	high, _ := p.PeakLive()
	return []int64{0, low, low + (high-low)/4, low + (high-low)/2, high}
}

// request is a small one, so that the laws are tried on many problems.
func request(budget int64, seed uint64) plan.Request {
	return plan.Request{Budget: budget, Seed: seed, Work: 6, Evaluator: evaluator}
}

func TestEveryPlanIsValidAndDoesWhatItSays(t *testing.T) {
	for _, m := range All() {
		t.Run(m.Info().Name, func(t *testing.T) {
			fits, all, absent, rerun := 0, 0, 0, 0
			for seed := range uint64(110) {
				p := plantest.Random(seed, 6+int(seed%50))
				if seed%3 == 0 {
					p.Hardware.PinnedBytes = 1 << (10 + seed%12)
				}
				for _, budget := range budgets(p) {
					pl, err := m.Plan(context.Background(), p, request(budget, seed))
					if err != nil {
						t.Fatalf("seed %d, budget %d: %v", seed, budget, err)
					}
					if err := plan.Validate(p, pl); err != nil {
						t.Fatalf("seed %d, budget %d: %v", seed, budget, err)
					}
					measured, err := sim.Run(context.Background(), p, pl, sim.Options{})
					if err != nil {
						t.Fatalf("seed %d, budget %d: %v", seed, budget, err)
					}
					if live, _ := pl.PeakLive(); measured.Footprint != pl.Footprint ||
						measured.PeakLive != live || live > pl.Footprint {
						t.Errorf("seed %d, budget %d: measured %d and %d live, planned %d and %d", seed,
							budget, measured.Footprint, measured.PeakLive, pl.Footprint, live)
					}
					all++
					absent += len(pl.Absences)
					rerun += len(pl.Reruns)
					if pl.Footprint <= budget {
						fits++
					}
				}
			}
			t.Logf("%d of %d plans fit, %d absences, %d reruns", fits, all, absent, rerun)
			if fits*2 < all || absent < 1000 || rerun < 100 {
				t.Errorf("%d of %d plans fit, with %d absences and %d reruns: the law was hardly tried", fits,
					all, absent, rerun)
			}
		})
	}
}

func TestTheSameRequestGivesTheSamePlan(t *testing.T) {
	for _, m := range All() {
		for seed := range uint64(20) {
			p := plantest.Random(seed, 60)
			r := request(budgets(p)[2], seed)
			a, err := m.Plan(context.Background(), p, r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := m.Plan(context.Background(), p, r)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(a.Steps, b.Steps) || !reflect.DeepEqual(a.Instances, b.Instances) ||
				a.Work != b.Work {
				t.Errorf("%s, seed %d: two plans for one request", m.Info().Name, seed)
			}
		}
	}
}

func TestCancelledPlanningReturns(t *testing.T) {
	p := plantest.Chain(200, 1<<20, 1<<20)
	for _, m := range All() {
		for after := range 12 {
			ctx, cancel := context.WithCancel(context.Background())
			calls := 0
			r := request(budgets(p)[2], 1)
			r.Evaluator = cancelling{after, &calls, cancel}
			pl, err := m.Plan(ctx, p, r)
			cancel()
			switch {
			case err == nil:
				if err := plan.Validate(p, pl); err != nil {
					t.Errorf("%s: %v", m.Info().Name, err)
				}
			case !errors.Is(err, context.Canceled):
				t.Errorf("%s: %v", m.Info().Name, err)
			}
			if calls > after+1 {
				t.Errorf("%s: %d evaluations, cancelled in number %d", m.Info().Name, calls, after)
			}
		}
	}
}

// cancelling cancels planning at one of its evaluations.
type cancelling struct {
	after  int
	calls  *int
	cancel func()
}

func (c cancelling) Evaluate(ctx context.Context, p *plan.Problem, pl *plan.Plan) (plan.Measurement, error) {
	if *c.calls == c.after {
		c.cancel()
	}
	*c.calls++
	return evaluator.Evaluate(ctx, p, pl)
}

func TestPlansNeedNoEvaluator(t *testing.T) {
	for _, m := range All() {
		for seed := range uint64(20) {
			p := plantest.Random(seed, 60)
			r := request(budgets(p)[3], seed)
			r.Evaluator = nil
			pl, err := m.Plan(context.Background(), p, r)
			if err != nil {
				t.Fatalf("%s, seed %d: %v", m.Info().Name, seed, err)
			}
			if err := plan.Validate(p, pl); err != nil {
				t.Errorf("%s, seed %d: %v", m.Info().Name, seed, err)
			}
		}
	}
}

func TestRecordingsTooPoorAndBudgetsTooSmallAreRefused(t *testing.T) {
	p := plantest.Chain(6, 1<<20, 1<<20)
	for _, m := range All() {
		var small *plan.TooSmall
		if _, err := m.Plan(context.Background(), p, plan.Request{Budget: 1}); !errors.As(err, &small) {
			t.Errorf("%s: a budget of one byte gives %v", m.Info().Name, err)
		}
		q := *p
		q.Kind = traces.Accesses
		var unavailable *plan.Unavailable
		if _, err := m.Plan(context.Background(), &q, plan.Request{}); !errors.As(err, &unavailable) {
			t.Errorf("%s: a recording without dataflow gives %v", m.Info().Name, err)
		}
	}
}
