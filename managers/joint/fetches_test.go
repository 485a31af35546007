package joint

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// TestCopiesBackLieWhereGoingOneByOnePutsThem: blocks of positions are about time alone. The other way is written down here as it is defined.
func TestCopiesBackLieWhereGoingOneByOnePutsThem(t *testing.T) {
	t.Parallel()
	oneByOne := func(s *schedule) {
		earlier := func(g int32, f plan.OpID, last int64) plan.OpID {
			x := &s.m.gaps[g]
			for f > x.after+1 && s.clock[f] > last && s.load[f-1]+x.size <= s.limit[f-1] && (s.spare[f-1] == 0 || s.spare[f-1]+x.size <= s.limit[f-1]) {
				f--
				s.put(x.size, f, f+1)
			}
			return f
		}
		next := s.clock[s.m.n]
		for k := len(s.ins) - 1; k >= 0; k-- {
			g := s.ins[k]
			x := &s.m.gaps[g]
			at := s.start[s.due[g]]
			if s.redo[s.due[g]] > 0 {
				at = s.clock[s.due[g]]
			}
			last := min(at, next) - x.in - int64(s.lead*float64(x.in))
			s.fetch[g] = earlier(g, s.due[g], last)
			for j := k + 1; j < len(s.ins) && s.fetch[s.ins[j]] < s.fetch[g]; j++ {
				late := s.ins[j]
				s.put(-s.m.gaps[late].size, s.fetch[late], s.fetch[g])
				s.fetch[late] = s.fetch[g]
			}
			s.fetch[g] = earlier(g, s.fetch[g], last)
			next = max(last, s.clock[s.fetch[g]])
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
		for i := range s.limit {
			if r.IntN(50) == 0 { // steps, some of them deep
				limit = m.floor + r.Int64N(max(m.peak-m.floor, 1)*5/4+1)
			}
			s.limit[i] = limit
		}
		s.lead = float64(r.IntN(3)) / 2
		for g := range m.gaps {
			x := &m.gaps[g]
			switch k := r.IntN(3); {
			case k == 0 && x.canSwap:
				s.choice[g] = swap
			case k == 1 && x.canDrop:
				s.choice[g] = drop
			}
		}
		s.run() // up to here the two do the same; it also leaves the copies in their order
		s.absent()
		s.reruns, s.ops = s.reruns[:0], s.ops[:0]
		s.rerunAll()
		s.nominal()
		load, spare, fetch := slices.Clone(s.load), slices.Clone(s.spare), slices.Clone(s.fetch)
		s.fetches()
		gotLoad, gotSpare, got := slices.Clone(s.load), slices.Clone(s.spare), slices.Clone(s.fetch)
		for _, g := range s.ins {
			if got[g] < s.due[g] {
				moved++
			}
		}
		copy(s.load, load)
		copy(s.spare, spare)
		copy(s.fetch, fetch)
		oneByOne(s)
		if !slices.Equal(got, s.fetch) || !slices.Equal(gotLoad, s.load) || !slices.Equal(gotSpare, s.spare) {
			t.Errorf("seed %d, %d ops, %d copies: they lie elsewhere than one by one", seed, m.n, len(s.ins))
		}
	}
	if moved < 200 {
		t.Errorf("%d copies were issued early: the law was hardly tried", moved)
	}
}
