package joint

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// What is taken to have so many bytes absent costs what it costs when all values are sorted by their price
// for a byte, ties included.
func TestTheCheapestAreThoseThatSortingPutsFirst(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var b bounder
		var all float64
		for i := range 1 + r.IntN(60) {
			b.columns = append(b.columns, column{size: float64(1 + r.IntN(50))})
			b.rate = append(b.rate, float64(r.IntN(12)))
			b.order = append(b.order, int32(i))
			all += b.columns[i].size
		}
		cost := func(missing float64) (sum float64) {
			for _, i := range b.order {
				share := min(b.columns[i].size, missing)
				sum += share * b.rate[i]
				missing -= share
			}
			return sum
		}
		for _, missing := range []float64{1, all / 3, all / 2, all - 1, all} {
			r.Shuffle(len(b.order), func(i, j int) { b.order[i], b.order[j] = b.order[j], b.order[i] })
			b.cheapest(missing)
			got := cost(missing)
			slices.SortFunc(b.order, func(x, y int32) int { return cmp.Compare(b.rate[x], b.rate[y]) })
			if want := cost(missing); math.Abs(got-want) > 1e-9*want {
				t.Fatalf("seed %d: %g bytes cost %g, sorted %g", seed, missing, got, want)
			}
		}
	}
}
