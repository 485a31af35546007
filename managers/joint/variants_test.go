package joint_test

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// withVariants returns the problem with other variants for each op that has some. The first counts as
// recorded.
func withVariants(t *testing.T, p *plan.Problem, of func(fast plan.Variant) []plan.Variant) *plan.Problem {
	t.Helper()
	q := *p
	q.Ops, q.Buffers = slices.Clone(p.Ops), slices.Clone(p.Buffers)
	for i := range q.Ops {
		op := &q.Ops[i]
		if len(op.Variants) == 0 {
			continue
		}
		op.Variants = of(op.Variants[0])
		op.Duration, q.Buffers[op.Workspace].Size = op.Variants[0].Duration, op.Variants[0].Workspace
	}
	if err := q.Finish(); err != nil {
		t.Fatal(err)
	}
	return &q
}

// A recorded variant that is slower than another one and takes more memory changes nothing.
func TestAPoorVariantIsNeverUsed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		random := plantest.Random(seed, 60)
		p := withVariants(t, random, func(fast plan.Variant) []plan.Variant { return []plan.Variant{fast} })
		q := withVariants(t, random, func(fast plan.Variant) []plan.Variant {
			poor := plan.Variant{Name: "poor", Duration: 3 * fast.Duration, Workspace: 2 * fast.Workspace}
			return []plan.Variant{poor, fast}
		})
		peak, _ := p.PeakLive()
		for _, percent := range []int64{100, 80, 60} {
			r := plan.Request{Budget: peak * percent / 100, Work: 100_000, Evaluator: sim.Simulator{}}
			if a, b := stepTime(t, p, r), stepTime(t, q, r); a != b {
				t.Errorf("seed %d within %d %% of the peak: %d ns a step, %d ns with poor variants recorded",
					seed, percent, a, b)
			}
		}
	}
}

// stepTime is that of joint's plan, 0 if none fits.
func stepTime(t *testing.T, p *plan.Problem, r plan.Request) int64 {
	t.Helper()
	pl, err := joint.Joint{}.Plan(t.Context(), p, r)
	if err != nil || pl.Footprint > r.Budget {
		return 0
	}
	m, err := sim.Run(t.Context(), p, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.StepTime
}
