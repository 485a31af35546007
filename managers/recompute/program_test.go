package recompute

import (
	"context"
	"math"
	"testing"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/milp"
)

// relaxation returns the value of the linear relaxation of a program, and how many variables that has.
func relaxation(t *testing.T, s *stages, o scope) (value float64, vars int) {
	t.Helper()
	q := newProgram(s, o)
	sol, err := milp.Solve(context.Background(), &q.m, milp.Options{LPOnly: true, Solver: milp.SolverWASM})
	if err != nil || sol.Status != milp.StatusOptimal {
		t.Fatalf("%v, %s", err, sol.Status)
	}
	return sol.Objective, q.m.NumVars()
}

// TestProgramsOfTrainings: one variable for the stages before anything can come back loses nothing, a shorter
// reach can only lose, and which rows are left out does not matter.
func TestProgramsOfTrainings(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(math.Abs(a), 1e-6) }
	fewer, lost := 0, 0
	for seed := range uint64(12) {
		p := training(seed, 26)
		s := newStages(p, chain.New(p), 26)
		budget := part(p, 20+5*int64(seed%8))
		o := scope{budget: budget, floor: budget, reach: 3}
		together, few := relaxation(t, s, o)
		o.apart = true
		apart, many := relaxation(t, s, o)
		if !near(together, apart) {
			t.Errorf("seed %d: %g with one variable and %g with one a stage", seed, together, apart)
		}
		if few < many {
			fewer++
		}
		o = scope{budget: budget, floor: budget, reach: s.count()}
		whole, _ := relaxation(t, s, o)
		if together < whole*(1-1e-6) {
			t.Errorf("seed %d: %g within reach and %g without", seed, together, whole)
		}
		if !near(together, whole) {
			lost++
		}
		o.floor = budget * 7 / 10
		// the price of Over depends on the floor: compare where nothing is over
		cost := 1000 / (float64(o.floor) / mib)
		if rows, _ := relaxation(t, s, o); !near(rows, whole) && whole < 1 && cost > 0 {
			t.Errorf("seed %d: %g with the rows of a lower budget and %g with its own", seed, rows, whole)
		}
	}
	t.Logf("%d of 12 with fewer variables, %d lose by the reach", fewer, lost)
	if fewer < 10 {
		t.Errorf("only %d programs became smaller", fewer)
	}
}
