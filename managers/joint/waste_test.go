package joint

import (
	"math/rand/v2"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// tangled is a net whose values have sizes over three orders of magnitude and end in no order, so that places
// waste memory.
func tangled(n int) *plan.Problem {
	r := rand.New(rand.NewPCG(1, 2))
	b := plantest.New()
	for i := range n {
		var reads []plan.BufferID
		for _, back := range []int{1 + r.IntN(5), 6 + r.IntN(60)} {
			if i >= back {
				reads = append(reads, plan.BufferID(i-back))
			}
		}
		b.Buffer("t", 4<<10<<r.IntN(10)+int64(r.IntN(4<<10)), timeline.Activation)
		b.Op("op", traces.PhaseForward, 20_000+r.Int64N(300_000), reads, []plan.BufferID{plan.BufferID(i)})
	}
	return b.End()
}

// A search from a plan that ends above the budget by its addresses tells the next one how much lower its
// limits must be.
func TestSearchesFromPlansLearnWhatPlacesWaste(t *testing.T) {
	t.Parallel()
	p := tangled(150)
	peak, _ := p.PeakLive()
	least := p.MustReside().Total()
	limit := least + (peak-least)/3
	r := plan.Request{Budget: limit, Evaluator: sim.Simulator{}, Work: 300_000}
	f, err := newFinder(t.Context(), p, r, mechanisms{sections: true}, defaults())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.pickRung(); err != nil {
		t.Fatal(err)
	}
	v, from := f.views[0], f.best
	search := func() { v.searchOn(from, anneal{absences: 1, work: 100_000, pack: 1}) }
	f.best = nil // a plan that is slower still gets places
	if search(); v.waste <= 0 {
		t.Fatalf("%d bytes wasted: the places of this problem should waste some", v.waste)
	}
	f.best = from
	known := v.waste
	search()
	for i, got := range v.schedule.memory.limit[:v.m.n] {
		if want := max(limit-known, v.m.least[i]); got > want {
			t.Fatalf("position %d: a limit of %d bytes, want at most %d of %d", i, got, want, limit)
		}
	}
	v.waste = limit / 4 // far too much
	f.best = nil
	if search(); v.waste >= limit/4 {
		t.Errorf("still %d bytes after a plan that leaves memory unused", v.waste)
	}
}
