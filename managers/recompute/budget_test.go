package recompute

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/milp"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

func TestTheKnapsackSavesWhatIsWorthMost(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		acts := make([]activation, 1+r.IntN(9))
		values := make([]float64, len(acts))
		for i := range acts {
			acts[i].bytes, values[i] = 1+r.Int64N(100), float64(1+r.IntN(50))
		}
		k := fill(acts, values, quanta)
		for _, capacity := range []int{0, quanta / 4, quanta / 2, quanta * 9 / 10, quanta} {
			var most float64
			for set := range 1 << len(acts) {
				weight, worth := 0, 0.0
				for i := range acts {
					if set>>i&1 != 0 {
						weight, worth = weight+k.weight[i], worth+values[i]
					}
				}
				if weight <= capacity {
					most = max(most, worth)
				}
			}
			var weight int
			var got float64
			for i, taken := range k.best(capacity) {
				if taken {
					weight, got = weight+k.weight[i], got+values[i]
				}
			}
			if weight > capacity || got != most {
				t.Errorf("%d items, capacity %d: %v in %d, and %v would do",
					len(acts), capacity, got, weight, most)
			}
		}
	}
}

func TestTheSettingBoundsSavedBytes(t *testing.T) {
	t.Parallel()
	p := plantest.UnevenLayers(3, 20).Problem()
	b := chain.New(p)
	s := saver{b: b, acts: activations(p, b, pairs(p)[0])}
	s.bag = fill(s.acts, ownTimes(p, b, s.acts), quanta)
	var total int64
	for i := range s.acts {
		total += s.acts[i].bytes
	}
	before := -1
	for k := range settings + 1 {
		drops := s.drops(k)
		saved := total
		for _, d := range drops {
			saved -= p.Rounded(d.Buffer)
		}
		// half a quantum may be lost at each activation
		rounding := float64(total) * float64(len(s.acts)) / quanta / 2
		if limit := float64(total)*float64(k)/settings + rounding; float64(saved) > limit {
			t.Errorf("setting %d saves %d of %d bytes", k, saved, total)
		}
		if before >= 0 && k == settings && len(drops) > 0 || k == 0 && len(drops) != len(s.acts) {
			t.Errorf("setting %d drops %d of %d", k, len(drops), len(s.acts))
		}
		before = len(drops)
	}
}

// TestModulesDiscardAsASolverWould compares the greedy choice with the linear program, solved.
func TestModulesDiscardAsASolverWould(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	for round := range 25 {
		n := 2 + r.IntN(5)
		var curves []piece
		total := make([]int64, n)
		for range n * 3 {
			k, bytes := r.IntN(n), 1+r.Int64N(20)
			curves = append(curves, piece{k, bytes, float64(1+r.IntN(30)) / 4})
			total[k] += bytes
		}
		s := modules{list: make([]module, n)}
		for _, c := range curves { // in the order that curves has
			x := &s.list[c.module]
			x.acts = append(x.acts, activation{bytes: c.bytes})
			x.times = append(x.times, c.rate*float64(c.bytes))
		}
		curves = s.curves()
		over := make([]int64, n+1)
		var sum int64
		for k := range n {
			if sum += total[k]; r.IntN(2) == 0 && sum > 0 {
				over[k+1] = r.Int64N(sum + 1)
			}
		}
		m := &milp.Model{}
		vars := make([]milp.Var, len(curves))
		for i, c := range curves {
			vars[i] = m.AddVar(c.rate, 0, float64(c.bytes), false)
		}
		for k := 1; k <= n; k++ {
			var terms []milp.Term
			for i, c := range curves {
				if c.module < k {
					terms = append(terms, milp.Term{Var: vars[i], Coef: 1})
				}
			}
			m.AddRow(float64(over[k]), math.Inf(1), terms...)
		}
		want, err := milp.Solve(t.Context(), m, milp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var cost float64
		bytes := discard(curves, over)
		for k, left := range bytes {
			for _, c := range curves { // the cheapest of the module first
				if c.module == k {
					take := min(c.bytes, left)
					cost += c.rate * float64(take)
					left -= take
				}
			}
			if left > 0 {
				t.Errorf("round %d: module %d discards %d bytes that it does not have", round, k, left)
			}
		}
		if math.Abs(cost-want.Objective) > 1e-6*max(1, want.Objective) {
			t.Errorf("round %d: %v costs %v, and %v would do", round, bytes, cost, want.Objective)
		}
	}
}

// TestPyTorchsPlannersMeetBudgets: within half of what a chain of equal layers makes, both fit, and neither
// runs less again than the optimum does.
func TestPyTorchsPlannersMeetBudgets(t *testing.T) {
	t.Parallel()
	l := plantest.EvenLayers(20)
	p := l.Problem()
	for _, m := range []plan.Manager{torchBudget{}, sac{}} {
		for _, slots := range []int64{12, 16, 20} {
			least, got := l.Least(slots<<20), again(t, m, l, p, slots<<20)
			if got == plantest.Never || got < least {
				t.Errorf("%s in %d slots: %d, at the least %d", m.Info().Name, slots, got, least)
			}
			t.Logf("%s in %d slots: %+.1f %%, the least is %+.1f %%",
				m.Info().Name, slots, percent(got, l), percent(least, l))
		}
	}
}
