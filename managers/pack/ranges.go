package pack

import "slices"

// Which addresses are taken during a lifetime? A rule such as best fit asks it once an item, and gathering the placed neighbours
// each time is O(n * live), hours for a million items.
//
// The index is a segment tree over sections whose nodes hold address ranges, sorted and merged: some, what any item takes during
// any part of the node's stretch, and whole, what items take that live through all of it. The addresses taken during a lifetime are
// the union of some over the O(log n) nodes that make it up and of whole over their ancestors. Placed items lean on each other, so
// merged lists stay short (a handful of ranges even for 10^5 items), and both steps cost O(log n) short lists. Memory is at
// worst O(n log n) ranges, and much less once ranges merge.
//
// The way rejected: a list of all items ordered by offset, scanned with a filter on time, which is O(n) for each item; and an
// interval tree of neighbours, which still has to touch every one of them.

// addrRange is the addresses [lo, hi).
type addrRange struct{ lo, hi int64 }

// rangeIndex answers which addresses are taken during a run of sections.
type rangeIndex struct {
	leaves      int
	some, whole [][]addrRange
	found       []addrRange // scratch of taken
}

func newRangeIndex(sections int) *rangeIndex {
	leaves := 1
	for leaves < sections {
		leaves *= 2
	}
	return &rangeIndex{leaves: leaves, some: make([][]addrRange, 2*leaves), whole: make([][]addrRange, 2*leaves)}
}

// place marks an item's addresses as taken while it lives.
func (x *rangeIndex) place(in *instance, i int32, at int64) {
	a, b := in.stretches(i)
	r := addrRange{at, at + in.size[i]}
	x.add(a, r)
	if b.lo < b.hi {
		x.add(b, r)
	}
}

// add marks the addresses as taken during the sections of s.
func (x *rangeIndex) add(s span, r addrRange) { x.addBelow(1, span{0, int32(x.leaves)}, s, r) }

func (x *rangeIndex) addBelow(node int, covers, s span, r addrRange) {
	x.some[node] = insertRange(x.some[node], r)
	if s.lo <= covers.lo && covers.hi <= s.hi {
		x.whole[node] = insertRange(x.whole[node], r)
		return
	}
	mid := (covers.lo + covers.hi) / 2
	if s.lo < mid {
		x.addBelow(2*node, span{covers.lo, mid}, s, r)
	}
	if mid < s.hi {
		x.addBelow(2*node+1, span{mid, covers.hi}, s, r)
	}
}

// taken returns the union of what is taken during the two runs of sections, sorted, ranges that touch merged. The slice is valid
// until the next call.
func (x *rangeIndex) taken(a, b span) []addrRange {
	x.found = x.found[:0]
	x.collect(1, span{0, int32(x.leaves)}, a)
	if b.lo < b.hi {
		x.collect(1, span{0, int32(x.leaves)}, b)
	}
	slices.SortFunc(x.found, func(a, b addrRange) int { return compare(a.lo, b.lo) })
	merged := x.found[:0]
	for _, r := range x.found {
		if k := len(merged); k > 0 && r.lo <= merged[k-1].hi {
			merged[k-1].hi = max(merged[k-1].hi, r.hi)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

func (x *rangeIndex) collect(node int, covers, s span) {
	if s.lo <= covers.lo && covers.hi <= s.hi {
		x.found = append(x.found, x.some[node]...)
		return
	}
	x.found = append(x.found, x.whole[node]...)
	mid := (covers.lo + covers.hi) / 2
	if s.lo < mid {
		x.collect(2*node, span{covers.lo, mid}, s)
	}
	if mid < s.hi {
		x.collect(2*node+1, span{mid, covers.hi}, s)
	}
}

// insertRange adds r to a sorted list of disjoint ranges and merges what touches.
func insertRange(list []addrRange, r addrRange) []addrRange {
	i, _ := slices.BinarySearchFunc(list, r.lo, func(e addrRange, lo int64) int { return compare(e.hi, lo) })
	j := i
	for j < len(list) && list[j].lo <= r.hi {
		r.lo, r.hi = min(r.lo, list[j].lo), max(r.hi, list[j].hi)
		j++
	}
	if i == j {
		return slices.Insert(list, i, r)
	}
	list[i] = r
	if j > i+1 {
		list = slices.Delete(list, i+1, j)
	}
	return list
}
