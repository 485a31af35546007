package runs

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// What is left without one value is what sorting the rest gives.
func TestFiguresWithoutOneAreThoseOfTheRest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		list := make(figures, 2+r.IntN(9))
		for i := range list {
			list[i] = r.Int64N(6) - 2 // with equal values
		}
		slices.Sort(list)
		for i, v := range list {
			rest := slices.Delete(slices.Clone([]int64(list)), i, i+1)
			if got, want := list.medianWithout(v), stats.Median(rest); got != want {
				t.Fatalf("the median of %v without %d is %d, not %d", list, v, got, want)
			}
			if got, want := list.spreadWithout(v), steps.Spread(rest); got != want {
				t.Fatalf("the spread of %v without %d is %v, not %v", list, v, got, want)
			}
		}
	}
}

// BenchmarkComparePeers is the comparison that each frame of a run of 1,024 ranks needs.
func BenchmarkComparePeers(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	about := func(v int64) maybe.Int { return maybe.Known(v + r.Int64N(1_000_000)) }
	peers := make([]Peer, 1024)
	for i := range peers {
		peers[i] = Peer{Duration: about(200e6), Forward: about(100e6), Backward: about(80e6),
			Optimizer: about(20e6), Bytes: about(40 << 30)}
	}
	for b.Loop() {
		ComparePeers(peers)
	}
}
