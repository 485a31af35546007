package joint

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	rivals "github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// serial is a random problem whose hardware has no copy engines, with copies at rates at which they compete
// with recomputation: with one stream, or any number if streams is 0.
func serial(seed uint64, streams int) *plan.Problem {
	p := plantest.Random(seed, 8+int(seed%60))
	if p.Streams > 1 && streams == 1 {
		for i := range p.Ops {
			p.Ops[i].Stream = 0
		}
		for i := range p.Buffers {
			p.Buffers[i].Stream = 0
		}
		p.Streams = 1
	}
	rate := []float64{1 << 28, 1 << 30, 1 << 32}[seed%3]
	p.Hardware.NoEngines = true
	p.Hardware.D2H = plan.Link{BytesPerSecond: 2 * rate, Latency: 1000}
	p.Hardware.H2D = plan.Link{BytesPerSecond: rate, Latency: 2000}
	return p
}

func within(p *plan.Problem, percent int64) int64 {
	peak, _ := p.PeakLive()
	floor := p.MustReside().Total()
	return floor + (peak-floor)*percent/100
}

func stepTime(t *testing.T, p *plan.Problem, pl *plan.Plan) int64 {
	t.Helper()
	m, err := sim.Run(context.Background(), p, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.StepTime
}

// Without copy engines a swap costs its copies: only recomputing is never better than both together, and no
// plan is faster than its bound.
func TestWithoutEnginesJointIsNeverWorseThanRunningAgainAlone(t *testing.T) {
	t.Parallel()
	swaps, reruns := 0, 0
	for seed := range uint64(60) {
		p := serial(seed, 1)
		for _, percent := range []int64{80, 50, 25} {
			budget := within(p, percent)
			var times [2]int64
			for k, off := range []mechanisms{{}, {swap: true}} {
				// With swaps it spends half of its time on plans without any.
				pl, err := Joint{
					off: off,
				}.Plan(
					context.Background(),
					p,
					plan.Request{Budget: budget, Seed: 7, Work: 300_000 >> k, Evaluator: sim.Simulator{}},
				)
				if err != nil {
					t.Fatal(err)
				}
				if err := plan.Validate(p, pl); err != nil {
					t.Fatalf("seed %d, %d %%: %v", seed, percent, err)
				}
				times[k] = stepTime(t, p, pl)
				if pl.StepBound > times[k] {
					t.Errorf(
						"seed %d, %d %%: a step of %d ns is below its bound %d",
						seed,
						percent,
						times[k],
						pl.StepBound,
					)
				}
				if pl.Footprint > budget {
					times[k] = 1 << 62
				}
				if k == 0 {
					reruns += len(pl.Reruns)
					swaps += len(
						slices.DeleteFunc(
							slices.Clone(pl.Absences),
							func(x plan.Absence) bool { return x.How != plan.Swap },
						),
					)
				}
			}
			if times[0] > times[1] {
				t.Errorf("seed %d, %d %%: %d ns, and %d without swapping", seed, percent, times[0], times[1])
			}
		}
	}
	if swaps < 100 || reruns < 50 {
		t.Errorf("%d swaps and %d reruns: the law was hardly tried", swaps, reruns)
	}
}

// On a chain of equal layers whatever leaves costs the same: the bound is what the simulation measures, and
// the cheaper of the two is chosen.
func TestWithoutEnginesTheCheaperOfCopyingAndRunningAgainIsChosen(t *testing.T) {
	for _, c := range []struct {
		// copies of 1 MiB take 1/1024 s at 1 GiB/s, out and in twice that; an op of the forward pass 1 ms
		bytesPerSecond float64
		swaps          bool
	}{{1 << 34, true}, {1 << 29, false}} {
		p := plantest.Chain(8, 1<<20, 1_000_000)
		p.Hardware.NoEngines = true
		p.Hardware.D2H.BytesPerSecond, p.Hardware.H2D.BytesPerSecond = c.bytesPerSecond, c.bytesPerSecond
		peak, _ := p.PeakLive()
		budget := peak - 2<<20
		pl, err := Joint{}.Plan(
			context.Background(),
			p,
			plan.Request{Budget: budget, Evaluator: sim.Simulator{}},
		)
		if err != nil {
			t.Fatal(err)
		}
		if pl.Footprint > budget {
			t.Errorf("at %.0f B/s: %d bytes do not fit into %d", c.bytesPerSecond, pl.Footprint, budget)
		}
		swapped := slices.ContainsFunc(pl.Absences, func(x plan.Absence) bool { return x.How == plan.Swap })
		if swapped != c.swaps || (len(pl.Reruns) == 0) != c.swaps {
			t.Errorf(
				"at %.0f B/s: %d absences, swapping is %v and %d reruns",
				c.bytesPerSecond,
				len(pl.Absences),
				swapped,
				len(pl.Reruns),
			)
		}
		time := stepTime(t, p, pl)
		if off := float64(time)/float64(pl.StepBound) - 1; off < 0 || off > 0.001 {
			t.Errorf("at %.0f B/s: %d ns, and the bound is %d", c.bytesPerSecond, time, pl.StepBound)
		}
	}
}

// What recompute managers find is no better than what joint does.
func TestWithoutEnginesJointBeatsRecomputeManagers(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, name := range []string{"VGG-16", "ResNet-50"} {
		p := network(t, name)
		p.Hardware.NoEngines = true
		for _, percent := range []int64{70, 40} {
			budget := within(p, percent)
			pl, err := Joint{}.Plan(
				context.Background(),
				p,
				plan.Request{Budget: budget, Work: 3_000_000, Evaluator: sim.Simulator{}},
			)
			if err != nil {
				t.Fatal(err)
			}
			mine := stepTime(t, p, pl)
			if pl.Footprint > budget {
				t.Errorf("%s, %d %%: %d bytes do not fit into %d", name, percent, pl.Footprint, budget)
			}
			for _, other := range rivals.All() {
				theirs, err := other.Plan(
					context.Background(),
					p,
					plan.Request{Budget: budget, Work: 50, Evaluator: sim.Simulator{}},
				)
				if errors.As(err, new(*plan.Unavailable)) ||
					err == nil && (theirs.Policy != nil || theirs.Footprint > budget) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				tried++
				if other := stepTime(t, p, theirs); other < mine {
					t.Errorf(
						"%s, %d %%: %s takes %d ns, joint %d",
						name,
						percent,
						theirs.Manager,
						other,
						mine,
					)
				}
			}
		}
	}
	if tried < 4 {
		t.Errorf("%d plans of others fit: the law was hardly tried", tried)
	}
}
