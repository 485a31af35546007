package combine

// The load curve under decisions.
//
// Planners ask over and over: is there a moment within this stretch at which more is live than allowed, and what if this buffer were away from here to
// there? A segment tree over the ops answers both in O(log ops): each node holds the largest load below it without the changes made to whole nodes
// above it, so that a change need not be pushed down. Rejected: a plain array, which is faster for short stretches and makes the selection of long
// absences quadratic.

// loadTree holds the bytes live during each op.
type loadTree struct {
	n, leaves int
	top       []int64 // of each node: the largest load of its ops, changes to its ancestors apart
	whole     []int64 // of each node: what was added to all of its ops at once
}

func newLoadTree(load []int64) *loadTree {
	t := &loadTree{n: len(load), leaves: 1}
	for t.leaves < len(load) {
		t.leaves *= 2
	}
	t.top, t.whole = make([]int64, 2*t.leaves), make([]int64, 2*t.leaves)
	t.reset(load)
	return t
}

// reset makes the tree hold another curve of the same length.
func (t *loadTree) reset(load []int64) {
	clear(t.whole)
	clear(t.top[t.leaves:])
	copy(t.top[t.leaves:], load)
	for i := t.leaves - 1; i > 0; i-- {
		t.top[i] = max(t.top[2*i], t.top[2*i+1])
	}
}

// add changes the load of ops [lo, hi) by v bytes.
func (t *loadTree) add(lo, hi int, v int64) {
	if lo < hi {
		t.addIn(1, 0, t.leaves, lo, hi, v)
	}
}

func (t *loadTree) addIn(node, from, to, lo, hi int, v int64) {
	if lo <= from && to <= hi {
		t.top[node] += v
		t.whole[node] += v
		return
	}
	mid := (from + to) / 2
	if lo < mid {
		t.addIn(2*node, from, mid, lo, hi, v)
	}
	if hi > mid {
		t.addIn(2*node+1, mid, to, lo, hi, v)
	}
	t.top[node] = max(t.top[2*node], t.top[2*node+1]) + t.whole[node]
}

// peak returns the largest load of all.
func (t *loadTree) peak() int64 { return t.max(0, t.n) }

// max returns the largest load of ops [lo, hi), 0 where there are none.
func (t *loadTree) max(lo, hi int) int64 {
	if lo >= hi {
		return 0
	}
	v, _ := t.maxIn(1, 0, t.leaves, lo, hi)
	return v
}

func (t *loadTree) maxIn(node, from, to, lo, hi int) (int64, bool) {
	if lo <= from && to <= hi {
		return t.top[node], true
	}
	mid := (from + to) / 2
	var best int64
	found := false
	if lo < mid {
		best, found = t.maxIn(2*node, from, mid, lo, hi)
	}
	if hi > mid {
		if v, ok := t.maxIn(2*node+1, mid, to, lo, hi); ok && (!found || v > best) {
			best, found = v, true
		}
	}
	return best + t.whole[node], found
}

// first returns the first op of [lo, hi) with a load above limit, -1 where there is none.
func (t *loadTree) first(lo, hi int, limit int64) int {
	if lo >= hi {
		return -1
	}
	return t.seek(1, 0, t.leaves, lo, hi, limit, false)
}

// last returns the last op of [lo, hi) with a load above limit, -1 where there is none.
func (t *loadTree) last(lo, hi int, limit int64) int {
	if lo >= hi {
		return -1
	}
	return t.seek(1, 0, t.leaves, lo, hi, limit, true)
}

func (t *loadTree) seek(node, from, to, lo, hi int, limit int64, backward bool) int {
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
