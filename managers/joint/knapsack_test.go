package joint

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Making bytes absent costs the same as when all values are sorted by price per byte, ties included.
func TestTheCheapestAreThoseThatSortingPutsFirst(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var lp program
		var all float64
		for i := range 1 + r.IntN(60) {
			lp.columns = append(lp.columns, column{size: float64(1 + r.IntN(50))})
			lp.rate = append(lp.rate, float64(r.IntN(12)))
			lp.order = append(lp.order, int32(i))
			all += lp.columns[i].size
		}
		cost := func(missing float64) (sum float64) {
			for _, i := range lp.order {
				share := min(lp.columns[i].size, missing)
				sum += share * lp.rate[i]
				missing -= share
			}
			return sum
		}
		for _, missing := range []float64{1, all / 3, all / 2, all - 1, all} {
			r.Shuffle(len(lp.order), func(i, j int) { lp.order[i], lp.order[j] = lp.order[j], lp.order[i] })
			lp.cheapest(missing)
			got := cost(missing)
			slices.SortFunc(lp.order, func(x, y int32) int { return cmp.Compare(lp.rate[x], lp.rate[y]) })
			if want := cost(missing); math.Abs(got-want) > 1e-9*want {
				t.Fatalf("seed %d: %g bytes cost %g, sorted %g", seed, missing, got, want)
			}
		}
	}
}
