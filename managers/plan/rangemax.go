package plan

import (
	"slices"
	"sort"
)

// rangeMax remembers, for every byte of an arena, the last step of each queue that touched it. Bytes are cut at the offsets that
// instances have, so that the tree has at most twice as many leaves as there are instances. Marks stay where they are put: a range is
// raised at O(log n) nodes and asked for at O(log n) nodes, since a maximum need not be pushed down to be found.
type rangeMax struct {
	cuts   []int64
	queues int
	leaves int
	mark   []int32 // of each node and queue: raised for the node's whole range
	top    []int32 // of each node and queue: the largest mark within its range
}

func newRangeMax(instances []Instance, queues int) *rangeMax {
	cuts := make([]int64, 0, 2*len(instances))
	for i := range instances {
		if x := &instances[i]; x.Size > 0 {
			cuts = append(cuts, x.Offset, x.Offset+x.Size)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	t := &rangeMax{cuts: cuts, queues: queues, leaves: 1}
	for t.leaves < len(cuts) {
		t.leaves *= 2
	}
	t.mark = make([]int32, 2*t.leaves*queues)
	for i := range t.mark {
		t.mark[i] = -1
	}
	t.top = slices.Clone(t.mark)
	return t
}

func (t *rangeMax) span(x *Instance) (lo, hi int) {
	return sort.Search(len(t.cuts), func(i int) bool { return t.cuts[i] >= x.Offset }),
		sort.Search(len(t.cuts), func(i int) bool { return t.cuts[i] >= x.Offset+x.Size })
}

func raise(dst, src []int32) {
	for q, v := range src {
		dst[q] = max(dst[q], v)
	}
}

func (t *rangeMax) node(s []int32, i int) []int32 { return s[i*t.queues : (i+1)*t.queues] }

// touch raises the bytes of x to the steps of each queue.
func (t *rangeMax) touch(x *Instance, steps []int32) {
	if x.Size > 0 {
		lo, hi := t.span(x)
		t.raise(1, 0, t.leaves, lo, hi, steps)
	}
}

func (t *rangeMax) raise(node, from, to, lo, hi int, steps []int32) {
	if hi <= from || to <= lo {
		return
	}
	raise(t.node(t.top, node), steps)
	if lo <= from && to <= hi {
		raise(t.node(t.mark, node), steps)
		return
	}
	mid := (from + to) / 2
	t.raise(2*node, from, mid, lo, hi, steps)
	t.raise(2*node+1, mid, to, lo, hi, steps)
}

// ask raises dst to the last step of each queue that touched any byte of x.
func (t *rangeMax) ask(x *Instance, dst []int32) {
	if x.Size > 0 {
		lo, hi := t.span(x)
		t.collect(1, 0, t.leaves, lo, hi, dst)
	}
}

func (t *rangeMax) collect(node, from, to, lo, hi int, dst []int32) {
	if hi <= from || to <= lo {
		return
	}
	if lo <= from && to <= hi {
		raise(dst, t.node(t.top, node))
		return
	}
	raise(dst, t.node(t.mark, node))
	mid := (from + to) / 2
	t.collect(2*node, from, mid, lo, hi, dst)
	t.collect(2*node+1, mid, to, lo, hi, dst)
}
