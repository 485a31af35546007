package sim_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

func random(t *testing.T, seed uint64, share float64) (*plan.Problem, *plan.Plan) {
	t.Helper()
	return sized(t, seed, 10+int(seed%60), share)
}

// sized is random for n ops.
func sized(t *testing.T, seed uint64, n int, share float64) (*plan.Problem, *plan.Plan) {
	t.Helper()
	p := plantest.Random(seed, n)
	pl, err := plan.Assemble(p, plantest.RandomDecisions(p, seed, share))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(context.Background(), p, pl, place.Options{Rule: place.BestFit}); err != nil {
		t.Fatal(err)
	}
	return p, pl
}

func TestSimulatedPeakEqualsPlannedPeak(t *testing.T) {
	for seed := range uint64(3200) {
		n, share := 10+int(seed%60), 0.7
		if seed >= 200 { // in a plan this small one block alone may fill the arena
			n, share = 3+int(seed%8), 1
		}
		p, pl := sized(t, seed, n, share)
		m, err := sim.Run(context.Background(), p, pl, sim.Options{Usage: true})
		if err != nil {
			t.Fatal(err)
		}
		live, _ := pl.PeakLive()
		if m.Footprint != pl.Footprint || m.PeakLive != live {
			t.Errorf("seed %d: simulated %d and %d bytes, planned %d and %d", seed, m.Footprint, m.PeakLive,
				pl.Footprint, live)
		}
		for _, u := range m.Usage {
			if u.Bytes < 0 || u.Bytes > pl.Footprint || u.Time > m.Makespan {
				t.Fatalf("seed %d: %d bytes in use at %d ns of %d in an arena of %d", seed, u.Bytes, u.Time,
					m.Makespan, pl.Footprint)
			}
		}
	}
}

