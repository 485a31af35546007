package joint

// loadTree keeps bytes over positions: add to a range, ask for a range's maximum, O(log n) each.
type loadTree struct {
	leaves    int
	most, lay []int64 // of each node: the maximum of its range without what lies on the nodes above; what was added to the whole of it
	n         int
}

func newLoadTree(n int) *loadTree {
	t := &loadTree{leaves: 1, n: n}
	for t.leaves < n {
		t.leaves *= 2
	}
	t.most, t.lay = make([]int64, 2*t.leaves), make([]int64, 2*t.leaves)
	return t
}

const farBelow = -int64(1) << 62

func (t *loadTree) set(value func(i int) int64) {
	clear(t.lay)
	for i := range t.leaves {
		t.most[t.leaves+i] = farBelow
		if i < t.n {
			t.most[t.leaves+i] = value(i)
		}
	}
	for k := t.leaves - 1; k > 0; k-- {
		t.most[k] = max(t.most[2*k], t.most[2*k+1])
	}
}

func (t *loadTree) top() int64 { return t.most[1] }

func (t *loadTree) add(from, to int, v int64) {
	if from < to {
		t.addAt(1, 0, t.leaves, from, to, v)
	}
}

func (t *loadTree) addAt(node, lo, hi, from, to int, v int64) {
	if from <= lo && hi <= to {
		t.most[node] += v
		t.lay[node] += v
		return
	}
	mid := (lo + hi) / 2
	if from < mid {
		t.addAt(2*node, lo, mid, from, to, v)
	}
	if to > mid {
		t.addAt(2*node+1, mid, hi, from, to, v)
	}
	t.most[node] = t.lay[node] + max(t.most[2*node], t.most[2*node+1])
}

func (t *loadTree) max(from, to int) int64 {
	if from >= to {
		return farBelow
	}
	return t.maxAt(1, 0, t.leaves, from, to)
}

func (t *loadTree) maxAt(node, lo, hi, from, to int) int64 {
	if from <= lo && hi <= to {
		return t.most[node]
	}
	mid := (lo + hi) / 2
	best := farBelow
	if from < mid {
		best = t.maxAt(2*node, lo, mid, from, to)
	}
	if to > mid {
		best = max(best, t.maxAt(2*node+1, mid, hi, from, to))
	}
	return best + t.lay[node]
}
