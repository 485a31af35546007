package joint

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Where copies back are issued.
//
// Problem: a copy that comes too late is waited for, one that comes too early takes memory over everything until it is needed. The copy engine does one at a
// time, in the order of issue.
//
// Way chosen: the copies are gone through backwards, the last needed first, and each is issued at the latest moment at which the engine still finishes it in
// time, or as early as memory allows where that is later. In an iteration of a hundred thousand ops a copy passes thousands of positions on its way; so they are
// taken a block at a time: what is added to all of a block is written beside it (added), and the least room in it says whether it need be looked into (room). What is known
// of a block's room may be too little, never too much, so that the outcome is that of going one by one, to the byte. A copy that memory lets begin late pushes
// back all behind it in the queue; those then go together for good, and are moved as one (group).
//
// Complexity: O(copies x (length of a block + blocks passed)). Rejected: one by one, which took three quarters of the planning time for
// 100,000 buffers; pushing each copy of a queue back by itself, which is quadratic where memory is short, and took a sixth. Not tried: a segment tree over the room.

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
		s.out.sort(s.ins, func(g int32) plan.OpID { return s.due[g] })
		s.out.all(s.ins)
	}
	if m.inline { // a copy back takes the same time wherever it is made, and memory from there on
		return
	}
	s.openBlocks()
	s.groups = s.groups[:0]
	next := s.clock[m.n]
	for k := len(s.ins) - 1; k >= 0; k-- {
		g := s.ins[k]
		x := &m.gaps[g]
		at := s.start[s.due[g]]
		if s.redo[s.due[g]] > 0 {
			at = s.clock[s.due[g]]
		}
		last := min(at, next) - x.in - int64(s.lead*float64(x.in))
		f := s.earlier(g, s.due[g], last)
		late := group{at: f, to: k + 1}
		for n := len(s.groups) - 1; n >= 0 && s.groups[n].at < f; n-- { // the queue is in order of issue: what is needed later goes later
			y := s.groups[n]
			s.takeBack(y.size, y.at, f)
			late.to, late.size = y.to, late.size+y.size
			s.groups = s.groups[:n]
		}
		if late.to > k+1 {
			s.groups = append(s.groups, late)
		}
		f = s.earlier(g, f, last)
		s.groups = append(s.groups, group{at: f, to: k + 1, size: x.size})
		next = max(last, s.clock[f])
	}
	k := 0
	for n := len(s.groups) - 1; n >= 0; n-- {
		for y := &s.groups[n]; k < y.to; k++ {
			s.fetch[s.ins[k]] = y.at
		}
	}
	s.closeBlocks()
}

// group is a stretch of the queue of copies back, up to a place in it, that are issued at one position. Once together they stay together: what makes one of
// them go later makes all, so that a queue that is pushed back again and again is moved in whole groups.
type group struct {
	at   plan.OpID
	to   int
	size int64
}

// blockShift makes a block of 16 positions; 64 and 8 were slower.
const blockShift = 4

// openBlocks begins work by blocks.
func (s *schedule) openBlocks() {
	blocks := s.m.n>>blockShift + 1
	s.room, s.added = slices.Grow(s.room[:0], blocks)[:blocks], slices.Grow(s.added[:0], blocks)[:blocks]
	clear(s.added)
	for b := range s.room {
		s.room[b] = math.MaxInt64
	}
	for i := range s.m.n {
		s.noteRoom(plan.OpID(i))
	}
}

// noteRoom lowers what a block is known to have room for at least to that of position i, what is written beside the block aside.
func (s *schedule) noteRoom(i plan.OpID) {
	b := i >> blockShift
	s.room[b] = min(s.room[b], s.limit[i]-s.load[i])
	if s.spare[i] > 0 {
		s.room[b] = min(s.room[b], s.limit[i]-s.spare[i])
	}
}

// closeBlocks writes down what was added to whole blocks.
func (s *schedule) closeBlocks() {
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
		s.noteRoom(f)
	}
	return f
}

// takeBack takes size off what positions hold, for a copy that is issued later than it was. What is known of their room stays, and so is too little.
func (s *schedule) takeBack(size int64, from, to plan.OpID) {
	for i := from; i < to; {
		b := i >> blockShift
		end := min((b+1)<<blockShift, to)
		if end-i == 1<<blockShift {
			s.added[b] -= size
		} else {
			s.put(-size, i, end)
		}
		i = end
	}
}
