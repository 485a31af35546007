package joint

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// TestCopiesBackLieWhereGoingOneByOnePutsThem: blocks of positions only save time. The test spells out the
// definition, position by position.
func TestCopiesBackLieWhereGoingOneByOnePutsThem(t *testing.T) {
	t.Parallel()
	oneByOne := func(s *schedule) {
		earlier := func(g int32, f plan.OpID, last int64) plan.OpID {
			x := &s.m.gaps[g]
			mem := &s.memory
			for f > x.after+1 && s.queues.clock[f] > last && mem.load[f-1]+x.size <= mem.limit[f-1] &&
				(mem.rerunPeak[f-1] == 0 || mem.rerunPeak[f-1]+x.size <= mem.limit[f-1]) {
				f--
				s.memory.holdThroughout(x.size, f, f+1)
			}
			return f
		}
		next := s.queues.clock[s.m.n]
		for k := len(s.prefetches.order) - 1; k >= 0; k-- {
			g := s.prefetches.order[k]
			x := &s.m.gaps[g]
			at := s.queues.start[s.absences.due[g]]
			if s.chains.rerunTime[s.absences.due[g]] > 0 {
				at = s.queues.clock[s.absences.due[g]]
			}
			last := min(at, next) - x.prefetchTime - int64(s.setting.lead*float64(x.prefetchTime))
			s.absences.fetch[g] = earlier(g, s.absences.due[g], last)
			order, fetch := s.prefetches.order, s.absences.fetch
			for j := k + 1; j < len(order) && fetch[order[j]] < fetch[g]; j++ {
				late := s.prefetches.order[j]
				s.memory.holdThroughout(-s.m.gaps[late].size, s.absences.fetch[late], s.absences.fetch[g])
				s.absences.fetch[late] = s.absences.fetch[g]
			}
			s.absences.fetch[g] = earlier(g, s.absences.fetch[g], last)
			next = max(last, s.queues.clock[s.absences.fetch[g]])
		}
	}
	moved := 0
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
		s.run() // up to here the two do the same; it also leaves the copies in their order
		s.absent()
		s.chains.reruns, s.chains.ops = s.chains.reruns[:0], s.chains.ops[:0]
		s.chains.place()
		s.queues.nominal()
		load, spare := slices.Clone(s.memory.load), slices.Clone(s.memory.rerunPeak)
		fetch := slices.Clone(s.absences.fetch)
		s.prefetches.place()
		gotLoad, gotSpare := slices.Clone(s.memory.load), slices.Clone(s.memory.rerunPeak)
		got := slices.Clone(s.absences.fetch)
		for _, g := range s.prefetches.order {
			if got[g] < s.absences.due[g] {
				moved++
			}
		}
		copy(s.memory.load, load)
		copy(s.memory.rerunPeak, spare)
		copy(s.absences.fetch, fetch)
		oneByOne(s)
		if !slices.Equal(got, s.absences.fetch) || !slices.Equal(gotLoad, s.memory.load) ||
			!slices.Equal(gotSpare, s.memory.rerunPeak) {
			t.Errorf(
				"seed %d, %d ops, %d copies: they lie elsewhere than one by one",
				seed,
				m.n,
				len(s.prefetches.order),
			)
		}
	}
	if moved < 200 {
		t.Errorf("%d copies were issued early: the law was hardly tried", moved)
	}
}
