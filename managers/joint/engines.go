package joint

import "github.com/gmemtop/gmemtop/managers/plan/curve"

// Filling the copy engines to the brim, before any other choice.
//
// The problem: copies that nobody waits for are free, so as many bytes as possible should leave that way.
//
// The approach: of the gaps across the fullest position, longest first, swap each whose copies still fit (the
// earliest-deadline test of single-machine scheduling, once for copies out and once for copies in). What is
// then still missing is dropped, cheapest first. Complexity: O(gaps log gaps). Rejected: a knapsack of the
// gaps, which knows bytes and times but not deadlines.

// engines are the two copy engines while they are being filled.
type engines struct {
	m       *model
	out, in *curve.Tree // for each op, negative while copies have room
	values  []int64     // to fill a tree
}

func newEngines(m *model) engines {
	values := make([]int64, m.n)
	return engines{m, curve.New(values), curve.New(values), values}
}

// reset empties both, for copies across position k. The copies out of values written at a or later have the
// time from the end of a to the start of k; copies in likewise, backwards.
func (e *engines) reset(k int) {
	m := e.m
	start, end := m.start[k], m.end[k]
	for i := range e.values {
		e.values[i] = min(0, m.end[i]-start)
	}
	e.out.Reset(e.values)
	for i := range e.values {
		e.values[i] = min(0, end-m.start[i])
	}
	e.in.Reset(e.values)
}

// take assigns a gap's copies to the engines, if both have room.
func (e *engines) take(x *gap) bool {
	first := max(int(x.writer), 0)
	if e.out.Max(0, first+1)+x.evictTime > 0 || e.in.Max(int(x.before), e.m.n)+x.prefetchTime > 0 {
		return false
	}
	e.out.Add(0, first+1, x.evictTime)
	e.in.Add(int(x.before), e.m.n, x.prefetchTime)
	return true
}
