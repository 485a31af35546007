package recompute

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// contest runs two managers on the trainings of the first seeds, and adds up the rerun time where both fit.
func contest(t *testing.T, with, without plan.Manager, layers int, percent int64, seeds uint64) (a, b int64,
	fitA, fitB int) {
	t.Helper()
	for seed := range seeds {
		p := training(seed, layers)
		budget := part(p, percent)
		fa, ta, _ := outcome(t, with, p, budget)
		fb, tb, _ := outcome(t, without, p, budget)
		if fa <= budget {
			fitA++
		}
		if fb <= budget {
			fitB++
		}
		if fa <= budget && fb <= budget {
			a, b = a+ta, b+tb
		}
	}
	t.Logf("%d layers at %d %%: %d against %d run again where both fit; %d and %d of %d fit", layers, percent,
		a, b, fitA, fitB, seeds)
	return a, b, fitA, fitB
}

func TestEvictingWithoutStalenessRunsMoreAgain(t *testing.T) {
	if a, b, fa, fb := contest(t, DTR(), dtr{withoutStaleness: true}, 24, 40, 20); a >= b || fa < fb {
		t.Errorf("with staleness %d, without %d; fit %d and %d", a, b, fa, fb)
	}
}

func TestEvictingWithoutTheNeighbourhoodRunsMoreAgain(t *testing.T) {
	if a, b, fa, fb := contest(t, DTR(), dtr{withoutNeighbours: true}, 48, 20, 12); a >= b || fa < fb {
		t.Errorf("with the neighbourhood %d, without %d; fit %d and %d", a, b, fa, fb)
	}
}

func TestDroppingWithoutSegmentsRunsMoreAgain(t *testing.T) {
	if a, b, fa, _ := contest(t, Sqrt(), sqrt{whole: true}, 24, 60, 20); a >= b || fa == 0 {
		t.Errorf("with segments %d, without %d", a, b)
	}
}

func TestRoundingTheRelaxationOnceIsWorseThanSolvingTheProgram(t *testing.T) {
	once := CheckmateLP().(checkmate)
	once.single = true
	solved := Checkmate().(checkmate)
	solved.only = true
	a, b, fa, fb := contest(t, solved, once, 10, 40, 8)
	if a > b || fa < fb || a == b && fa == fb {
		t.Errorf("solved %d, rounded once %d; fit %d and %d", a, b, fa, fb)
	}
}

func TestRoundingOnceAtTheGivenBudgetIsWorseThanShiftingIt(t *testing.T) {
	once := CheckmateLP().(checkmate)
	once.single = true
	a, b, fa, fb := contest(t, CheckmateLP(), once, 10, 40, 8)
	if a > b || fa < fb || a == b && fa == fb {
		t.Errorf("rounded at several thresholds for a shifted budget %d, once %d; fit %d and %d", a, b, fa,
			fb)
	}
}

// TestCheckmateRunsNoMoreAgainThanTheHeuristics holds because it starts from segments and solves small
// programs to the gap.
func TestCheckmateRunsNoMoreAgainThanTheHeuristics(t *testing.T) {
	for _, other := range []plan.Manager{Sqrt(), DTR(), CheckmateLP()} {
		if a, b, fa, fb := contest(t, Checkmate(), other, 12, 50, 8); a > b || fa < fb {
			t.Errorf("checkmate %d, %s %d; fit %d and %d", a, other.Info().Name, b, fa, fb)
		}
	}
}