// TestTheSimulatorDoesNotTakeThePlansWord: footprint and peak come from the steps carried out, whatever the
// plan claims.
func TestTheSimulatorDoesNotTakeThePlansWord(t *testing.T) {
	for seed := range uint64(60) {
		p, pl := random(t, seed, 0.7)
		var top, peak int64
		for _, x := range pl.Instances {
			if x.Size > 0 {
				top = max(top, x.Offset+x.Size)
			}
		}
		for s := -1; s < len(pl.Steps); s++ { // moment by moment, from lifetimes instead of changes
			var live int64
			for _, x := range pl.Instances {
				if int(x.From) <= s && s < int(x.To) {
					live += x.Size
				}
			}
			peak = max(peak, live)
		}
		said := *pl
		said.Footprint = 1
		m, err := sim.Run(context.Background(), p, &said, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Footprint != top || m.PeakLive != peak {
			t.Errorf("seed %d: simulated %d and %d bytes, instances reach %d and are %d at once", seed,
				m.Footprint, m.PeakLive, top, peak)
		}
	}
}

// TestUsageOfUntouchedBuffersReachesThePeak is for recordings without accesses: every buffer counts while it
// lives.
func TestUsageOfUntouchedBuffersReachesThePeak(t *testing.T) {
	p := *plantest.Chain(5, 1<<20, 1000)
	p.Ops = append([]plan.Op(nil), p.Ops...)
	for i := range p.Ops {
		p.Ops[i].First, p.Ops[i].End = 0, 0
	}
	p.Accesses = nil
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	pl, err := plan.Assemble(&p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(context.Background(), &p, pl, place.Options{}); err != nil {
		t.Fatal(err)
	}
	m, err := sim.Run(context.Background(), &p, pl, sim.Options{Usage: true})
	if err != nil {
		t.Fatal(err)
	}
	var peak int64
	for _, u := range m.Usage {
		peak = max(peak, u.Bytes)
	}
	if peak != m.PeakLive {
		t.Errorf("usage peaks at %d bytes, %d are alive", peak, m.PeakLive)
	}
}

func TestEventsAndThePassAgreeWhereNothingIsShared(t *testing.T) {
	for seed := range uint64(200) {
		p, pl := random(t, seed, 0.8)
		q := *p
		q.Hardware.Together = 1
		alone, err := sim.Run(context.Background(), &q, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		q.Hardware.Together = 0 // nobody measured it
		unknown, err := sim.Run(context.Background(), &q, pl, sim.Options{})
		if err != nil || unknown.StepTime != alone.StepTime {
			t.Errorf("seed %d: step time %d, not %d: %v", seed, unknown.StepTime, alone.StepTime, err)
		}
		q.Hardware.Together = 1 - 1e-15
		shared, err := sim.Run(context.Background(), &q, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := alone.StepTime - shared.StepTime; d < -2 || d > 2 {
			t.Errorf("seed %d: step time %d by the pass and %d by events", seed, alone.StepTime,
				shared.StepTime)
		}
		if d := alone.Stall - shared.Stall; d < -50 || d > 50 {
			t.Errorf("seed %d: stalls %d by the pass and %d by events", seed, alone.Stall, shared.Stall)
		}
	}
}

func TestEachQueueDoesOneThingAtATimeAndWaitsAreKept(t *testing.T) {
	for seed := range uint64(100) {
		p, pl := random(t, seed, 0.8)
		m, err := sim.Run(context.Background(), p, pl, sim.Options{Spans: true})
		if err != nil {
			t.Fatal(err)
		}
		end := make([]int64, p.Queues())
		done := map[int32]int64{}
		for _, s := range m.Spans {
			if !s.Stall {
				done[s.Step] = s.End
			}
		}
		behind := make([]int64, p.Queues())
		begin := map[int32]int64{}
		for _, s := range m.Spans {
			if s.Stall {
				continue
			}
			if s.Start < end[s.Queue] {
				t.Fatalf("seed %d: step %d begins at %d on queue %d, which is busy until %d", seed, s.Step,
					s.Start, s.Queue, end[s.Queue])
			}
			end[s.Queue], begin[s.Step] = s.End, s.Start
		}
		for i, s := range pl.Steps {
			switch s.Kind {
			case plan.Wait:
				behind[s.Queue] = max(behind[s.Queue], done[s.On])
			case plan.Alloc, plan.Free:
			default:
				if begin[int32(i)] < behind[s.Queue] {
					t.Fatalf("seed %d: step %d begins at %d and has to wait until %d", seed, i,
						begin[int32(i)], behind[s.Queue])
				}
			}
		}
	}
}

func TestASwapThatDoesNotFitItsGapStallsByTheDifference(t *testing.T) {
	p := plantest.Chain(4, 1<<20, 1_000_000) // copies of 1 MiB take 976,563 ns, ops 1 ms, backward ops 2 ms
	for _, c := range []struct {
		bytesPerSecond float64
		stall          bool
	}{{1 << 30, false}, {1 << 27, true}} {
		q := *p
		q.Hardware.D2H.BytesPerSecond, q.Hardware.H2D.BytesPerSecond = c.bytesPerSecond, c.bytesPerSecond
		// act0 leaves after forward0 (op 1) and returns for backward0 (op 9); its memory is gone from op 3 to
		// op 8.
		pl, err := plan.Assemble(&q, plan.Decisions{Absences: []plan.Absence{{Buffer: 0, After: 1, Release: 3,
			Fetch: 8, Before: 9}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := place.Place(context.Background(), &q, pl, place.Options{}); err != nil {
			t.Fatal(err)
		}
		m, err := sim.Run(context.Background(), &q, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if (m.Stall > 0) != c.stall || m.SwappedOut != 1<<20 || m.SwappedIn != 1<<20 {
			t.Errorf("at %.0f B/s: stall %d ns, %d bytes out, %d in", c.bytesPerSecond, m.Stall, m.SwappedOut,
				m.SwappedIn)
		}
		want := int64(6*1_000_000 + 4*2_000_000)
		if !c.stall && m.StepTime != want || c.stall && m.StepTime != want+m.Stall {
			t.Errorf("at %.0f B/s: step time %d, ops alone %d, stall %d", c.bytesPerSecond, m.StepTime, want,
				m.Stall)
		}
	}
}

// TestTwoIterationsPlannedAsOneAreMeasuredAsOne: a plan may span several iterations, and its figures are for
// one.
func TestTwoIterationsPlannedAsOneAreMeasuredAsOne(t *testing.T) {
	figures := func(m plan.Measurement) [7]int64 {
		return [7]int64{m.StepTime, m.StepP95, m.Stall, m.RecomputeTime, m.SwappedOut, m.SwappedIn,
			m.CopyTime}
	}
	var sum [7]int64
	for seed := range uint64(60) {
		p, pl := random(t, seed, 0.8)
		if seed%4 == 0 {
			p, pl = serial(t, seed) // only without engines does a step spend time on copies
		}
		whole, err := sim.Run(t.Context(), p, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		two := *p
		two.Iterations = 2
		half, err := sim.Run(t.Context(), &two, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range figures(whole) {
			sum[k] += v
			if got := figures(half)[k]; got != v/2 {
				t.Errorf("seed %d: figure %d is %d for one iteration, but %d if that is planned as two",
					seed, k, v, got)
			}
		}
	}
	for k, v := range sum {
		if v == 0 {
			t.Errorf("figure %d is 0 in every example: the law was hardly tested", k)
		}
	}
}

// If nobody uses addresses, a plan takes what is alive at its peak, without holes.
func TestAPlanWithoutAddressesTakesWhatIsAlive(t *testing.T) {
	holes := 0
	for seed := range uint64(60) {
		p := plantest.Random(seed, 8+int(seed%90))
		d := plantest.RandomDecisions(p, seed, 0.5)
		var takes [2]int64
		for i, scattered := range []bool{false, true} {
			p.Scattered = scattered
			pl, err := plan.Assemble(p, d)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			pl.Manager = "random"
			res, err := place.Place(context.Background(), p, pl,
				place.Options{Rule: place.Rule(seed % 5), Work: 1})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := plan.Validate(p, pl); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			m, err := sim.Run(context.Background(), p, pl, sim.Options{})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			live, _ := pl.PeakLive()
			takes[i] = res.Footprint
			if m.Footprint != res.Footprint || m.Footprint != pl.Footprint ||
				scattered && m.Footprint != live {
				t.Errorf("seed %d, scattered %v: measured %d, placed %d, planned %d, alive %d", seed,
					scattered, m.Footprint, res.Footprint, pl.Footprint, live)
			}
		}
		if takes[0] > takes[1] {
			holes++
		}
	}
	if holes == 0 {
		t.Error("no plan has a hole between its addresses: the law was not tried")
	}
}
