package curve_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan/curve"
)

func TestATreeAnswersAsAPlainArrayDoes(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		plain := make([]int64, 1+r.IntN(70))
		for i := range plain {
			plain[i] = r.Int64N(2000) - 1000
		}
		tree := curve.NewAreas(make([]int64, len(plain)))
		light := curve.New(plain)
		tree.Add(0, len(plain), 7)
		tree.Reset(plain)
		for range 300 {
			lo := r.IntN(len(plain) + 1)
			hi := lo + r.IntN(len(plain)-lo+1)
			if r.IntN(2) == 0 {
				v := r.Int64N(600) - 300
				tree.Add(lo, hi, v)
				light.Add(lo, hi, v)
				for i := lo; i < hi; i++ {
					plain[i] += v
				}
			}
			most := int64(0)
			if lo < hi {
				most = slices.Max(plain[lo:hi])
			}
			limit := r.Int64N(2000) - 1000
			first, last, area := -1, -1, 0.0
			for i := lo; i < hi; i++ {
				if plain[i] > limit {
					if first < 0 {
						first = i
					}
					last = i
					area += float64(plain[i] - limit)
				}
			}
			beyond := hi + r.IntN(3)*(hi/len(plain)) // past the end is the end
			if got := tree.Above(lo, beyond, limit); got != area || light.First(lo, beyond, limit) != first ||
				light.Last(lo, beyond, limit) != last || light.Peak() != tree.Peak() {
				t.Fatalf("seed %d, ops [%d, %d) of %v: %g above %d, not %g; without areas "+
					"first %d, last %d, peak %d", seed, lo, beyond, plain, got, limit, area,
					light.First(lo, beyond, limit), light.Last(lo, beyond, limit), light.Peak())
			}
			if tree.Max(lo, hi) != most || tree.Peak() != slices.Max(plain) ||
				tree.First(lo, hi, limit) != first || tree.Last(lo, hi, limit) != last {
				t.Fatalf("seed %d, ops [%d, %d) of %v: most %d, peak %d, first %d and last %d above %d", seed,
					lo, hi, plain,
					tree.Max(lo, hi), tree.Peak(), tree.First(lo, hi, limit), tree.Last(lo, hi, limit), limit)
			}
		}
	}
}

func BenchmarkAddAndMax(b *testing.B) {
	const ops = 100_000
	tree, r := curve.New(make([]int64, ops)), rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		lo := r.IntN(ops)
		tree.Add(lo, ops, 1)
		tree.Max(0, lo)
	}
}
