package joint_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gmemtop/gmemtop/managers/combine"
	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/swap"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/traces"
)

// little keeps laws over many problems short; they hold at any work.
const little = 300_000

func request(budget int64) plan.Request {
	return plan.Request{Budget: budget, Seed: 7, Work: little, Evaluator: sim.Simulator{}}
}

// budgets returns some budgets from the whole footprint down to what must reside.
func budgets(p *plan.Problem, n int) []int64 {
	peak, _ := p.PeakLive()
	floor := p.MustReside().Total()
	b := make([]int64, n)
	for k := range b {
		b[k] = floor + (peak-floor)*int64(n-1-k)/int64(n-1)
	}
	return b
}

func measure(t *testing.T, p *plan.Problem, pl *plan.Plan) plan.Measurement {
	t.Helper()
	m, err := sim.Run(context.Background(), p, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// planned is a plan of a random problem, with the simulator's results for it.
type planned struct {
	budget int64
	pl     *plan.Plan
	at     plan.Measurement
}

// corpus plans random problems, each within decreasing budgets and finally without one. Planning takes most
// of the time, so several laws use the same plans.
var corpus = sync.OnceValues(func() ([][]planned, error) {
	all := make([][]planned, problems)
	errs := make([]error, problems)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for k := next.Add(1) - 1; k < problems; k = next.Add(1) - 1 {
				p := random(uint64(k))
				for _, b := range append(budgets(p, 4), 0) {
					pl, err := joint.Joint{}.Plan(context.Background(), p, request(b))
					if err != nil {
						errs[k] = fmt.Errorf("seed %d budget %d: %w", k, b, err)
						break
					}
					at, err := sim.Run(context.Background(), p, pl, sim.Options{})
					if err != nil {
						errs[k] = fmt.Errorf("seed %d budget %d: %w", k, b, err)
						break
					}
					all[k] = append(all[k], planned{b, pl, at})
				}
			}
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
})

// problems is the number of random problems.
const problems = 60

// random is a problem of the corpus: every third has accesses without dataflow.
func random(seed uint64) *plan.Problem {
	p := plantest.Random(seed, 8+int(seed%60))
	if seed%3 == 1 {
		p.Kind = traces.Accesses
	}
	return p
}

func TestEveryPlanValidatesAndDoesWhatItSays(t *testing.T) {
	t.Parallel()
	all, err := corpus()
	if err != nil {
		t.Fatal(err)
	}
	fits, asked := 0, 0
	for seed, plans := range all {
		p := random(uint64(seed))
		for _, x := range plans {
			if err := plan.Validate(p, x.pl); err != nil {
				t.Fatalf("seed %d budget %d: %v", seed, x.budget, err)
			}
			live, _ := x.pl.PeakLive()
			if x.at.Footprint != x.pl.Footprint || x.at.PeakLive != live {
				t.Errorf(
					"seed %d budget %d: simulated footprint %d and live %d, the plan says %d and %d",
					seed,
					x.budget,
					x.at.Footprint,
					x.at.PeakLive,
					x.pl.Footprint,
					live,
				)
			}
			if x.pl.StepBound > x.at.StepTime {
				t.Errorf(
					"seed %d budget %d: step time %d is below its bound %d",
					seed,
					x.budget,
					x.at.StepTime,
					x.pl.StepBound,
				)
			}
			if p.Kind < traces.Dataflow && len(x.pl.Reruns) > 0 {
				t.Errorf("seed %d: recomputation without dataflow", seed)
			}
			asked++
			if x.budget == 0 || x.pl.Footprint <= x.budget {
				fits++
			}
		}
	}
	if fits*10 < asked*7 {
		t.Errorf("only %d of %d plans fit", fits, asked)
	}
}

func TestStepTimeNeverRisesAsTheBudgetGrows(t *testing.T) {
	t.Parallel()
	all, err := corpus()
	if err != nil {
		t.Fatal(err)
	}
	rises := 0
	for seed, plans := range all {
		least := int64(-1)
		for _, x := range plans {
			if x.budget == 0 || x.pl.Footprint > x.budget {
				break
			}
			if x.at.StepTime < least {
				t.Errorf(
					"seed %d: %d ns within %d bytes, %d ns within more",
					seed,
					x.at.StepTime,
					x.budget,
					least,
				)
			}
			if least >= 0 && x.at.StepTime > least {
				rises++
			}
			least = x.at.StepTime
		}
	}
	if rises < problems {
		t.Errorf("less memory took longer only %d times: the law was hardly tried", rises)
	}
}

func TestTheSameRequestGivesTheSamePlan(t *testing.T) {
	t.Parallel()
	all, err := corpus()
	if err != nil {
		t.Fatal(err)
	}
	for seed := 0; seed < problems; seed += 8 {
		x := all[seed][1]
		y, err := joint.Joint{}.Plan(context.Background(), random(uint64(seed)), request(x.budget))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(x.pl.Steps, y.Steps) || !reflect.DeepEqual(x.pl.Instances, y.Instances) ||
			x.pl.Work != y.Work ||
			x.pl.StepBound != y.StepBound {
			t.Errorf("seed %d: two plans for one request", seed)
		}
	}
}

func TestRecordingsWithoutAccessesArePlacedOnly(t *testing.T) {
	p := plantest.Random(3, 60)
	p.Kind = traces.Lifetimes
	pl, err := joint.Joint{}.Plan(context.Background(), p, request(0))
	if err != nil {
		t.Fatal(err)
	}
	if len(pl.Absences) != 0 || len(pl.Reruns) != 0 {
		t.Errorf("%d absences and %d reruns", len(pl.Absences), len(pl.Reruns))
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Error(err)
	}
}

func TestABudgetBelowWhatMustResideIsRefused(t *testing.T) {
	p := plantest.Chain(4, 1<<20, 1000)
	var small *plan.TooSmall
	if _, err := (joint.Joint{}).Plan(context.Background(), p, request(p.MustReside().Total()-1)); !errors.As(
		err,
		&small,
	) {
		t.Errorf("got %v", err)
	}
}

// undercutting collects plans of one problem, to compare them with its bounds.
type undercutting struct {
	p      *plan.Problem
	seed   uint64
	bounds *joint.Bounds
	made   []madeBy
}

// madeBy is a plan with what is known of it.
type madeBy struct {
	name            string
	step, footprint int64
}

// check compares all plans with the bound of the fullest moments. The bound over intervals takes a hundred
// times as long. A plan is compared with it unless another is faster in less memory, since a bound above the
// first plan is also above that one. check returns for how many plans the bound exceeds compute alone.
func (u *undercutting) check(t *testing.T) (tight int) {
	t.Helper()
	wrong := func(x madeBy, kind string, bound int64) {
		t.Errorf("seed %d: %s takes %d ns within %d bytes, and the bound %s is %d", u.seed, x.name, x.step,
			x.footprint, kind, bound)
	}
	compute := u.bounds.OfMoment(1 << 60)
	slices.SortFunc(u.made, func(x, y madeBy) int {
		return cmp.Or(cmp.Compare(x.footprint, y.footprint), cmp.Compare(x.step, y.step))
	})
	fastest := int64(math.MaxInt64)
	for _, x := range u.made {
		bound := u.bounds.OfMoment(x.footprint)
		if bound > x.step {
			wrong(x, "of a moment", bound)
		}
		if bound > compute {
			tight++
		}
		if x.step >= fastest {
			continue
		}
		fastest = x.step
		if bound := u.bounds.Best(x.footprint); bound > x.step {
			wrong(x, "over intervals", bound)
		}
	}
	return tight
}

func TestNoPlanUndercutsTheBound(t *testing.T) {
	t.Parallel()
	others := append(swap.All(), combine.All()...)
	full := 0
	add := func(u *undercutting, name string, pl *plan.Plan) {
		t.Helper()
		m := measure(t, u.p, pl)
		if busy := pl.Busy(u.p); busy > m.StepTime {
			t.Errorf("seed %d: %s keeps a queue busy for %d ns in a step of %d", u.seed, name, busy, m.StepTime)
		} else if busy == m.StepTime && len(pl.Absences) > 0 {
			full++
		}
		u.made = append(u.made, madeBy{name, m.StepTime, pl.Footprint})
	}
	random := func(p *plan.Problem, seed uint64) *undercutting {
		t.Helper()
		u := &undercutting{p: p, seed: seed, bounds: joint.NewBounds(p)}
		for k := range uint64(30) {
			pl, err := plan.Assemble(p, plantest.RandomDecisions(p, seed*100+k, float64(k%6)/5))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := place.Place(t.Context(), p, pl, place.Options{Rule: place.BestFit}); err != nil {
				t.Fatal(err)
			}
			add(u, "random", pl)
		}
		return u
	}
	tried, tight := 0, 0
	for seed := range uint64(80) {
		p := joint.Serial(seed, int(seed/2%2))
		if seed%2 == 0 {
			p.Hardware.LaunchGap = 0
		}
		u := random(p, seed)
		tight += u.check(t)
		tried += len(u.made)
	}
	const hardly = "%s %d plans tried, the bound above compute alone for %d: the law was hardly tried"
	if tried < 1000 || tight < 50 {
		t.Errorf(hardly, "without copy engines", tried, tight)
	}
	tried, tight = 0, 0
	for seed := range uint64(60) {
		p := plantest.Random(seed, 8+int(seed%50))
		u := random(p, seed)
		for _, b := range budgets(p, 4) {
			for _, other := range others {
				if seed%6 > 0 {
					break
				}
				r := plan.Request{Budget: b, Work: 50, Evaluator: sim.Simulator{}}
				pl, err := other.Plan(t.Context(), p, r)
				if err == nil && pl.Policy == nil && pl.SectionBytes == 0 {
					add(u, other.Info().Name, pl)
				}
			}
		}
		tight += u.check(t)
		tried += len(u.made)
	}
	if full == 0 {
		t.Error("no plan kept a queue busy all the time: what a queue does was hardly compared")
	}
	if tried < 1000 || tight < 20 {
		t.Errorf(hardly, "with them", tried, tight)
	}
}

// Eager PyTorch moves a tensor as a whole: no buffer of a problem for it is cut, though cutting helps others.
func TestNoBufferIsCutForEagerPyTorch(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"VGG-16", "GPT-2 small"} {
		p := joint.Network(t, name)
		peak, _ := p.PeakLive()
		low := p.MustReside().Total()
		section := map[bool]int64{}
		for _, p.EagerOnly = range []bool{false, true} {
			r := plan.Request{Budget: low + (peak-low)*6/10, Work: 100_000, Evaluator: sim.Simulator{}}
			pl, err := (joint.Joint{}).Plan(t.Context(), p, r)
			if err != nil {
				t.Fatal(err)
			}
			section[p.EagerOnly] = pl.SectionBytes
		}
		if section[false] == 0 || section[true] != 0 {
			t.Errorf("%s: sections of %d bytes, for eager PyTorch of %d", name, section[false], section[true])
		}
	}
}

// Every way of swapping each of the few idle intervals of a short chain, every position of release and
// fetch included: none is faster than the bound, and joint finds one that is as fast as the fastest.
func TestJointFindsTheBestOfAllPlansOfAShortChain(t *testing.T) {
	t.Parallel()
	p := plantest.Chain(3, 1<<20, 900_000)
	gaps := p.Gaps(1, 1)
	var best []plan.Measurement
	var d plan.Decisions
	var try func(k int)
	try = func(k int) {
		if k == len(gaps) {
			pl, err := plan.Assemble(p, plan.Decisions{Absences: append([]plan.Absence(nil), d.Absences...)})
			if err != nil {
				t.Fatal(err)
			}
			opt := place.Options{Rule: place.Search, Work: 200}
			if _, err := place.Place(context.Background(), p, pl, opt); err != nil {
				t.Fatal(err)
			}
			best = append(best, measure(t, p, pl))
			return
		}
		try(k + 1)
		g := gaps[k]
		for release := g.After + 1; release <= g.Before; release++ {
			for fetch := release; fetch <= g.Before; fetch++ {
				d.Absences = append(
					d.Absences,
					plan.Absence{
						Buffer:  g.Buffer,
						After:   g.After,
						Before:  g.Before,
						Release: release,
						Fetch:   fetch,
					},
				)
				try(k + 1)
				d.Absences = d.Absences[:len(d.Absences)-1]
			}
		}
	}
	try(0)
	for _, b := range budgets(p, 8) {
		fastest := int64(-1)
		for _, m := range best {
			if m.Footprint <= b && (fastest < 0 || m.StepTime < fastest) {
				fastest = m.StepTime
			}
		}
		if fastest < 0 {
			continue
		}
		if bound := joint.Bound(p, b); bound > fastest {
			t.Errorf("budget %d: bound %d, and a plan takes %d", b, bound, fastest)
		}
		pl, err := joint.Joint{}.Plan(context.Background(), p, request(b))
		if err != nil {
			t.Fatal(err)
		}
		if got := measure(t, p, pl).StepTime; pl.Footprint > b || got > fastest {
			t.Errorf(
				"budget %d: joint takes %d ns in %d bytes, and swapping alone can take %d",
				b,
				got,
				pl.Footprint,
				fastest,
			)
		}
	}
}

func TestThePortfolioIsNeverWorseThanItsSeeds(t *testing.T) {
	t.Parallel()
	seeds := append(swap.All(), combine.All()...)
	seeded := 0 // how often it is better than joint, which is what it is without its seeds
	for seed := range uint64(12) {
		p := plantest.Random(seed, 12+int(seed)*3)
		for _, b := range budgets(p, 3) {
			r := request(b)
			pl, err := joint.New(seeds...).Plan(context.Background(), p, r)
			if err != nil {
				t.Fatal(err)
			}
			if err := plan.Validate(p, pl); err != nil {
				t.Fatal(err)
			}
			mine := measure(t, p, pl)
			r.Work = 0
			for _, other := range append(seeds, joint.Joint{}) {
				if other.Info().Name == "joint" {
					r.Work = little
				}
				theirs, err := other.Plan(context.Background(), p, r)
				if err != nil || theirs.Policy != nil || theirs.Footprint > b {
					continue
				}
				m := measure(t, p, theirs)
				if other.Info().Name == "joint" &&
					(mine.StepTime < m.StepTime || mine.StepTime == m.StepTime && pl.Footprint < theirs.Footprint) {
					seeded++
				}
				if pl.Footprint > b || mine.StepTime > m.StepTime ||
					mine.StepTime == m.StepTime && pl.Footprint > theirs.Footprint {
					t.Errorf(
						"seed %d budget %d: portfolio takes %d ns in %d bytes, %s %d ns in %d",
						seed,
						b,
						mine.StepTime,
						pl.Footprint,
						other.Info().Name,
						m.StepTime,
						theirs.Footprint,
					)
				}
			}
		}
	}
	if t.Logf("better than joint %d times", seeded); seeded == 0 {
		t.Error("with its seeds it is never better than without")
	}
}
