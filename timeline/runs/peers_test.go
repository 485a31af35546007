package runs_test

import (
	"math/rand/v2"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

const ms = int64(1e6)

// inStep are n ranks of 40 ms a step, each with its own noise of at most 1 ms.
func inStep(n int) []runs.Peer {
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	var out []runs.Peer
	for range n {
		noise := rng.Int64N(ms)
		out = append(out, runs.Peer{Duration: maybe.Known(40 * ms), Forward: maybe.Known(14*ms + noise),
			Backward: maybe.Known(21*ms - noise), Optimizer: maybe.Known(5 * ms),
			Bytes: maybe.Known(2<<30 + rng.Int64N(4<<20))})
	}
	return out
}

// later makes a figure larger.
func later(i *maybe.Int, by int64) { *i = maybe.Known(i.Or(0) + by) }

func TestRanksThatDoTheSameDoNotDiffer(t *testing.T) {
	for n := range 65 {
		if r := runs.ComparePeers(inStep(n)); len(r.Differences) > 0 || r.Slow >= 0 {
			t.Errorf("of %d ranks: %+v", n, r)
		}
	}
}

func TestTheSlowRankWorksLongestAndWaitsLeast(t *testing.T) {
	for n := 2; n <= 64; n++ {
		p := inStep(n)
		slow := n * 2 / 3
		later(&p[slow].Forward, 18*ms)
		for i := range p {
			later(&p[i].Duration, 18*ms)
			if i != slow {
				later(&p[i].Backward, 18*ms)
			}
		}
		r := runs.ComparePeers(p)
		if r.Slow != slow || !r.Waits || r.Own-r.OthersOwn < 17*ms {
			t.Fatalf("of %d ranks rank %d is slow, not %+v", n, slow, r)
		}
		of := r.Of(slow)
		if len(of) != 2 || of[0].Value-of[0].Others < 17*ms && of[1].Value-of[1].Others < 17*ms {
			t.Errorf("of %d ranks the slow one differs in %+v", n, of)
		}
		if n > 2 && len(r.Differences) != 2 {
			t.Errorf("of %d ranks others differ as well: %+v", n, r.Differences)
		}
	}
}

func TestARankThatHoldsMoreMemoryDiffersInMemory(t *testing.T) {
	p := inStep(8)
	p[5].Bytes = maybe.Known(3 << 30)
	r := runs.ComparePeers(p)
	if len(r.Differences) != 1 || r.Differences[0].Peer != 5 ||
		r.Differences[0].Figure != runs.PeerBytes || r.Slow != -1 {
		t.Errorf("%+v", r)
	}
}

func TestIfEveryRankDiffersNoneIsOdd(t *testing.T) {
	p := inStep(4) // stages of a pipeline
	for i := range p {
		p[i].Bytes = maybe.Known(int64(i+1) << 30)
	}
	if r := runs.ComparePeers(p); len(r.Differences) != 0 {
		t.Errorf("%+v", r.Differences)
	}
}

// Without phases nothing shows that the others wait: their own backward passes may simply take that long.
func TestWithoutPhasesNoRankIsReportedAsWaiting(t *testing.T) {
	p := inStep(4)
	for i := range p {
		p[i] = runs.Peer{Duration: p[i].Duration}
	}
	later(&p[2].Duration, 30*ms)
	if r := runs.ComparePeers(p); r.Slow != 2 || r.Own != 70*ms || r.OthersOwn != 40*ms || r.Waits {
		t.Errorf("%+v", r)
	}
	p[0].Backward, p[1].Backward = maybe.Known(20*ms), maybe.Known(20*ms)
	if r := runs.ComparePeers(p); r.Slow != 2 || r.Waits {
		t.Errorf("with the backward passes of two others: %+v", r)
	}
}

func TestAnUnknownFigureDiffersFromNothing(t *testing.T) {
	p := inStep(3)
	p[1] = runs.Peer{}
	if r := runs.ComparePeers(p); len(r.Differences) != 0 || r.Slow != -1 {
		t.Errorf("%+v", r)
	}
}
