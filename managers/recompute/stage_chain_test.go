package recompute

import (
	"math/rand/v2"
	"testing"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// TestTheMostBytesOfAStageAreThoseOfItsFullestOp compares what one pass over a stage computes with the sum of
// what is held at each op.
func TestTheMostBytesOfAStageAreThoseOfItsFullestOp(t *testing.T) {
	held, stages := 0, 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := plantest.Random(seed, 20+int(seed))
		if seed%3 == 0 {
			p = plantest.UnevenLayers(seed, 12).Problem()
		}
		for _, c := range newChains(p, chain.New(p), rotorWork).passes {
			for i := range c.stages {
				s := &c.stages[i]
				var kept []int32
				for _, k := range s.inner {
					if r.IntN(2) == 0 {
						kept = append(kept, k)
					}
				}
				input, size := c.input(i)
				forward := int64(0)
				for x := s.from; x < s.to; x++ {
					sum := c.during[x] - size
					for _, list := range [][]int32{input, kept} {
						for _, k := range list {
							if c.acts[k].After < x {
								sum += c.acts[k].bytes
							}
						}
					}
					forward = max(forward, sum)
				}
				if got := c.forward(i, kept); got != forward {
					t.Errorf("seed %d, stage %d: %d bytes while it runs first, and %d are said", seed, i,
						forward, got)
				}
				backward := -size
				from, to := c.backwardPass(i)
				for x := from; x < to; x++ {
					backward = max(backward, c.during[x]+c.heldAt(x, input, kept)-size)
				}
				if got := c.backward(i, kept); got != backward {
					t.Errorf("seed %d, stage %d: %d bytes in its backward pass, and %d are said", seed, i,
						backward, got)
				}
				stages++
				held += len(kept) + len(input)
			}
		}
	}
	if stages < 200 || held < 400 {
		t.Errorf("%d stages, %d activations held: the rule was hardly tried", stages, held)
	}
}
