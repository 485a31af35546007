package recompute

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// question is what a manager is asked in a contest.
type question struct {
	m       plan.Manager
	layers  int
	seed    uint64
	percent int64
}

// answer is the footprint and the rerun time of its plan.
type answer struct{ footprint, again int64 }

// answered are the answers so far: contests ask checkmate, which takes seconds, for the same again.
var answered = map[question]answer{}

// ask returns a manager's answer on a training.
func ask(t *testing.T, q question) (x answer, budget int64) {
	t.Helper()
	p := training(q.seed, q.layers)
	budget = part(p, q.percent)
	x, ok := answered[q]
	if !ok {
		x.footprint, x.again, _ = outcome(t, q.m, p, budget)
		answered[q] = x
	}
	return x, budget
}

// contest runs two managers on the trainings of the first seeds, and adds up the rerun time where both fit.
func contest(t *testing.T, with, without plan.Manager, layers int, percent int64, seeds uint64) (a, b int64,
	fitA, fitB int) {
	t.Helper()
	for seed := range seeds {
		x, budget := ask(t, question{with, layers, seed, percent})
		y, _ := ask(t, question{without, layers, seed, percent})
		if x.footprint <= budget {
			fitA++
		}
		if y.footprint <= budget {
			fitB++
		}
		if x.footprint <= budget && y.footprint <= budget {
			a, b = a+x.again, b+y.again
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

// TestCheckmateRunsNoMoreAgainThanTheHeuristics holds where it has a plan, because it starts from segments
// and solves small programs to the gap. It leaves some unsolved.
func TestCheckmateRunsNoMoreAgainThanTheHeuristics(t *testing.T) {
	for _, other := range []plan.Manager{Sqrt(), DTR(), CheckmateLP()} {
		if a, b, fa, fb := contest(t, Checkmate(), other, 12, 50, 8); a > b || fa < 6 {
			t.Errorf("checkmate %d, %s %d; fit %d and %d", a, other.Info().Name, b, fa, fb)
		}
	}
}
