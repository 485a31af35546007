package chain_test

import (
	"math/rand/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// tangled returns a random problem in which few buffers are written over and over, whole and in place, by ops
// of several outputs: what plantest.Random, whose buffers are written once, has none of.
func tangled(seed uint64, n int) *plan.Problem {
	r := rand.New(rand.NewPCG(seed, 1234))
	b := plantest.New()
	var weights, bufs []plan.BufferID
	for range 1 + r.IntN(3) {
		weights = append(weights, b.Persistent("weight", 8, timeline.Parameter))
	}
	written := map[plan.BufferID]bool{}
	for i := range n {
		var reads, writes []plan.BufferID
		taken := map[plan.BufferID]bool{}
		if r.IntN(3) == 0 {
			reads = append(reads, weights[r.IntN(len(weights))])
		}
		for range r.IntN(3) {
			if x := pick(r, bufs); x != plan.NoBuffer && written[x] && !taken[x] {
				taken[x] = true
				reads = append(reads, x)
			}
		}
		for range 1 + r.IntN(2) {
			x := pick(r, bufs)
			if x == plan.NoBuffer || r.IntN(3) == 0 {
				x = b.Buffer("t", int64(1+r.IntN(64)), timeline.Activation)
				bufs = append(bufs, x)
			}
			if !taken[x] {
				taken[x], written[x] = true, true
				writes = append(writes, x)
			}
		}
		phase := traces.PhaseForward
		if i >= n/2 {
			phase = traces.PhaseBackward
		}
		id := b.Op("op", phase, int64(1+r.IntN(9)), reads, writes)
		b.P.Ops[id].Rerunnable = r.IntN(8) > 0
		switch x := pick(r, bufs); {
		case r.IntN(12) == 0:
			b.Mutate(weights[r.IntN(len(weights))])
		case r.IntN(3) == 0 && x != plan.NoBuffer && written[x] && !taken[x]:
			b.Mutate(x)
		}
		if len(bufs) > 8 {
			bufs = bufs[1:]
		}
	}
	return b.End()
}

func pick(r *rand.Rand, from []plan.BufferID) plan.BufferID {
	if len(from) == 0 {
		return plan.NoBuffer
	}
	return from[r.IntN(len(from))]
}

// problems are the random problems that the laws are tried on.
func problems(seed uint64, n int) *plan.Problem {
	if seed%2 == 0 {
		return tangled(seed, n)
	}
	return plantest.Random(seed, n)
}
