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

// TestCopiesBackLieWhereGoingOneByOnePutsThem: blocks of positions only save time. The test spells out the
// definition, position by position.
func TestCopiesBackLieWhereGoingOneByOnePutsThem(t *testing.T) {
	t.Parallel()
	oneByOne := func(s *schedule) []plan.OpID {
		earlier := func(y *copyBack, f plan.OpID, last int64) plan.OpID {
			size, mem := s.m.gaps[y.gap].size, &s.memory
			for f > y.from && s.queues.nominal.clock[f] > last && mem.load[f-1]+size <= mem.limit[f-1] &&
				(mem.rerunPeak[f-1] == 0 || mem.rerunPeak[f-1]+size <= mem.limit[f-1]) {
				f--
				s.memory.holdThroughout(size, f, f+1)
			}
			return f
		}
		copies := s.prefetches.copies
		fetch := make([]plan.OpID, len(copies))
		next := s.queues.nominal.clock[s.m.n]
		for k := len(copies) - 1; k >= 0; k-- {
			y := &copies[k]
			x := &s.m.gaps[y.gap]
			at := s.queues.nominal.start[y.due]
			if s.chains.rerunTime[y.due] > 0 {
				at = s.queues.nominal.clock[y.due]
			}
			last := min(at, next) - x.prefetchTime - int64(s.setting.lead*float64(x.prefetchTime))
			fetch[k] = earlier(y, y.due, last)
			for j := k + 1; j < len(copies) && fetch[j] < fetch[k]; j++ {
				s.memory.holdThroughout(-s.m.gaps[copies[j].gap].size, fetch[j], fetch[k])
				fetch[j] = fetch[k]
			}
			fetch[k] = earlier(y, fetch[k], last)
			next = max(last, s.queues.nominal.clock[fetch[k]])
		}
		return fetch
	}
	moved, loads := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := plantest.Random(seed, 40+int(seed)*20)
		if seed%2 == 0 {
			p = plantest.Chain(30+int(seed)*5, 1<<20, 30_000)
			p.Hardware.D2H, p.Hardware.H2D = plan.Link{BytesPerSecond: 2e9}, plan.Link{BytesPerSecond: 3e9}
		}
		m := compile(p, defaults())
		s := newSchedule(m)
		limit := m.floor + (m.peak-m.floor)*int64(2+seed%8)/8
		for i := range s.memory.limit {
			if r.IntN(50) == 0 { // steps, some of them deep
				limit = m.floor + r.Int64N(max(m.peak-m.floor, 1)*5/4+1)
			}
			s.memory.limit[i] = limit
		}
		s.setting.lead = float64(r.IntN(3)) / 2
		for g := range m.gaps {
			x := &m.gaps[g]
			switch k := r.IntN(3); {
			case k == 0 && x.canSwap:
				s.setting.choice[g] = swap
			case k == 1 && x.canRecompute:
				s.setting.choice[g] = recompute
			}
		}
		if seed%3 == 0 { // chains load what they can
			s.setting.timing = newTiming(m)
			for g := range m.gaps {
				s.setting.timing.source[g] = loaded
			}
		}
		s.run() // up to here the two do the same; it also leaves the copies in their order
		s.absent()
		s.chains.forget()
		s.chains.place()
		s.queues.nominal.run(&s.queues)
		load, spare := slices.Clone(s.memory.load), slices.Clone(s.memory.rerunPeak)
		s.prefetches.place()
		gotLoad, gotSpare := slices.Clone(s.memory.load), slices.Clone(s.memory.rerunPeak)
		var got []plan.OpID
		for k := range s.prefetches.copies {
			y := &s.prefetches.copies[k]
			at := s.absences.fetch[y.gap]
			if y.load >= 0 {
				at = s.chains.loads[y.load].fetch
				loads++
			}
			if got = append(got, at); at < y.due {
				moved++
			}
		}
		copy(s.memory.load, load)
		copy(s.memory.rerunPeak, spare)
		if want := oneByOne(s); !slices.Equal(got, want) || !slices.Equal(gotLoad, s.memory.load) ||
			!slices.Equal(gotSpare, s.memory.rerunPeak) {
			t.Errorf(
				"seed %d, %d ops, %d copies: they lie elsewhere than one by one",
				seed,
				m.n,
				len(s.prefetches.copies),
			)
		}
	}
	if moved < 200 || loads < 20 {
		t.Errorf("%d copies were issued early, %d for reruns alone: the law was hardly tried", moved, loads)
	}
}

// TestHasteGivesMemoryToTheCopiesThatAreNeededFirst: while op 4 runs there is memory for two of three values,
// and all are needed behind it. Backwards, in order of need, the last two take that memory, and give it back
// when the first cannot be there before them.
func TestHasteGivesMemoryToTheCopiesThatAreNeededFirst(t *testing.T) {
	b := plantest.New()
	var v []plan.BufferID
	for i := range 5 {
		v = append(v, b.Buffer("value", int64(1+i/3*3)<<20, timeline.Activation))
	}
	for i, reads := range [][]plan.BufferID{nil, nil, nil, nil, {v[3]}, {v[0]}, {v[1]}, {v[2]}} {
		var writes []plan.BufferID
		if i < 5 {
			writes = v[i : i+1]
		}
		duration := int64(5_000_000)
		if i > 4 {
			duration = 0
		}
		b.P.Ops[b.Op("op", traces.PhaseForward, duration, reads, writes)].Rerunnable = false
	}
	m := compile(b.End(), defaults())
	s := newSchedule(m)
	for i := range s.memory.limit {
		s.memory.limit[i] = 10 << 20
	}
	for g := range m.gaps {
		if m.gaps[g].canSwap && m.gaps[g].buffer < 3 {
			s.setting.choice[g] = swap
		}
	}
	var fetched [2][]plan.OpID
	var times [2]int64
	for k := range times {
		s.setting.hasten = k == 1
		s.run()
		for _, g := range s.prefetches.order {
			fetched[k] = append(fetched[k], s.absences.fetch[g])
		}
		if times[k] = s.queues.time; s.over > 0 {
			t.Errorf("%d bytes above the limit", s.over)
		}
	}
	if want := []plan.OpID{4, 4, 5}; !slices.Equal(fetched[1], want) || times[1] >= times[0] {
		t.Errorf("copies back at %v, in haste at %v, want %v; steps of %d ns", fetched[0], fetched[1], want,
			times)
	}
}
