// Package curve keeps bytes over the ops of an iteration while absences are tried on them.
package curve

import "math"

// The load curve under decisions.
//
// Planners ask repeatedly: is there a moment in this stretch at which more is live than allowed, and what if
// this buffer were away from here to there? A segment tree over the ops answers both in O(log ops): each node
// holds the largest load below it without the changes made to whole nodes above it, so a change need not be
// pushed down. Memory is O(ops), and nothing is allocated after New. Rejected: a plain array, which is faster
// for short stretches and makes the selection of long absences quadratic.
//
// Areas also keeps the least value and the sum below each node. To find how much of the curve lies above a
// limit, it descends only where a node lies on both sides of the limit, which for a training's curve, up and
// down again, is a few paths.

// Tree is a curve of bytes, one value for each op of an iteration. Make one with [New].
type Tree struct {
	n, leaves int
	top       []int64 // of each node: the largest value of its ops, changes to its ancestors apart
	whole     []int64 // for each node: what was added to all of its ops at once
	// for each node, like top: the smallest value and the sum; nil if no areas are needed
	low, sum []int64
}

// Areas is a Tree that also knows how much of the curve lies above a limit. Make one with [NewAreas].
type Areas struct{ Tree }

// none is below every value and far from overflow, all above.
const (
	none = math.MinInt64 / 2
	all  = math.MaxInt64 / 2
)

// New returns a tree that holds the values of load, in bytes.
func New(load []int64) *Tree {
	t := &Tree{n: len(load), leaves: 1}
	for t.leaves < len(load) {
		t.leaves *= 2
	}
	t.top, t.whole = make([]int64, 2*t.leaves), make([]int64, 2*t.leaves)
	t.Reset(load)
	return t
}

// NewAreas is [New] for a tree that knows areas.
func NewAreas(load []int64) *Areas {
	t := &Areas{*New(load)}
	t.low, t.sum = make([]int64, 2*t.leaves), make([]int64, 2*t.leaves)
	t.Reset(load)
	return t
}

// Reset makes the tree hold another curve, of the length that New was given.
func (t *Tree) Reset(load []int64) {
	clear(t.whole)
	copy(t.top[t.leaves:], load)
	for i := t.leaves + t.n; i < 2*t.leaves; i++ {
		t.top[i] = none
	}
	if t.low != nil {
		copy(t.low[t.leaves:], load)
		copy(t.sum[t.leaves:], load)
		for i := t.leaves + t.n; i < 2*t.leaves; i++ {
			t.low[i], t.sum[i] = all, 0
		}
	}
	for i := t.leaves - 1; i > 0; i-- {
		t.pull(i, 0)
	}
}

// pull recomputes a node, whose range has that many ops, from its halves.
func (t *Tree) pull(node, ops int) {
	added := t.whole[node]
	t.top[node] = max(t.top[2*node], t.top[2*node+1]) + added
	if t.low != nil {
		t.low[node], t.sum[node] = min(t.low[2*node], t.low[2*node+1])+added, t.sum[2*node]+t.sum[2*node+1]+
			added*int64(ops)
	}
}

// Add changes the values of ops [lo, hi) by v bytes.
func (t *Tree) Add(lo, hi int, v int64) {
	if hi = min(hi, t.n); lo < hi {
		t.add(1, 0, t.leaves, lo, hi, v)
	}
}

func (t *Tree) add(node, from, to, lo, hi int, v int64) {
	if lo <= from && to <= hi {
		t.top[node] += v
		t.whole[node] += v
		if t.low != nil {
			t.low[node] += v
			t.sum[node] += v * int64(to-from)
		}
		return
	}
	mid := (from + to) / 2
	if lo < mid {
		t.add(2*node, from, mid, lo, hi, v)
	}
	if hi > mid {
		t.add(2*node+1, mid, to, lo, hi, v)
	}
	t.pull(node, to-from)
}

// Peak returns the largest value of all, in O(1).
func (t *Tree) Peak() int64 { return t.top[1] }

// Max returns the largest value of ops [lo, hi), 0 if there are none.
func (t *Tree) Max(lo, hi int) int64 {
	if lo >= hi {
		return 0
	}
	return t.max(1, 0, t.leaves, lo, hi)
}

func (t *Tree) max(node, from, to, lo, hi int) int64 {
	if lo <= from && to <= hi {
		return t.top[node]
	}
	mid, best := (from+to)/2, int64(none)
	if lo < mid {
		best = t.max(2*node, from, mid, lo, hi)
	}
	if hi > mid {
		best = max(best, t.max(2*node+1, mid, to, lo, hi))
	}
	return best + t.whole[node]
}

// First returns the first op of [lo, hi) whose value is above limit, -1 if there is none.
func (t *Tree) First(lo, hi int, limit int64) int {
	return t.seek(1, 0, t.leaves, lo, min(hi, t.n), limit, false)
}

// Last returns the last op of [lo, hi) whose value is above limit, -1 if there is none.
func (t *Tree) Last(lo, hi int, limit int64) int {
	return t.seek(1, 0, t.leaves, lo, min(hi, t.n), limit, true)
}

func (t *Tree) seek(node, from, to, lo, hi int, limit int64, backward bool) int {
	if hi <= from || to <= lo || t.top[node] <= limit {
		return -1
	}
	if to-from == 1 {
		return from
	}
	mid, limit := (from+to)/2, limit-t.whole[node]
	if backward {
		if i := t.seek(2*node+1, mid, to, lo, hi, limit, true); i >= 0 {
			return i
		}
		return t.seek(2*node, from, mid, lo, hi, limit, true)
	}
	if i := t.seek(2*node, from, mid, lo, hi, limit, false); i >= 0 {
		return i
	}
	return t.seek(2*node+1, mid, to, lo, hi, limit, false)
}

// Above returns the sum over ops [lo, hi) of what their values are above limit.
func (t *Areas) Above(lo, hi int, limit int64) float64 {
	return t.above(1, 0, t.leaves, lo, min(hi, t.n), limit)
}

func (t *Areas) above(node, from, to, lo, hi int, limit int64) float64 {
	if hi <= from || to <= lo || t.top[node] <= limit {
		return 0
	}
	if lo <= from && to <= hi && t.low[node] >= limit {
		return float64(t.sum[node]) - float64(limit)*float64(to-from)
	}
	mid, limit := (from+to)/2, limit-t.whole[node]
	return t.above(2*node, from, mid, lo, hi, limit) + t.above(2*node+1, mid, to, lo, hi, limit)
}
