package joint_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// TestTheExactSearchKnowsCopiesThatEndWhileAChainRuns holds the search against a plan made by hand. Value 4
// is released before op 5, for which op 1 runs again. The copy out ends while op 1 runs, and op 5 then takes
// the memory. A search that lets nothing leave while a chain runs calls this plan impossible.
func TestTheExactSearchKnowsCopiesThatEndWhileAChainRuns(t *testing.T) {
	x := &small{
		dur:   []int{1, 3, 1, 1, 1, 1, 4, 1},
		size:  []int{1, 4, 1, 5, 3, 4, 1, 1},
		reads: [][]int{nil, {0}, {1}, {2}, {3}, {0, 1, 2}, {5}, {4, 6}},
		again: []bool{1: true, 7: false}, // the last one sets the length
		link:  1,
	}
	const budget = 10
	p := x.problem()
	pl, err := plan.Assemble(p, plan.Decisions{
		Absences: []plan.Absence{
			{Buffer: 1, After: 2, Release: 3, Fetch: 5, Before: 5, How: plan.Recompute},
			{Buffer: 4, After: 4, Release: 5, Fetch: 6, Before: 7, How: plan.Swap},
		},
		Reruns: []plan.Rerun{{Before: 5, Ops: []plan.OpID{1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(t.Context(), p, pl, place.Options{Rule: place.Search, Work: 1000}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	m, err := sim.Run(t.Context(), p, pl, sim.Options{Cap: budget << 20})
	if err != nil {
		t.Fatal(err)
	}
	if m.StepTime != 16_000 || m.Footprint != budget<<20 {
		t.Errorf("the plan takes %d ns in %d bytes", m.StepTime, m.Footprint)
	}
	best, found, ended := x.fastest(budget, 100, 1_000_000)
	if !found || !ended || best != 16 {
		t.Errorf("the best is %d (found %v, ended %v), and the plan takes 16", best, found, ended)
	}
}

// TestARerunLoadsWhatHasNoRoomToStay: before op 3 runs nothing but its own values fits, and nothing else fits
// while op 4 runs. Value 1 could come back from the host in 12 units of time. It is faster to load the value
// that it is made of, which takes 3, and to run op 1 again.
func TestARerunLoadsWhatHasNoRoomToStay(t *testing.T) {
	x := &small{
		dur:   []int{3, 2, 20, 20, 5, 5},
		size:  []int{1, 4, 5, 6, 1, 1},
		reads: [][]int{nil, {0}, {1}, {2}, {1, 3}, {0, 4}},
		again: []bool{1: true, 5: false},
		link:  3,
	}
	const budget = 11
	p := x.problem()
	best, found, ended := x.fastest(budget, 100, 1_000_000)
	if !found || !ended {
		t.Fatalf("found %v, ended %v", found, ended)
	}
	r := plan.Request{Budget: budget << 20, Seed: 1, Work: 1_000_000, Evaluator: sim.Simulator{}}
	pl, err := joint.Joint{}.Plan(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	m, err := sim.Run(t.Context(), p, pl, sim.Options{Cap: budget << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Error(err)
	}
	if m.StepTime != int64(best)*1000 || len(pl.Reruns) != 1 || len(pl.Reruns[0].Loads) != 1 {
		t.Errorf("the plan takes %d ns, the best %d units; it reruns %v", m.StepTime, best, pl.Reruns)
	}
	if pl.StepBound > m.StepTime {
		t.Errorf("the bound is %d ns, and the plan takes %d", pl.StepBound, m.StepTime)
	}
	p.EagerOnly = true // which keeps what it has unpacked
	if pl, err = (joint.Joint{}).Plan(t.Context(), p, r); err != nil {
		t.Fatal(err)
	}
	for _, x := range pl.Reruns {
		if len(x.Loads) > 0 {
			t.Errorf("for eager PyTorch %v is loaded", x.Loads)
		}
	}
}
