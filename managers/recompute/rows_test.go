package recompute

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// TestRowsAreTheLeastOfAllWays: the rows of the dynamic programs are what their rules say one by one.
func TestRowsAreTheLeastOfAllWays(t *testing.T) {
	checked, rerun := 0, 0
	for _, p := range []*plan.Problem{plantest.EvenLayers(9).Problem(), plantest.UnevenLayers(1, 9).Problem(),
		plantest.UnevenLayers(2, 9).Problem(), training(3, 10)} {
		b := chain.New(p)
		c := newChains(p, b, 100_000)
		for _, s := range c.passes {
			g := newOffloadProgram(p, b, s, part(p, 50), c.work)
			if err := g.solve(t.Context()); err != nil {
				t.Fatal(err)
			}
			for from := range g.n {
				for to := from; to < g.n; to++ {
					for m, got := range g.at(from, to) {
						want := int64(never)
						g.ways(from, to, func(w way) {
							if w.need <= m {
								want = min(want, g.cost(w, from, to, m))
							}
						})
						if got != want {
							t.Fatalf("%d to %d with %d units: %d, not %d", from, to, m, got, want)
						}
						if checked++; 0 < got && got < never {
							rerun++
						}
					}
				}
				moves := g.moves(from)
				for _, away := range []bool{false, true} {
					for b := range g.most + 1 {
						for m, got := range g.least[g.state(from, away, b)] {
							want := int64(never)
							if b > 0 {
								want = min(want, g.least[g.state(from, away, b-1)][m]+g.tick)
							}
							for i := range moves {
								want = min(want, g.takes(from, away, b, m, &moves[i]))
							}
							if got != want {
								t.Fatalf("stage %d, %v, %d steps, %d units: %d, not %d", from, away, b, m,
									got, want)
							}
							if checked++; 0 < got && got < never {
								rerun++
							}
						}
					}
				}
			}
		}
	}
	if t.Logf("%d entries, %d of them above zero", checked, rerun); rerun < 10_000 {
		t.Error("hardly any entry was checked")
	}
}
