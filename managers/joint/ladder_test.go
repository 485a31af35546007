package joint

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// The result of a rung must not depend on the rungs looked at before, or plans would depend on more than the
// budget.
func TestARungComesToTheSameWhateverWasLookedAtBefore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		p := plantest.Random(seed, 10+int(seed*5))
		r := plan.Request{Work: 300_000, Seed: 7, Evaluator: sim.Simulator{}}
		f, err := newFinder(context.Background(), p, r, mechanisms{}, defaults())
		if err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(seed, 1))
		for range 4 {
			at := rnd.IntN(f.grid.top)
			x, err := f.ladder.rung(at)
			if err != nil {
				t.Fatal(err)
			}
			g, err := newFinder(context.Background(), p, r, mechanisms{}, defaults())
			if err != nil {
				t.Fatal(err)
			}
			y, err := g.ladder.rung(at)
			if err != nil {
				t.Fatal(err)
			}
			if x.time() != y.time() {
				t.Errorf("seed %d rung %d: %d ns, and %d ns by itself", seed, at, x.time(), y.time())
			}
		}
	}
}
