package replay_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/traces"
)

func TestOnlyPlansThatNoOtherBeatsAreKnown(t *testing.T) {
	p := plantest.Chain(2, 1<<20, 1000)
	result := func(manager string, footprint, step int64, e plan.Executor) replay.Result {
		return replay.Result{Info: plan.Info{Name: manager, Ours: true}, Available: true,
			Plan:        &plan.Plan{Footprint: footprint, Executor: e},
			Measurement: plan.Measurement{Footprint: footprint, StepTime: step}}
	}
	var k replay.Plans
	known := k.Known(p)
	k.Add(p, []replay.Result{result("a", 10, 5, plan.Ideal), result("a", 20, 5, plan.Ideal),
		result("a", 20, 4, plan.Ideal), result("b", 9, 9, plan.Ideal), result("a", 10, 5, plan.TorchEager),
		{Info: plan.Info{Name: "a", Ours: true}, Reason: "it made none"},
		{Info: plan.Info{Name: "c"}, Available: true, Plan: &plan.Plan{}}}) // of a manager that is not ours
	k.Add(p, []replay.Result{result("a", 10, 4, plan.Ideal)})
	if got := known("a"); len(got) != 2 || len(known("b")) != 1 || len(known("c")) != 0 {
		t.Errorf("%d plans of a, %d of b, %d of c", len(got), len(known("b")), len(known("c")))
	}
	other := plantest.Chain(3, 1<<20, 1000)
	if len(k.Known(other)("a")) != 0 || len(known("a")) != 0 {
		t.Error("plans of another problem are known")
	}
	k.Add(p, []replay.Result{result("a", 1, 1, plan.Ideal)})
	if len(k.Known(other)("a")) != 0 {
		t.Error("a late plan of another problem was added")
	}
}

// What a manager planned for another budget reaches it with the next request.
func TestAManagerIsToldWhatItPlannedBefore(t *testing.T) {
	p := plantest.Chain(4, 1<<20, 1000)
	m := &asked{}
	var k replay.Plans
	for range 2 {
		c, err := replay.Compare(t.Context(), p, []plan.Manager{m}, replay.Options{Known: k.Known(p)})
		if err != nil {
			t.Fatal(err)
		}
		k.Add(p, c.Results)
	}
	if len(m.known) != 2 || m.known[0] != 0 || m.known[1] != 1 {
		t.Errorf("plans known at each request: %v", m.known)
	}
}

// asked notes how many plans each request knows.
type asked struct{ known []int }

func (*asked) Info() plan.Info { return plan.Info{Name: "asked", Ours: true, Needs: traces.Lifetimes} }

func (m *asked) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	m.known = append(m.known, len(r.Known))
	return pool.Exact().Plan(ctx, p, r)
}
