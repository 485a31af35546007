package sim_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/replay/sim"
)

func TestAnOnlineAllocatorCompletesUnderItsFootprintAndHoldsAtLeastWhatIsAlive(t *testing.T) {
	retried := 0
	for seed := range uint64(40) {
		p := plantest.Random(seed, 40)
		for i := range p.Buffers {
			p.Buffers[i].Size *= 400 // sizes at which caches and segments matter
		}
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
		for _, m := range append(pool.Baselines(), pool.GMLake()) {
			pl, err := m.Plan(context.Background(), p, plan.Request{})
			if err != nil {
				t.Fatal(err)
			}
			live, _ := pl.PeakLive()
			free, err := sim.Run(context.Background(), p, pl, sim.Options{})
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, m.Info().Name, err)
			}
			if free.Footprint < live || free.Reserved < free.Footprint {
				t.Errorf("seed %d: %s holds %d, needs %d, %d are alive", seed, m.Info().Name, free.Reserved,
					free.Footprint, live)
			}
			capped, err := sim.Run(context.Background(), p, pl, sim.Options{Cap: free.Footprint})
			if err != nil {
				t.Errorf("seed %d: %s does not complete under its own footprint: %v", seed, m.Info().Name,
					err)
				continue
			}
			if capped.StepTime < free.StepTime {
				t.Errorf("seed %d: %s is faster under a cap: %d < %d", seed, m.Info().Name, capped.StepTime,
					free.StepTime)
			}
			if capped.Retries > 0 {
				retried++
			}
		}
	}
	if retried == 0 {
		t.Error("no cap made any allocator give its cache back: the law was hardly tested")
	}
}

func TestTheDirectAllocatorPaysForTheDriver(t *testing.T) {
	p := *plantest.Chain(6, 1<<22, 50_000)
	p.Hardware.MallocTime, p.Hardware.FreeTime = 100_000, 200_000
	step := map[string]int64{}
	for _, m := range pool.Baselines() {
		pl, err := m.Plan(context.Background(), &p, plan.Request{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run(context.Background(), &p, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		step[m.Info().Name] = r.StepTime
		var want int64
		if m.Info().Name == "direct" { // once for each block that comes, and once for each that goes
			for _, s := range pl.Steps {
				if s.Kind == plan.Alloc || s.Kind == plan.Free {
					want++
				}
			}
		}
		if r.DriverCalls != want {
			t.Errorf("%s asks the driver %d times in a warm iteration, not %d", m.Info().Name, r.DriverCalls,
				want)
		}
	}
	if step["direct"] <= step["caching"] {
		t.Errorf("direct takes %d ns and caching %d", step["direct"], step["caching"])
	}
}

// TestAnIterationThatNeedsMoreThanTheCapIsTimedWhereItJustCompletes: its footprint shows that it does not
// fit, but its time is still known.
func TestAnIterationThatNeedsMoreThanTheCapIsTimedWhereItJustCompletes(t *testing.T) {
	tried := 0
	for seed := range uint64(20) {
		p := plantest.Random(seed, 40)
		for i := range p.Buffers {
			p.Buffers[i].Size *= 400
		}
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
		pl, err := pool.GMLake().Plan(t.Context(), p, plan.Request{})
		if err != nil {
			t.Fatal(err)
		}
		free, err := sim.Run(t.Context(), p, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if free.Footprint == free.Reserved {
			continue // its cache holds nothing to release
		}
		tried++
		fits, err := sim.Run(t.Context(), p, pl, sim.Options{Cap: free.Footprint})
		if err != nil {
			t.Fatal(err)
		}
		over, err := sim.Run(t.Context(), p, pl, sim.Options{Cap: free.Footprint / 2})
		if err != nil {
			t.Errorf("seed %d: half of what it needs: %v", seed, err)
			continue
		}
		if over.StepTime != fits.StepTime || over.Retries != fits.Retries ||
			over.Footprint != fits.Footprint {
			t.Errorf("seed %d: under half of what it needs %d ns, %d retries, %d bytes; "+
				"where it just completes %d, %d, %d", seed,
				over.StepTime, over.Retries, over.Footprint, fits.StepTime, fits.Retries, fits.Footprint)
		}
	}
	if tried == 0 {
		t.Error("no allocator held more than it needs: the law was hardly tested")
	}
}

// Plans that cannot be simulated are refused with a reason, and nothing is measured.
func TestPlansThatCannotBeSimulatedAreRefused(t *testing.T) {
	vast := plantest.Chain(4, 1<<43, 1_000_000)
	keep, err := pool.Baselines()[0].Plan(context.Background(), vast, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Run(context.Background(), vast, keep, sim.Options{}); err == nil ||
		!strings.Contains(err.Error(), "needs more than the 16 TiB of the largest device") {
		t.Errorf("an iteration of 40 TiB: %v", err)
	}
	p := plantest.Chain(4, 1<<20, 1_000_000)
	swapped := []plan.Absence{{Buffer: 0, After: 1, Release: 3, Fetch: 8, Before: 9}}
	for _, c := range []struct {
		policy   plan.Policy
		absences []plan.Absence
		want     string
	}{
		{plan.Policy{Name: "caching"}, swapped, "copies under the online allocator \"caching\" are not " +
			"emulated: place the plan"},
		{plan.Policy{Name: plan.PolicyAsync}, nil, "the rules of the driver's own pool are not public"},
		{plan.Policy{Name: "caching", Settings: "time_travel:True"}, nil, "time_travel: no such option"},
		{plan.Policy{Name: "nobody's"}, nil, "nobody's"},
	} {
		pl, err := plan.Assemble(p, plan.Decisions{Absences: c.absences})
		if err != nil {
			t.Fatal(err)
		}
		pl.Policy = &c.policy
		pl.Order(p)
		m, err := sim.Run(context.Background(), p, pl, sim.Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || m.StepTime != 0 {
			t.Errorf("%+v: a step of %d ns and %v, want %q", c.policy, m.StepTime, err, c.want)
		}
	}
}
