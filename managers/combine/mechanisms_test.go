package combine

import (
	"context"
	"fmt"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

const mib = int64(1) << 20

// opTime is how long plantest's link takes for a mebibyte.
const opTime = int64(1e9) / 1024

// stepOf plans a problem for a budget and returns the simulated step time, having checked that the plan is
// valid and fits.
func stepOf(t *testing.T, m plan.Manager, p *plan.Problem, budget, work int64) int64 {
	t.Helper()
	pl, err := m.Plan(context.Background(), p, plan.Request{Budget: budget, Seed: 1, Work: work,
		Evaluator: evaluator})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	if pl.Footprint > budget {
		t.Fatalf("%s takes %d bytes of %d", pl.Manager, pl.Footprint, budget)
	}
	got, err := sim.Run(context.Background(), p, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return got.StepTime
}

// chainOf is a chain of 32 layers on a link that takes as many ops for one activation, and a budget at a
// share of the way from the floor to the peak.
func chainOf(ops float64, share float64) (*plan.Problem, int64) {
	p := plantest.Chain(32, mib, opTime)
	p.Hardware.D2H.BytesPerSecond /= ops
	p.Hardware.H2D.BytesPerSecond /= ops
	low := p.MustReside().Total()
	high, _ := p.PeakLive()
	return p, low + int64(share*float64(high-low))
}

// crossing is a problem in which one buffer comes back while a larger one leaves, on a link that halves its
// speed where both directions are busy: what the profile without swaps promises does not hold.
func crossing() (*plan.Problem, int64) {
	b := plantest.New()
	b.P.Hardware.Together = 0.5
	first, second := b.Buffer("first", mib, timeline.Activation),
		b.Buffer("second", 3*mib, timeline.Activation)
	op := func(reads []plan.BufferID, writes ...plan.BufferID) {
		// a copy of a mebibyte fits into an op
		b.Op(fmt.Sprintf("op%d", len(b.P.Ops)), traces.PhaseForward, opTime+100, reads, writes)
		b.P.Ops[len(b.P.Ops)-1].Rerunnable = false
	}
	large := func(size int64) {
		x := b.Buffer("large", size*mib, timeline.Temporary)
		op(nil, x)
		op([]plan.BufferID{x})
	}
	op(nil, first)
	op(nil)
	op(nil)
	large(6) // first must be away
	op(nil, second)
	op(nil)
	op(nil)
	op(nil)
	op([]plan.BufferID{first})
	large(4) // second must be away
	for range 6 {
		op(nil)
	}
	op([]plan.BufferID{second})
	return b.End(), 6 * mib
}

func TestFeedbackBringsLateCopiesForward(t *testing.T) {
	p, budget := crossing()
	with, without := stepOf(t, capuchin{}, p, budget, 0), stepOf(t, capuchin{noFeedback: true}, p, budget, 0)
	if with >= without {
		t.Errorf("%d ns with feedback, %d without", with, without)
	}
}

func TestCapuchinTakesTheCheaperOfBothWays(t *testing.T) {
	p, budget := chainOf(4, 0.4)
	both := stepOf(t, capuchin{}, p, budget, 0)
	if swaps := stepOf(t, capuchin{noRecompute: true}, p, budget, 0); both >= swaps {
		t.Errorf("%d ns, by swaps alone %d", both, swaps)
	}
	if recomputes := stepOf(t, capuchin{noSwap: true}, p, budget, 0); both >= recomputes {
		t.Errorf("%d ns, by recomputing alone %d", both, recomputes)
	}
}

func TestTheDirectorRecomputesWhereTheLinkIsSlow(t *testing.T) {
	p, budget := chainOf(10, 0.4)
	if with, without := stepOf(t, delta{}, p, budget, 0), stepOf(t, delta{noDirector: true}, p, budget, 0); with >= without {
		t.Errorf("%d ns with the director, %d without", with, without)
	}
}

func TestFetchingAheadHidesCopies(t *testing.T) {
	p, budget := chainOf(1, 0.4)
	if with, without := stepOf(t, delta{}, p, budget, 0), stepOf(t, delta{noPrefetch: true}, p, budget, 0); with >= without {
		t.Errorf("%d ns with fetching ahead, %d without", with, without)
	}
}

func TestTheFilterSparesWhatWasJustUsed(t *testing.T) {
	b := plantest.New()
	hot, cold := b.Buffer("hot", 3*mib, timeline.Activation), b.Buffer("cold", 2*mib, timeline.Activation)
	b.Op("begin", traces.PhaseForward, opTime, nil, []plan.BufferID{hot, cold})
	b.P.Ops[0].Rerunnable = false
	for k := range 8 {
		b.Op(fmt.Sprintf("use%d", k), traces.PhaseForward, opTime, []plan.BufferID{hot}, nil)
		x := b.Buffer(fmt.Sprintf("temporary%d", k), 2*mib, timeline.Temporary)
		b.Op(fmt.Sprintf("write%d", k), traces.PhaseForward, opTime, nil, []plan.BufferID{x})
		b.Op(fmt.Sprintf("read%d", k), traces.PhaseForward, opTime, []plan.BufferID{x}, nil)
	}
	b.Op("end", traces.PhaseBackward, opTime, []plan.BufferID{hot, cold}, nil)
	p := b.End()
	if with, without := stepOf(t, delta{}, p, 5*mib, 0), stepOf(t, delta{noStaleness: true}, p, 5*mib, 0); with >= without {
		t.Errorf("%d ns with staleness, %d without", with, without)
	}
}

func TestSeedsHelpTheSwarm(t *testing.T) {
	p, budget := chainOf(10, 0.2)
	if with, without := stepOf(t, home{}, p, budget, 60), stepOf(t, home{noSeeds: true}, p, budget, 60); with >= without {
		t.Errorf("%d ns with seeds, %d without", with, without)
	}
}

// modules is a training whose modules have four activations each, one of them small, with as many buffers
// that are idle only where memory is free.
func modules() (*plan.Problem, int64) {
	b := plantest.New()
	b.P.Hardware.D2H.BytesPerSecond /= 3
	b.P.Hardware.H2D.BytesPerSecond /= 3
	var acts []plan.BufferID
	x := b.Buffer("input", mib, timeline.Activation)
	b.Op("input", traces.PhaseForward, opTime, nil, []plan.BufferID{x})
	b.P.Ops[0].Rerunnable = false
	for k := range 12 {
		for j := range 4 {
			size := mib
			if j == 3 {
				size = mib / 64
			}
			y := b.Buffer(fmt.Sprintf("act%d.%d", k, j), size, timeline.Activation)
			b.Op(fmt.Sprintf("forward%d.%d", k, j), traces.PhaseForward, opTime, []plan.BufferID{x}, []plan.BufferID{y})
			b.P.Ops[len(b.P.Ops)-1].Module = fmt.Sprintf("module%d", k)
			acts = append(acts, y)
			x = y
		}
	}
	for k := len(acts) - 1; k >= 0; k-- {
		b.Op(fmt.Sprintf("backward%d", k), traces.PhaseBackward, 2*opTime, []plan.BufferID{acts[k]}, nil)
	}
	for k := range 20 { // after the peak
		y := b.Buffer(fmt.Sprintf("state%d", k), mib/2, timeline.Temporary)
		b.Op(fmt.Sprintf("make%d", k), traces.PhaseOptimizer, opTime, nil, []plan.BufferID{y})
		b.Op("rest", traces.PhaseOptimizer, opTime, nil, nil)
		b.Op(fmt.Sprintf("use%d", k), traces.PhaseOptimizer, opTime, []plan.BufferID{y}, nil)
	}
	p := b.End()
	high, _ := p.PeakLive()
	return p, high / 2
}

func TestASmallerSpaceHelpsTheSwarm(t *testing.T) {
	p, budget := modules()
	with, without := stepOf(t, home{noSeeds: true}, p, budget, 100), stepOf(t, home{noSeeds: true, noReduction: true}, p, budget, 100)
	if with >= without {
		t.Errorf("%d ns in the reduced space, %d in the whole", with, without)
	}
}
