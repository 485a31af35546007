package pack

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTheGraphListsWhoSharesASection(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for seed := range uint64(400) {
		p := smallProblem(r, 25)
		if seed%2 == 0 {
			p = nested(12, seed)
		}
		in := compile(p)
		g := newGraph(in)
		for i := range in.size {
			seen := map[int32]bool{int32(i): true}
			var want []int32
			a, b := in.stretches(int32(i))
			for _, s := range [2]span{a, b} {
				for t := s.lo; t < s.hi; t++ {
					for _, k := range g.member[g.memberAt[t]:g.memberAt[t+1]] {
						if !seen[k] {
							seen[k] = true
							want = append(want, k)
						}
					}
				}
			}
			if got := g.nbr[g.nbrAt[i]:g.nbrAt[i+1]]; !slices.Equal(got, want) {
				t.Fatalf("seed %d, item %d: neighbours %v, want %v", seed, i, got, want)
			}
		}
	}
}
