package recompute

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// again returns the time of a manager's reruns, plantest.Never if its plan does not fit.
func again(t *testing.T, m plan.Manager, l plantest.Layers, p *plan.Problem, budget int64) int64 {
	t.Helper()
	takes := stepOf(t, m, p, budget)
	if takes == plantest.Never {
		return plantest.Never
	}
	return takes - l.Base()
}

func TestRotorIsOptimalOnEvenChains(t *testing.T) {
	t.Parallel()
	l := plantest.EvenLayers(40)
	p := l.Problem()
	for slots := int64(4); slots <= 42; slots++ {
		want := l.Least(slots << 20)
		if got := again(t, Rotor(), l, p, slots<<20); got != want {
			t.Errorf("%d slots: %+.1f %%, and %+.1f %% would do", slots, percent(got, l), percent(want, l))
		}
	}
	// As Revolve has it, by hand: with one slot beside input, gradients and result, a sweep for every layer
	// but the last two.
	if got := l.Least(4 << 20); got != 39*38/2*1_000_000 {
		t.Errorf("the oracle says %d", got)
	}
}

func percent(ns int64, l plantest.Layers) float64 { return float64(ns) / float64(l.Base()) * 100 }

// TestRotorIsOptimalOnUnevenChains: buffers of unequal sizes leave holes, which the oracle does not count, so
// half a point is allowed, and a point and a half in one case of twenty.
func TestRotorIsOptimalOnUnevenChains(t *testing.T) {
	t.Parallel()
	equal, near, of := 0, 0, 0
	for seed := range uint64(8) {
		l := plantest.UnevenLayers(seed, 24)
		p := l.Problem()
		peak, _ := p.PeakLive()
		for _, share := range []int64{25, 30, 40, 50, 60, 75, 90} {
			budget := peak * share / 100
			want, got := l.Least(budget), again(t, Rotor(), l, p, budget)
			if got == plantest.Never && want == plantest.Never {
				continue
			}
			of++
			if got == want {
				equal++
			}
			d := percent(got-want, l)
			if d <= 0.5 {
				near++
			}
			if d < 0 || d > 1.5 {
				t.Errorf("seed %d, %d %%: %+.2f %% more time, and %+.2f %% would do",
					seed, share, percent(got, l), percent(want, l))
			}
		}
	}
	if t.Logf("equal in %d of %d, near in %d", equal, of, near); of < 40 || near*20 < of*19 {
		t.Errorf("%d budgets can be met, and in %d rotor is near the optimum", of, near)
	}
}

// The oracle of these tests is held against a search through all schedules.
func TestTheOracleAgreesWithASearchThroughAllSchedules(t *testing.T) {
	t.Parallel()
	same, worse := 0, 0
	for seed := range uint64(12) {
		l := plantest.UnevenLayers(seed, 6)
		if seed == 0 {
			l = plantest.EvenLayers(7)
		}
		p := l.Problem()
		floor := p.MustReside().Total()
		peak, _ := p.PeakLive()
		for k := range int64(6) {
			budget := floor + (peak-floor)*k/5
			a, b := l.Least(budget), l.LeastOfAll(budget)
			if a < b || b < plantest.Never && a == plantest.Never {
				t.Errorf("seed %d within %d: the program says %d and a search %d", seed, budget, a, b)
			}
			if a == b {
				same++
			} else {
				worse++
			}
		}
	}
	if t.Logf("equal %d times, the program's schedules are longer %d times", same, worse); worse*10 > same {
		t.Error("the program is no oracle")
	}
}
