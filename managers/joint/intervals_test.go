package joint

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// relaxed returns the relaxation of a random problem on one stream, within the middle of what it can save.
func relaxed(t *testing.T, seed uint64) *intervals {
	t.Helper()
	p := serial(seed, 1)
	p.Hardware.NoEngines = false
	m := compile(p, defaults())
	s := newIntervals(newBounder(m), (m.floor+m.peak)/2)
	if s == nil {
		t.Fatalf("seed %d: the relaxation does not apply", seed)
	}
	return s
}

// TestAllOpsDivideAtAllInstants: with every op looked at, each instant begins a phase of its own, and reruns
// happen between two ops.
func TestAllOpsDivideAtAllInstants(t *testing.T) {
	const n = 7
	p := newPhases([]plan.OpID{6, 0, 3, 2, 1, 5, 4}, make([]float64, n))
	for i := range int32(2 * n) {
		if p.instants[i] != i || p.holder[i] != i || p.from(i) != i || p.between[i] != (i%2 == 1) {
			t.Errorf("instant %d: %+v", i, p)
		}
	}
}

// decide settles some spans at random.
func (s *intervals) decide(r *rand.Rand) {
	for k := range s.spans {
		x := &s.spans[k]
		x.decided = decision{until: len(x.makings), since: -1}
		switch n := len(x.makings); {
		case n > 0 && r.IntN(3) == 0:
			x.decided.until = r.IntN(n)
		case n > 0 && r.IntN(2) == 0:
			x.decided.since = r.IntN(n)
		}
	}
	s.share()
}

// TestMoreInstantsNeverLowerTheValue: at the same rates, adding the memory of more ops never lowers the
// program's value, in any branch.
func TestMoreInstantsNeverLowerTheValue(t *testing.T) {
	swapped, remade := 0, 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := relaxed(t, seed)
		var looked []plan.OpID
		for _, j := range r.Perm(s.m.n) {
			looked = append(looked, plan.OpID(j))
			s.look(newPhases(looked, s.fixed))
			s.decide(r)
			s.pair()
			for t := range s.instants {
				s.rates.memory[t] = defaults().proof.dearest * max(0, r.Float64()-0.8)
				s.rates.out[t], s.rates.in[t] = r.Float64()/2, r.Float64()/2
			}
			few := s.value()
			s.look(newPhases(append(slices.Clone(looked), plan.OpID(r.IntN(s.m.n))), s.fixed))
			s.pair()
			more := s.value()
			if more < few-1e-6 {
				t.Errorf("seed %d: %d ops are worth %f, with one more they are worth %f", seed, len(looked),
					few, more)
			}
			for t, dur := range s.ops {
				if s.slope.in[t] > -dur {
					swapped++
				}
				if s.slope.in[t] < -dur {
					remade++
				}
			}
		}
	}
	if swapped < 1000 || remade < 1000 {
		t.Errorf("%d phases with copies, %d with reruns: the law was hardly tried", swapped, remade)
	}
}

// TestSharesOfARunComeToItsTimeAtMost: however a branch has decided, the spans together pay for one op that
// runs at a position at most its time.
func TestSharesOfARunComeToItsTimeAtMost(t *testing.T) {
	whole, shared := 0, 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := relaxed(t, seed)
		s.decide(r)
		const time = 1000
		clear(s.bounder.dur)
		for o := range s.m.n {
			s.bounder.dur[o] = time
			s.share()
			for position := range plan.OpID(s.m.n) {
				paid, payers := 0.0, 0
				for k := range s.spans {
					from := s.spans[k].from
					for _, y := range s.spans[k].open() {
						if from <= position && position <= y.until && y.time > 0 {
							paid, payers = paid+y.time, payers+1
						}
						from = y.until + 1
					}
				}
				if paid > time*(1+1e-9) {
					t.Errorf("seed %d: for op %d at position %d spans pay %f of %d", seed, o, position,
						paid, time)
				}
				if paid > time*0.99 {
					whole++
				}
				if payers > 1 {
					shared++
				}
			}
			s.bounder.dur[o] = 0
		}
	}
	if whole < 500 || shared < 500 {
		t.Errorf("%d runs paid in full, %d by several: the law was hardly tried", whole, shared)
	}
}

// TestLargeValuesPayForTheRunThatMakesThemAgain: a long chain makes eight small values and a large one. The
// large one is in the way, and must not be recomputed for a ninth of the chain's time.
func TestLargeValuesPayForTheRunThatMakesThemAgain(t *testing.T) {
	const mib, ms = 1 << 20, 1_000_000
	b := plantest.New()
	one := func(name string, size int64) []plan.BufferID {
		return []plan.BufferID{b.Buffer(name, size*mib, timeline.Activation)}
	}
	input := one("input", 1)
	b.P.Ops[b.Op("input", traces.PhaseForward, 0, nil, input)].Rerunnable = false
	last := input
	for range 6 {
		next := one("scratch", 1)
		b.Op("layer", traces.PhaseForward, 5*ms, last, next)
		last = next
	}
	values := one("large", 16)
	for range 8 {
		values = append(values, one("small", 1)...)
	}
	b.Op("split", traces.PhaseForward, 5*ms, last, values)
	wide := one("wide", 24)
	b.Op("widen", traces.PhaseForward, ms, nil, wide)
	b.Op("narrow", traces.PhaseForward, ms, wide, nil)
	b.Op("end", traces.PhaseBackward, ms, append(input, values...), nil)
	bounds := newBounder(compile(b.End(), defaults()))
	// 15 MiB of 24 must be absent, for at least that share of 35 ms or as long as their copies take
	got := float64(bounds.prove(34*mib, 200, 100*ms, 1_000_000)-bounds.base) / ms
	if got < 20 || got > 30 {
		t.Errorf("the bound allows for %.1f ms", got)
	}
}
