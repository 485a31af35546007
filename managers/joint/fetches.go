package joint

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// fetches places the copies back, the last needed first, each as late as the copy engine permits where memory does.
func (s *schedule) fetches() {
	m := s.m
	s.ins = s.ins[:0]
	pulled := false
	for _, g := range m.byBefore {
		if s.eff[g] == swap {
			s.ins = append(s.ins, g)
			pulled = pulled || s.due[g] != m.gaps[g].before
		}
	}
	if pulled {
		slices.SortStableFunc(s.ins, func(a, b int32) int { return cmp.Compare(s.due[a], s.due[b]) })
	}
	s.open()
	next := s.clock[m.n]
	for k := len(s.ins) - 1; k >= 0; k-- {
		g := s.ins[k]
		x := &m.gaps[g]
		at := s.start[s.due[g]]
		if s.redo[s.due[g]] > 0 {
			at = s.clock[s.due[g]]
		}
		last := min(at, next) - x.in - int64(s.lead*float64(x.in))
		s.fetch[g] = s.earlier(g, s.due[g], last)
		for j := k + 1; j < len(s.ins) && s.fetch[s.ins[j]] < s.fetch[g]; j++ { // the queue is in order of issue: what is needed later goes later
			late := s.ins[j]
			s.addBlocks(-m.gaps[late].size, s.fetch[late], s.fetch[g])
			s.fetch[late] = s.fetch[g]
		}
		s.fetch[g] = s.earlier(g, s.fetch[g], last)
		next = max(last, s.clock[s.fetch[g]])
	}
	s.close()
}

// Copies back that are issued long before they are needed take memory over thousands of positions each, in iterations of a hundred thousand ops. While
// fetches works, positions are taken a block at a time: what is added to all of a block is written beside it, and what room it has at least says whether
// it need be looked into. The outcome is the same to the byte.
const blockShift = 4

// open begins work by blocks.
func (s *schedule) open() {
	blocks := s.m.n>>blockShift + 1
	s.room, s.added = slices.Grow(s.room[:0], blocks)[:blocks], slices.Grow(s.added[:0], blocks)[:blocks]
	clear(s.added)
	for b := range s.room {
		s.room[b] = math.MaxInt64
	}
	for i := range s.m.n {
		s.look(plan.OpID(i))
	}
}

// look lowers what a block is known to have room for at least to that of position i, what is written beside the block aside.
func (s *schedule) look(i plan.OpID) {
	b := i >> blockShift
	s.room[b] = min(s.room[b], s.limit[i]-s.load[i])
	if s.spare[i] > 0 {
		s.room[b] = min(s.room[b], s.limit[i]-s.spare[i])
	}
}

// close writes down what was added to whole blocks.
func (s *schedule) close() {
	for b, size := range s.added {
		if size != 0 {
			s.put(size, plan.OpID(b)<<blockShift, min(plan.OpID(b+1)<<blockShift, plan.OpID(s.m.n)))
		}
	}
}

// put adds to what positions hold.
func (s *schedule) put(size int64, from, to plan.OpID) {
	for i := from; i < to; i++ {
		s.load[i] += size
		if s.spare[i] > 0 {
			s.spare[i] += size
		}
	}
}

// earlier moves the fetch of gap g from position f towards the last moment at which its copy can begin, as far as memory allows.
func (s *schedule) earlier(g int32, f plan.OpID, last int64) plan.OpID {
	x := &s.m.gaps[g]
	for f > x.after+1 && s.clock[f] > last {
		b := (f - 1) >> blockShift
		if start := b << blockShift; f&(1<<blockShift-1) == 0 && start > x.after && s.clock[start+1] > last && s.room[b]-s.added[b] >= x.size {
			s.added[b] += x.size
			f = start
			continue
		}
		if load := s.load[f-1] + s.added[b]; load+x.size > s.limit[f-1] || s.spare[f-1] > 0 && s.spare[f-1]+s.added[b]+x.size > s.limit[f-1] {
			break
		}
		f--
		s.put(x.size, f, f+1)
		s.look(f)
	}
	return f
}

// addBlocks adds to what positions hold while work is by blocks.
func (s *schedule) addBlocks(size int64, from, to plan.OpID) {
	for i := from; i < to; {
		b := i >> blockShift
		end := min((b+1)<<blockShift, to)
		if i&(1<<blockShift-1) == 0 && end == (b+1)<<blockShift {
			s.added[b] += size
		} else {
			s.put(size, i, end)
			for k := i; k < end && size > 0; k++ {
				s.look(k)
			}
		}
		i = end
	}
}
