package recompute_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/traces"
)

// shares are the budgets of the laws, between what must reside and the peak, in percent of that distance.
var shares = []int64{-1, 100, 60, 25, 0}

func budget(p *plan.Problem, share int64) int64 {
	if share < 0 {
		return 0
	}
	peak, _ := p.PeakLive()
	least := p.MustReside().Total()
	return least + (peak-least)*share/100
}

// laws checks everything that is true of every plan of every manager. It returns nil if the manager says that
// it has not solved the problem, and says so again.
func laws(t *testing.T, m plan.Manager, p *plan.Problem, share int64, seed uint64) *plan.Plan {
	t.Helper()
	ctx := context.Background()
	r := plan.Request{Budget: budget(p, share), Seed: seed, Evaluator: sim.Simulator{}}
	pl, err := m.Plan(ctx, p, r)
	if unsolved := new(plan.Unavailable); errors.As(err, &unsolved) {
		if _, again := m.Plan(ctx, p, r); again == nil || again.Error() != err.Error() {
			t.Errorf("problem %d: %v, and the second time %v", seed, err, again)
		}
		return nil
	}
	if err != nil {
		t.Fatalf("%s, problem %d at %d %%: %v", m.Info().Name, seed, share, err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatalf("problem %d at %d %%: %v", seed, share, err)
	}
	if pl.Manager != m.Info().Name || pl.Budget != r.Budget || pl.Executor != plan.Ideal ||
		len(pl.Notes) == 0 || pl.Planning <= 0 {
		t.Errorf("problem %d: the plan is not signed: %q, %d, %v", seed, pl.Manager, pl.Budget, pl.Executor)
	}
	for _, x := range pl.Absences {
		if x.How == plan.Swap || x.Why == "" {
			t.Errorf("problem %d: absence %+v of a manager that recomputes", seed, x)
		}
	}
	got, err := sim.Run(ctx, p, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	live, _ := pl.PeakLive()
	if got.Footprint != pl.Footprint || got.PeakLive != live {
		t.Errorf("problem %d: simulated footprint %d and live peak %d, planned %d and %d", seed,
			got.Footprint, got.PeakLive, pl.Footprint, live)
	}
	if peak, _ := p.PeakLive(); live > peak && len(pl.Absences) > 0 && share == 100 {
		t.Errorf("problem %d: dropping made the live peak %d out of %d", seed, live, peak)
	}
	again, err := m.Plan(ctx, p, r)
	if err != nil || !slices.Equal(again.Steps, pl.Steps) || !slices.Equal(again.Instances, pl.Instances) ||
		again.Work != pl.Work {
		t.Errorf("problem %d: a second plan differs, or failed: %v", seed, err)
	}
	return pl
}

func TestEveryPlanValidatesAndIsTheSameAgain(t *testing.T) {
	for _, m := range []plan.Manager{recompute.Sqrt(), recompute.DTR()} {
		t.Run(m.Info().Name, func(t *testing.T) {
			dropped, fits, tight := 0, 0, 0
			for seed := range uint64(150) {
				p := plantest.Random(seed, 12+int(seed%80))
				for _, share := range shares {
					pl := laws(t, m, p, share, seed)
					dropped += len(pl.Absences)
					if peak, _ := p.PeakLive(); pl.Budget > 0 && pl.Budget < peak {
						tight++
						if pl.Footprint <= pl.Budget {
							fits++
						}
					}
				}
			}
			t.Logf("%d gaps dropped; %d of %d plans below the peak fit", dropped, fits, tight)
			if dropped < 100 {
				t.Errorf("only %d gaps dropped: the laws were hardly tried", dropped)
			}
		})
	}
}

func TestCheckmatesPlansValidateAndAreTheSameAgain(t *testing.T) {
	// of random problems checkmate solves those that hardly need it
	for m, least := range map[plan.Manager]int{recompute.CheckmateLP(): 25, recompute.Checkmate(): 15} {
		t.Run(m.Info().Name, func(t *testing.T) {
			dropped, solved := 0, 0
			try := func(p *plan.Problem, share int64, seed uint64) {
				t.Helper()
				if pl := laws(t, m, p, share, seed); pl != nil {
					dropped += len(pl.Absences)
					solved++
				}
			}
			for seed := range uint64(100) {
				try(plantest.Random(seed, 12+int(seed%40)), shares[seed%uint64(len(shares))], seed)
			}
			p := plantest.Chain(9, 1<<20, 1000)
			for _, share := range shares {
				try(p, share, 1000)
			}
			for seed := range uint64(10) {
				try(plantest.UnevenLayers(seed, 6).Problem(), 60, 2000+seed)
			}
			if t.Logf("%d gaps dropped, %d solved", dropped, solved); dropped < least || solved < 40 {
				t.Error("the laws were hardly tried")
			}
		})
	}
}

func TestACancelledPlannerStopsAtOnce(t *testing.T) {
	p := plantest.Chain(300, 1<<20, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, m := range recompute.All() {
		pl, err := m.Plan(ctx, p, plan.Request{Budget: budget(p, 30)})
		if err == nil {
			err = plan.Validate(p, pl)
		} else if errors.Is(err, context.Canceled) {
			err = nil
		}
		if err != nil {
			t.Errorf("%s: %v", m.Info().Name, err)
		}
	}
}

// fuse is a context that is cancelled when it has been asked so often.
type fuse struct {
	context.Context
	cancel context.CancelFunc
	left   int
}

// Err implements [context.Context].
func (f *fuse) Err() error {
	if f.left--; f.left < 0 {
		f.cancel()
	}
	return f.Context.Err()
}

func TestAPlannerCancelledInTheMiddleReturnsAPlanOrTheReason(t *testing.T) {
	stopped := 0
	for _, m := range recompute.All() {
		for left := range 12 {
			p := plantest.Chain(14, 1<<20, 1000)
			ctx, cancel := context.WithCancel(context.Background())
			pl, err := m.Plan(&fuse{ctx, cancel, left}, p, plan.Request{Budget: budget(p, 40)})
			cancel()
			switch {
			case errors.Is(err, context.Canceled):
				stopped++
			case err != nil:
				t.Errorf("%s after %d: %v", m.Info().Name, left, err)
			default:
				if err := plan.Validate(p, pl); err != nil {
					t.Errorf("%s after %d: %v", m.Info().Name, left, err)
				}
			}
		}
	}
	if stopped < 8 {
		t.Errorf("only %d were stopped on the way", stopped)
	}
}

func TestAPoorRecordingAndATinyBudgetAreRefusedByName(t *testing.T) {
	p := plantest.Chain(4, 1<<20, 1000)
	poor := *p
	poor.Kind = traces.Accesses
	for _, m := range recompute.All() {
		var unavailable *plan.Unavailable
		if _, err := m.Plan(context.Background(), &poor, plan.Request{}); !errors.As(err, &unavailable) ||
			unavailable.Manager != m.Info().Name {
			t.Errorf("%s on accesses: %v", m.Info().Name, err)
		}
		var small *plan.TooSmall
		if _, err := m.Plan(context.Background(), p, plan.Request{Budget: 1}); !errors.As(err, &small) {
			t.Errorf("%s on a byte: %v", m.Info().Name, err)
		}
	}
}
