package crew

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// Predictions for a training on a CPU match its own steps: bytes exactly, and the processor time of copies
// and recomputed ops to within a factor that no load of the machine comes near. A GPU preset predicts no
// thread time for copies at all, and a rate measured in a loop was off by a factor of six.
func TestWhatPlansCostOnACPUIsPredictedByMeasuringInTheTraining(t *testing.T) {
	t.Parallel()
	l := startLiveWith(t, []string{"OMP_NUM_THREADS=1"}, "../../examples/gpt2.py", "--device", "cpu",
		"--batch", "4", "--sequence", "64", "--layers", "3", "--width", "128",
		"--heads", "4", "--vocabulary", "500", "--steps", "100000")
	ctx := context.Background()
	target := live.NewTarget(l.Member, live.Options{Warm: 1, Steps: 5})
	p, err := target.Problem(ctx, live.Hardware{Hardware: anyHardware.Hardware})
	if err != nil {
		t.Fatal(err)
	}
	h := &p.Hardware
	if !h.NoEngines || !h.Measured || h.AgainTime <= 0 || h.D2H.Latency <= 0 || h.H2D.Latency <= 0 {
		t.Fatalf("planned on %+v", *h)
	}
	const factor = 5
	for _, c := range []struct {
		name          string
		copies, again bool
		plan          func() (*plan.Plan, error)
	}{{"swaps", true, false, func() (*plan.Plan, error) { return everySecond(p) }},
		{"sqrt", false, true, func() (*plan.Plan, error) {
			list, err := managers.Select("sqrt")
			if err != nil {
				return nil, err
			}
			return list[0].Plan(ctx, p, plan.Request{Evaluator: sim.Simulator{}})
		}}} {
		pl, err := c.plan()
		if err != nil {
			t.Fatal(err)
		}
		if pl, err = managers.Eager(ctx, p, pl); err != nil || pl == nil {
			t.Fatalf("%s: no plan for eager PyTorch: %v", c.name, err)
		}
		told, err := sim.Run(ctx, p, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := target.Run(ctx, p, pl, plan.RunOptions{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		t.Logf("%s: copies %d ns, told %d; again %d ns, told %d; work %d ns, without %d and %d, told %d more",
			c.name, m.CopyTime, told.CopyTime, m.RecomputeTime, told.RecomputeTime,
			m.Work, m.WorkBefore, m.WorkAfter, told.CopyTime+told.RecomputeTime)
		if m.SwappedOut != told.SwappedOut || m.SwappedIn != told.SwappedIn ||
			(m.SwappedOut > 0) != c.copies {
			t.Errorf("%s: %d bytes out and %d in, predicted %d and %d", c.name, m.SwappedOut,
				m.SwappedIn, told.SwappedOut, told.SwappedIn)
		}
		if (m.CopyTime > 0) != c.copies || m.CopyTime > factor*told.CopyTime ||
			told.CopyTime > factor*m.CopyTime {
			t.Errorf("%s: copies took %d ns, predicted %d", c.name, m.CopyTime, told.CopyTime)
		}
		if (m.RecomputeTime > 0) != c.again || m.RecomputeTime > factor*told.RecomputeTime ||
			told.RecomputeTime > factor*m.RecomputeTime {
			t.Errorf("%s: ops that ran again took %d ns, predicted %d", c.name, m.RecomputeTime,
				told.RecomputeTime)
		}
		if m.Work <= 0 || m.WorkBefore <= 0 || m.WorkAfter <= 0 {
			t.Errorf("%s: the thread's work is %d, %d and %d ns", c.name, m.WorkBefore, m.Work, m.WorkAfter)
		}
	}
}

// everySecond returns a plan that swaps every second tensor that can be swapped.
func everySecond(p *plan.Problem) (*plan.Plan, error) {
	var d plan.Decisions
	for k, g := range p.Gaps(1, 1) {
		if k%2 == 0 && !g.Dead {
			d.Absences = append(d.Absences, plan.Absence{Buffer: g.Buffer, After: g.After, Release: g.After +
				1, Fetch: g.Before, Before: g.Before, How: plan.Swap})
		}
	}
	return plan.Assemble(p, d)
}
