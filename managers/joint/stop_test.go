package joint_test

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

func TestCancelledPlanningReturnsAtOnce(t *testing.T) {
	p := plantest.Chain(400, 1<<20, 1_000_000)
	b := budgets(p, 3)[1]
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := (joint.Joint{}).Plan(ctx, p, request(b)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before it began, planning returned %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	r := request(b)
	r.Work = 0
	r.Progress = func(done, total int64) { cancel() }
	pl, err := joint.Joint{}.Plan(ctx, p, r)
	if err != nil {
		t.Fatalf("cancelled behind its first plan, planning returned %v", err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Error(err)
	}
}

// stopping is a context that is cancelled after a number of calls of its Err.
type stopping struct {
	context.Context
	left atomic.Int64
}

func (c *stopping) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// Wherever planning is stopped once it has begun, it returns a plan that can be carried out.
func TestPlanningCanBeStoppedAnywhere(t *testing.T) {
	t.Parallel()
	p := plantest.Chain(40, 1<<20, 1_000_000)
	b := budgets(p, 3)[1]
	early := 0
	for asked := int64(1); asked < 4000; asked += 1 + asked/4 {
		ctx := &stopping{Context: context.Background()}
		ctx.left.Store(asked)
		r := request(b)
		measured := false
		r.Progress = func(done, total int64) { measured = true }
		pl, err := joint.Joint{}.Plan(ctx, p, r)
		if err != nil {
			t.Fatalf("stopped at look %d at the context: %v", asked, err)
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Errorf("stopped at look %d at the context: %v", asked, err)
		}
		if !measured {
			early++
		}
	}
	if early < 2 {
		t.Errorf("stopped before the first plan %d times: the law was hardly tried", early)
	}
}

// Planning reports how near its bound the best plan so far is. The gap never grows, and ends as that of the
// plan; reporting changes no plan.
func TestPlanningTellsHowNearItsBoundItIs(t *testing.T) {
	t.Parallel()
	p := plantest.Random(5, 50)
	r := request(budgets(p, 3)[1])
	want, err := joint.Joint{}.Plan(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	var told []float64
	r.Near = func(gap float64) { told = append(told, gap) }
	got, err := joint.Joint{}.Plan(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Steps, want.Steps) || got.Footprint != want.Footprint {
		t.Error("telling changes the plan")
	}
	if len(told) < 2 {
		t.Fatalf("told %v", told)
	}
	for k := 1; k < len(told); k++ {
		if told[k] > told[k-1] {
			t.Errorf("told %v: it gets worse", told)
		}
	}
	// the bound of the plan is computed with more turns, so it may be tighter
	if gap := float64(measure(t, p, got).StepTime)/float64(got.StepBound) - 1; told[len(told)-1] < gap-1e-9 {
		t.Errorf("told %v, and the plan is %.4f above its bound", told, gap)
	}
}
