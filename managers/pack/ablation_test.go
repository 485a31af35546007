package pack

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// tight is a small crowded problem with some equal items and one in an awkward place, so that many have no
// packing at their bound.
func tight(seed uint64) *Problem {
	r := rand.New(rand.NewPCG(seed, 4))
	p := &Problem{}
	for n := 14 + r.IntN(16); len(p.Items) < n; {
		start := r.Int64N(14)
		it := Item{Start: start, End: start + 1 + r.Int64N(5), Size: 2 + r.Int64N(6)}
		for range 1 + r.IntN(2) {
			p.Items = append(p.Items, it)
		}
	}
	p.Fixed = slices.Repeat([]int64{-1}, len(p.Items))
	p.Fixed[r.IntN(len(p.Items))] = 1 + r.Int64N(12)
	return p
}

// Each mechanism has a problem here on which it at least halves the work; the seeds were found by trying
// many.
func TestEveryMechanismSavesWork(t *testing.T) {
	problems := []*Problem{largerProblem(150, 37, 2)}
	for _, seed := range []uint64{188, 8790, 12296} {
		problems = append(problems, tight(seed))
	}
	work := func(p *Problem, k knobs) int64 {
		in := compile(p)
		_, used, _ := solveCore(t.Context(), newGraph(in), in.bound(), 1, 40000, k)
		return used
	}
	whole := make([]int64, len(problems))
	for k, p := range problems {
		whole[k] = work(p, allKnobs)
	}
	for name, off := range ablations() {
		if name == "" {
			continue
		}
		most := 0.0
		for k, p := range problems {
			most = max(most, float64(work(p, off))/float64(whole[k]))
		}
		if most < 2 {
			t.Errorf("without %s no problem takes twice the work (at most %.2f times): is it still used?",
				name, most)
		}
	}
}
