package swap

import (
	"errors"
	"testing"

	"github.com/gmemtop/gmemtop/managers/networks/networkstest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// The step of a real network comes down by its optimizer state where the peak is not the optimizer's own, and
// takes both copies of it longer.
func TestOptimizerStateWaitsOnTheHost(t *testing.T) {
	p := networkstest.Problem(t, "alexnet", 128, "v100-pcie-16gb")
	q, state := p.Parked()
	if q == nil {
		t.Fatal("the network has no optimizer state")
	}
	pl, got := run(t, zeroOffload{}, p, plan.Request{})
	var keep, copies int64
	for i := range p.Ops {
		keep += p.Ops[i].Duration
		copies += q.Ops[i].Duration - p.Ops[i].Duration
	}
	before, _ := p.PeakLive()
	after, _ := pl.PeakLive()
	if want := q.Held() - q.Outside; after != want || before-after < state {
		t.Errorf("it holds %d bytes of %d; %d bytes are state, and %d should be left", after, before, state,
			want)
	}
	if copies == 0 || got.StepTime < keep+copies {
		t.Errorf("a step takes %d ns, and ops %d with %d of copies", got.StepTime, keep, copies)
	}
}

func TestAStepWithoutOptimizerStateIsRefused(t *testing.T) {
	var missing *plan.Unavailable
	_, err := zeroOffload{}.Plan(t.Context(), plantest.Chain(4, 1<<20, 1e6), plan.Request{})
	if !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
}
