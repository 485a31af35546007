package plan

import "slices"

// rangeMax remembers, for every byte of an arena, the last step of each queue that touched it. Bytes are cut
// at the offsets of instances, so the tree has at most twice as many leaves as there are instances. Marks
// stay where they are put: raising a range and querying one both visit O(log n) nodes, since a maximum need
// not be pushed down to be found. Both go up from the leaves, which takes half as long as coming down to
// them.
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
	lo, _ = slices.BinarySearch(t.cuts, x.Offset)
	more, _ := slices.BinarySearch(t.cuts[lo:], x.Offset+x.Size)
	return lo, lo + more
}

func raise(dst, src []int32) {
	for q, v := range src {
		dst[q] = max(dst[q], v)
	}
}

func (t *rangeMax) node(s []int32, i int) []int32 { return s[i*t.queues : (i+1)*t.queues] }

// touch raises the bytes of x to the steps of each queue.
func (t *rangeMax) touch(x *Instance, steps []int32) {
	if x.Size <= 0 {
		return
	}
	lo, hi := t.span(x)
	for l, r := lo+t.leaves, hi+t.leaves; l < r; l, r = l/2, r/2 {
		if l%2 == 1 {
			raise(t.node(t.mark, l), steps)
			raise(t.node(t.top, l), steps)
			l++
		}
		if r%2 == 1 {
			r--
			raise(t.node(t.mark, r), steps)
			raise(t.node(t.top, r), steps)
		}
	}
	t.above(lo, hi, func(node int) { raise(t.node(t.top, node), steps) })
}

// ask raises dst to the last step of each queue that touched any byte of x.
func (t *rangeMax) ask(x *Instance, dst []int32) {
	if x.Size <= 0 {
		return
	}
	lo, hi := t.span(x)
	for l, r := lo+t.leaves, hi+t.leaves; l < r; l, r = l/2, r/2 {
		if l%2 == 1 {
			raise(dst, t.node(t.top, l))
			l++
		}
		if r%2 == 1 {
			r--
			raise(dst, t.node(t.top, r))
		}
	}
	t.above(lo, hi, func(node int) { raise(dst, t.node(t.mark, node)) })
}

// above visits the nodes over the first and the last leaf of a range, each once. They include every ancestor
// of a node that the range consists of.
func (t *rangeMax) above(lo, hi int, visit func(node int)) {
	l, r := (lo+t.leaves)/2, (hi-1+t.leaves)/2
	for ; l != r; l, r = l/2, r/2 {
		visit(l)
		visit(r)
	}
	for ; l > 0; l /= 2 {
		visit(l)
	}
}
