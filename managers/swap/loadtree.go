package swap

import "math"

// The load curve of an iteration under a sequence of absences: bytes are taken off a range of ops and put back, and the questions
// in between are where the curve first or last passes a limit within a range, how high it is, and how much of it lies above the
// limit.
//
// Way chosen: a segment tree over ops with additions kept at the highest node that they cover whole; each node knows the least, the
// greatest and the sum below it. Adding and the two searches cost O(log ops). The area above a limit descends only where a node's
// range lies on both sides of the limit, which for a training's curve, up and down again, is a few paths.
//
// Complexity: O(ops) memory, O(log ops) an addition or a search. Rejected: the plain array of the published program (O(ops) each,
// hence seconds for one schedule of a large recording).

// loadTree is the load of each op of an iteration.
type loadTree struct {
	n, leaves      int
	low, high, sum []int64 // of the ops below a node, what is pending at nodes above not counted
	pending        []int64 // added to all ops below a node
}

func newLoadTree(load []int64) *loadTree {
	t := &loadTree{n: len(load), leaves: 1}
	for t.leaves < len(load) {
		t.leaves *= 2
	}
	t.low, t.high, t.sum, t.pending = make([]int64, 2*t.leaves), make([]int64, 2*t.leaves), make([]int64, 2*t.leaves), make([]int64, 2*t.leaves)
	t.reset(load)
	return t
}

// reset makes the curve load again.
func (t *loadTree) reset(load []int64) {
	clear(t.pending)
	for i := range t.leaves {
		k := t.leaves + i
		if i < t.n {
			t.low[k], t.high[k], t.sum[k] = load[i], load[i], load[i]
		} else {
			t.low[k], t.high[k], t.sum[k] = math.MaxInt64/4, math.MinInt64/4, 0
		}
	}
	for k := t.leaves - 1; k > 0; k-- {
		t.pull(k)
	}
}

func (t *loadTree) pull(k int) {
	t.low[k], t.high[k], t.sum[k] = min(t.low[2*k], t.low[2*k+1]), max(t.high[2*k], t.high[2*k+1]), t.sum[2*k]+t.sum[2*k+1]
}

// add adds bytes to the load of ops [from, to).
func (t *loadTree) add(from, to int, bytes int64) {
	if from < to {
		t.addBelow(1, 0, t.leaves, from, min(to, t.n), bytes)
	}
}

func (t *loadTree) addBelow(k, lo, hi, from, to int, bytes int64) {
	if to <= lo || hi <= from {
		return
	}
	if from <= lo && hi <= to {
		t.low[k], t.high[k], t.pending[k] = t.low[k]+bytes, t.high[k]+bytes, t.pending[k]+bytes
		t.sum[k] += bytes * int64(hi-lo)
		return
	}
	mid := (lo + hi) / 2
	t.addBelow(2*k, lo, mid, from, to, bytes)
	t.addBelow(2*k+1, mid, hi, from, to, bytes)
	t.pull(k)
	t.low[k], t.high[k] = t.low[k]+t.pending[k], t.high[k]+t.pending[k]
	t.sum[k] += t.pending[k] * int64(max(min(hi, t.n)-lo, 0))
}

// peak returns the highest load.
func (t *loadTree) peak() int64 { return t.high[1] }

// firstOver returns the first op of [from, to) whose load is above limit, -1 where none is.
func (t *loadTree) firstOver(from, to int, limit int64) int {
	return t.over(1, 0, t.leaves, from, min(to, t.n), limit, false)
}

// lastOver returns the last op of [from, to) whose load is above limit, -1 where none is.
func (t *loadTree) lastOver(from, to int, limit int64) int {
	return t.over(1, 0, t.leaves, from, min(to, t.n), limit, true)
}

func (t *loadTree) over(k, lo, hi, from, to int, limit int64, last bool) int {
	if to <= lo || hi <= from || t.high[k] <= limit {
		return -1
	}
	if hi-lo == 1 {
		return lo
	}
	limit -= t.pending[k]
	mid := (lo + hi) / 2
	if last {
		if i := t.over(2*k+1, mid, hi, from, to, limit, last); i >= 0 {
			return i
		}
		return t.over(2*k, lo, mid, from, to, limit, last)
	}
	if i := t.over(2*k, lo, mid, from, to, limit, last); i >= 0 {
		return i
	}
	return t.over(2*k+1, mid, hi, from, to, limit, last)
}

// above returns the sum over ops [from, to) of what their load is above limit.
func (t *loadTree) above(from, to int, limit int64) float64 {
	return t.areaAbove(1, 0, t.leaves, from, min(to, t.n), limit)
}

func (t *loadTree) areaAbove(k, lo, hi, from, to int, limit int64) float64 {
	if to <= lo || hi <= from || t.high[k] <= limit {
		return 0
	}
	if from <= lo && hi <= to && t.low[k] >= limit {
		return float64(t.sum[k]) - float64(limit)*float64(hi-lo)
	}
	limit -= t.pending[k]
	mid := (lo + hi) / 2
	return t.areaAbove(2*k, lo, mid, from, to, limit) + t.areaAbove(2*k+1, mid, hi, from, to, limit)
}
