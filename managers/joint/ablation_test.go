package joint

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// device is a made-up accelerator of 12 TFLOP/s, 800 GB/s and a link of 12 GB/s each way.
func device() plan.Hardware {
	link := plan.Link{BytesPerSecond: 12e9, Latency: 10_000}
	return plan.Hardware{
		Name:           "made up",
		Origin:         "tests",
		MemoryBytes:    32 << 30,
		D2H:            link,
		H2D:            link,
		Together:       1,
		FlopsPerSecond: 12e12,
		FlopsType:      "float32",
		BytesPerSecond: 800e9,
	}
}

func network(t testing.TB, name string) *plan.Problem {
	t.Helper()
	n, err := networks.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.Problem(n.Batches[0], device(), networks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Each mechanism, switched off, makes the plan of a known problem worse: slower, or too large.
func TestEveryMechanismEarnsItsPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, network string
		percent       int64 // budget, of the way from what must reside to the peak
		with, without mechanisms
	}{
		{"prices from the bound's dual, and learned ones", "ResNet-50", 30, mechanisms{},
			mechanisms{prices: true}},
		{"recomputing", "ResNet-50", 50, mechanisms{}, mechanisms{recompute: true}},
		{"swapping", "VGG-16", 60, mechanisms{}, mechanisms{swap: true}},
		{"sections", "OverFeat", 15, mechanisms{}, mechanisms{sections: true}},
		{"places by search", "AlexNet", 30, mechanisms{}, mechanisms{packing: true}},
		{"local search", "VGG-16", 30, mechanisms{}, mechanisms{search: true}},
		{"feedback from placement", "ResNet-50", 12, mechanisms{ladder: true},
			mechanisms{ladder: true, feedback: true}},
	} {
		p := network(t, c.network)
		peak, _ := p.PeakLive()
		floor := p.MustReside().Total()
		budget := floor + (peak-floor)*c.percent/100
		cost := func(off mechanisms) (time, footprint int64) {
			pl, err := Joint{
				off: off,
			}.Plan(
				context.Background(),
				p,
				plan.Request{Budget: budget, Work: 3_000_000, Evaluator: sim.Simulator{}},
			)
			if err != nil {
				t.Fatal(err)
			}
			m, err := sim.Run(context.Background(), p, pl, sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return m.StepTime, pl.Footprint
		}
		time, size := cost(c.with)
		timeWithout, sizeWithout := cost(c.without)
		t.Logf(
			"%s: %d ns in %d bytes, without %d ns in %d, budget %d",
			c.what,
			time,
			size,
			timeWithout,
			sizeWithout,
			budget,
		)
		switch {
		case size > budget && sizeWithout <= size:
			t.Errorf("%s: %d bytes do not fit %d, and without it %d", c.what, size, budget, sizeWithout)
		case size <= budget && sizeWithout <= budget && timeWithout <= time:
			t.Errorf("%s: %d ns, and without it %d", c.what, time, timeWithout)
		}
	}
}

// Planned at the budget itself, without the ladder of limits, a larger budget can come out slower; with it,
// nowhere where it does without.
func TestWithoutTheLadderStepTimeRisesWithTheBudget(t *testing.T) {
	t.Parallel()
	with, without := 0, 0
	for seed := uint64(0); seed < 40 && without < 3; seed++ {
		p := plantest.Random(seed, 20+int(seed))
		peak, _ := p.PeakLive()
		floor := p.MustReside().Total()
		rises := func(off mechanisms) (n int) {
			last := int64(0)
			for k := range int64(10) { // falling
				pl, err := Joint{
					off: off,
				}.Plan(
					context.Background(),
					p,
					plan.Request{Budget: peak - (peak-floor)*k/10, Work: 300_000, Evaluator: sim.Simulator{}},
				)
				if err != nil {
					t.Fatal(err)
				}
				m, err := sim.Run(context.Background(), p, pl, sim.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if pl.Footprint > pl.Budget {
					break
				}
				if m.StepTime < last {
					n++
				}
				last = m.StepTime
			}
			return n
		}
		if n := rises(mechanisms{ladder: true}); n > 0 {
			without += n
			with += rises(mechanisms{})
		}
	}
	if with > 0 || without == 0 {
		t.Errorf("step time rises with the budget %d times, and %d times without the ladder", with, without)
	}
}
