package combine

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// When copies run.
//
// Each direction of the link carries one copy at a time. A copy out may begin when the op after which its
// buffer leaves is done. A copy back must be done when the op before which the buffer returns begins. Two
// questions follow.
//
// Is there time for one more swap? Reservations use the time between consecutive positions of the iteration:
// a copy out takes what is still free from its op on, a copy back what is still free before its op, going
// backwards. That may cut a copy into several stretches, which a queue does not do, so the answer is an
// estimate. It is a cheap one: used-up stretches are skipped for good (union-find), and all reservations
// together cost about O(ops + copies). A copy that turns out not to fit is not reserved, and costs only the
// look at the stretches that it would have used.
//
// At which positions do copies begin and end once the swaps are chosen? The timetable answers for queues as
// they are: copies out one after another in order of readiness, copies back one after another by when they
// are due, computed backwards from the iteration's end. O(swaps log swaps).
//
// Rejected: copies one after another in order of choice, which leaves the time between them idle.

// lanes are the two directions of the link over one iteration.
type lanes struct {
	at      *profile
	outFree []int64 // of each position: the time left on the lane to the host until the next one
	inFree  []int64
	// union-find to the next position with time left on the out lane; len(outFree) if there is none
	next  []int32
	prev  []int32 // the same backwards on the in lane, shifted by one so that 0 is none
	width []int64 // what both lanes have at the start
}

func newLanes(at *profile) *lanes {
	n := len(at.begin)
	l := &lanes{at: at, width: make([]int64, n), outFree: make([]int64, n), inFree: make([]int64, n),
		next: make([]int32, n+1), prev: make([]int32, n+1)}
	for i := range n {
		l.width[i] = at.reach[i+1] - at.reach[i]
	}
	l.reset()
	return l
}

// reset frees all time.
func (l *lanes) reset() {
	copy(l.outFree, l.width)
	copy(l.inFree, l.width)
	n := len(l.width)
	l.next[n], l.prev[0] = int32(n), 0
	for i := range n {
		l.next[i], l.prev[i+1] = int32(i), int32(i+1)
		if l.width[i] == 0 {
			l.next[i], l.prev[i+1] = int32(i+1), int32(i)
		}
	}
}

func root(parent []int32, i int32) int32 {
	for parent[i] != i {
		parent[i] = parent[parent[i]]
		i = parent[i]
	}
	return i
}

// due returns the last position that compute has reached when op i begins: on one stream i itself.
func (l *lanes) due(i plan.OpID) int {
	t := l.at.begin[i]
	k := sort.Search(int(i)+1, func(k int) bool { return l.at.reach[k] > t })
	return max(k-1, 0)
}

// out finds when a copy of the given duration is done that is ready after op after: by the time compute
// reaches the returned position. ok is false if that is after position stop. takeOut reserves it.
func (l *lanes) out(after, stop plan.OpID, need int64) (release plan.OpID, ok bool) {
	i := root(l.next, int32(after)+1)
	for need > 0 {
		if plan.OpID(i) >= stop {
			return stop, false
		}
		need -= l.outFree[i]
		if need > 0 {
			i = root(l.next, i+1)
		} else {
			i++
		}
	}
	return max(plan.OpID(i), after+1), true
}

// takeOut reserves what out found.
func (l *lanes) takeOut(after plan.OpID, need int64) {
	n := int32(len(l.width))
	for i := root(l.next, int32(after)+1); need > 0 && i < n; i = root(l.next, i) {
		take := min(need, l.outFree[i])
		l.outFree[i] -= take
		need -= take
		if l.outFree[i] == 0 {
			l.next[i] = i + 1
		}
	}
}

// in finds the last position at which a copy back of the given duration can be issued so that it is done
// before op before. ok is false if that is before position stop.
func (l *lanes) in(before, stop plan.OpID, need int64) (fetch plan.OpID, ok bool) {
	i := int32(l.due(before))
	for need > 0 {
		i = root(l.prev, i)
		if i == 0 || plan.OpID(i-1) < stop {
			return stop, false
		}
		i--
		need -= l.inFree[i]
	}
	return min(plan.OpID(i), before), true
}

// takeIn reserves what in found.
func (l *lanes) takeIn(before plan.OpID, need int64) {
	for i := root(l.prev, int32(l.due(before))); need > 0 && i > 0; i = root(l.prev, i) {
		take := min(need, l.inFree[i-1])
		l.inFree[i-1] -= take
		need -= take
		if l.inFree[i-1] == 0 {
			l.prev[i] = i - 1
		}
	}
}

// timetable sets release and fetch of swaps, without changing the load: when the copy out is done, and when
// the copy back must be issued, both as positions. If the second comes before the first, the link cannot hide
// the swap.
func (s *selection) timetable(swaps []int32) {
	at := s.at
	slices.SortFunc(swaps, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.gaps[a].After, s.gaps[b].After), cmp.Compare(a, b))
	})
	var free int64
	for _, g := range swaps {
		x := &s.gaps[g]
		free = max(free, at.reach[x.After+1]) + s.outTime(g)
		k, _ := slices.BinarySearch(at.reach[:x.Before+1], free)
		s.release[g] = min(max(plan.OpID(k), x.After+1), x.Before)
		if at.reach[x.Before] < free {
			s.release[g] = x.Before
		}
	}
	slices.SortFunc(swaps, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.gaps[b].Before, s.gaps[a].Before), cmp.Compare(a, b))
	})
	due := int64(math.MaxInt64)
	for _, g := range swaps {
		x := &s.gaps[g]
		due = min(due, at.begin[x.Before]) - s.inTime(g)
		k := sort.Search(int(x.Before)+1, func(k int) bool { return at.reach[k] > due })
		s.fetch[g] = plan.OpID(max(k-1, 0))
	}
}
