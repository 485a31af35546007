package runs_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
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

// Without step times, no time can be given as a share of a step.
func TestTimesDifferOnlyWhereStepTimesAreKnown(t *testing.T) {
	for _, c := range []struct {
		duration maybe.Int
		differs  int
	}{{maybe.Int{}, 0}, {maybe.Known(40 * ms), 1}} {
		p := alike(4, runs.Peer{Duration: c.duration, Forward: maybe.Known(14 * ms)})
		p[2].Forward = maybe.Known(30 * ms)
		if r := runs.ComparePeers(p); len(r.Differences) != c.differs {
			t.Errorf("steps of %v: %+v", c.duration, r.Differences)
		}
	}
}

// alike are n processes whose known figures are equal.
func alike(n int, p runs.Peer) []runs.Peer {
	out := make([]runs.Peer, n)
	for i := range out {
		out[i] = p
	}
	return out
}

// A process differs if it is off by more than a tenth of the step or, in memory, by more than 3 % and 32 MiB.
func TestADifferenceIsMoreThanAShareOfWhatIsUsual(t *testing.T) {
	const mib = int64(1 << 20)
	figure := func(f runs.PeerFigure, p *runs.Peer) *maybe.Int {
		return [...]*maybe.Int{&p.Duration, &p.Forward, &p.Backward, &p.Optimizer, &p.Bytes}[f]
	}
	for _, c := range []struct {
		figure     runs.PeerFigure
		usual, off int64
	}{
		{runs.PeerDuration, 40 * ms, 4 * ms},
		{runs.PeerForward, 14 * ms, 4 * ms},
		{runs.PeerBackward, 21 * ms, 4 * ms},
		{runs.PeerOptimizer, 5 * ms, 4 * ms},
		{runs.PeerBytes, 1000 * mib, 32 * mib},
		{runs.PeerBytes, 10000 * mib, 300 * mib},
	} {
		for _, by := range []int64{c.off, -c.off, c.off + 1, -c.off - 1} {
			p := alike(4, runs.Peer{Duration: maybe.Known(40 * ms)})
			for i := range p {
				*figure(c.figure, &p[i]) = maybe.Known(c.usual)
			}
			*figure(c.figure, &p[2]) = maybe.Known(c.usual + by)
			r := runs.ComparePeers(p)
			if by == c.off || by == -c.off {
				if len(r.Differences) != 0 {
					t.Errorf("%v %+d of %d: %+v", c.figure, by, c.usual, r.Differences)
				}
				continue
			}
			if len(r.Differences) != 1 || r.Differences[0].Peer != 2 || r.Differences[0].Figure != c.figure ||
				r.Differences[0].Value != c.usual+by || r.Differences[0].Others != c.usual {
				t.Errorf("%v %+d of %d: %+v", c.figure, by, c.usual, r.Differences)
			}
		}
	}
}

// Where the others differ among themselves, a process must stand out from their spread as well: their median
// is 100 ms and their median deviation 20 ms, so 3.5 standard deviations are 104 ms.
func TestADifferenceIsMoreThanTheSpreadOfTheOthers(t *testing.T) {
	for at, differs := range map[int64]bool{203: false, 204: true} {
		var p []runs.Peer
		for _, d := range []int64{60, 80, 100, 120, 140, at} {
			p = append(p, runs.Peer{Duration: maybe.Known(d * ms)})
		}
		r := runs.ComparePeers(p)
		if got := len(r.Of(5)) == 1; got != differs || (r.Slow == 5) != differs {
			t.Errorf("%d ms: %+v", at, r)
		}
	}
}

func TestDifferencesAreListedByProcessWithTheLargestFirst(t *testing.T) {
	p := alike(6, runs.Peer{Duration: maybe.Known(40 * ms), Forward: maybe.Known(15 * ms),
		Backward: maybe.Known(20 * ms), Optimizer: maybe.Known(5 * ms), Bytes: maybe.Known(1 << 30)})
	p[1].Forward, p[1].Backward, p[1].Bytes = maybe.Known(21*ms), maybe.Known(10*ms), maybe.Known(2<<30)
	p[4].Optimizer, p[4].Forward = maybe.Known(15*ms), maybe.Known(21*ms)
	r := runs.ComparePeers(p)
	var got []string
	for peer := range p {
		for _, d := range r.Of(peer) {
			got = append(got, fmt.Sprint(peer, " ", d.Text(timeline.IEC)))
		}
	}
	want := []string{"1 memory +1.00 GiB", "1 backward -10.0 ms", "1 forward +6.00 ms",
		"4 optimizer +10.0 ms", "4 forward +6.00 ms"}
	if !slices.Equal(got, want) || len(r.Differences) != len(want) {
		t.Errorf("%q, not %q", got, want)
	}
	// both work alone for longer; the later one for longest
	if r.Slow != 4 || r.Own != 36*ms || r.OthersOwn != 20*ms {
		t.Errorf("slow: %+v", r)
	}
}

// The others wait if the slow one is done with backward sooner than they are by at least half of what it took
// longer before.
func TestTheOthersWaitForWhatTheSlowRankTookLonger(t *testing.T) {
	for sooner, waits := range map[int64]bool{5*ms - 1: false, 5 * ms: true, 10 * ms: true} {
		p := alike(3, runs.Peer{Duration: maybe.Known(50 * ms), Forward: maybe.Known(15 * ms),
			Backward: maybe.Known(30 * ms), Optimizer: maybe.Known(5 * ms)})
		p[0].Forward, p[0].Backward = maybe.Known(25*ms), maybe.Known(30*ms-sooner)
		if r := runs.ComparePeers(p); r.Slow != 0 || r.Waits != waits {
			t.Errorf("%d ns sooner: %+v", sooner, r)
		}
		p[0].Backward = maybe.Int{}
		if r := runs.ComparePeers(p); r.Slow != 0 || r.Waits {
			t.Errorf("backward unknown: %+v", r)
		}
	}
}

func TestATypicalStepIsTheMedianOfWhatIsKnown(t *testing.T) {
	last := alike(3, runs.Peer{Duration: maybe.Known(40 * ms), Bytes: maybe.Known(5)})
	last[0].Duration, last[1].Bytes = maybe.Known(900*ms), maybe.Int{}
	last[2].Forward = maybe.Known(7 * ms)
	want := runs.Peer{Duration: maybe.Known(40 * ms), Forward: maybe.Known(7 * ms), Bytes: maybe.Known(5)}
	if got := runs.TypicalPeer(last); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}
