package pack

import (
	"cmp"
	"fmt"
	"slices"
)

// Validate decides whether offsets are a packing, and shares no code with the solvers.
//
// Items are visited by offset, lowest first. Every item visited before that lives at the same moment has to
// end at or below the offset of this one, so a segment tree over time that holds, for each stretch, the
// highest top so far answers in O(log n). The whole is O(n log n). A sweep over time with an ordered set of
// live ranges does the same work; the tree needs no ordered set and names the offending item as easily.

// overlapError reports two items that share an address at one moment, by index.
type overlapError struct{ A, B int }

// Error implements error.
func (e *overlapError) Error() string {
	return fmt.Sprintf("items %d and %d live at one moment and share an address", e.A, e.B)
}

// Validate returns nil where offsets are a packing of p: one offset an item, none negative, aligned, fixed
// ones kept, and no two items that live at one moment sharing an address. Otherwise it returns an error that
// names the item; overlaps are *overlapError.
func Validate(p *Problem, offsets []int64) error {
	if len(offsets) != len(p.Items) {
		return fmt.Errorf("there are %d offsets for %d items; give one for each", len(offsets), len(p.Items))
	}
	order := make([]int, 0, len(offsets))
	times := make([]int64, 0, 4*len(offsets))
	for i, at := range offsets {
		switch {
		case at < 0:
			return fmt.Errorf("item %d has the negative offset %d", i, at)
		case at > maxTotal:
			return fmt.Errorf("item %d has the offset %d, over 2^62", i, at)
		case p.Align > 1 && at%p.Align != 0:
			return fmt.Errorf("item %d has the offset %d, no multiple of the alignment %d", i, at, p.Align)
		case p.Fixed != nil && p.Fixed[i] != -1 && p.Items[i].Size > 0 && p.Fixed[i] != at:
			return fmt.Errorf("item %d has the offset %d and must have %d", i, at, p.Fixed[i])
		}
		if p.Items[i].Size == 0 {
			continue
		}
		order = append(order, i)
		it := p.Items[i]
		times = append(times, it.Start, it.End)
		if it.hasSecond() {
			times = append(times, it.Start2, it.End2)
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(offsets[a], offsets[b]), cmp.Compare(a, b))
	})
	tree := newTopTree(len(times))
	for _, i := range order {
		it := p.Items[i]
		stretches := [2][2]int64{{it.Start, it.End}, {it.Start2, it.End2}}
		n := 1
		if it.hasSecond() {
			n = 2
		}
		for _, s := range stretches[:n] {
			lo, _ := slices.BinarySearch(times, s[0])
			hi, _ := slices.BinarySearch(times, s[1])
			if top, by := tree.highest(lo, hi); top > offsets[i] {
				return &overlapError{A: by, B: i}
			}
		}
		for _, s := range stretches[:n] {
			lo, _ := slices.BinarySearch(times, s[0])
			hi, _ := slices.BinarySearch(times, s[1])
			tree.raise(lo, hi, offsets[i]+p.alignedSize(i), i)
		}
	}
	return nil
}

// topTree holds the highest top over stretches of time, and which item has it. whole is what covers all of a
// node's stretch, some what covers any part of it.
type topTree struct {
	leaves          int
	whole, some     []int64
	wholeBy, someBy []int32
}

func newTopTree(n int) *topTree {
	leaves := 1
	for leaves < n {
		leaves *= 2
	}
	return &topTree{leaves: leaves, whole: make([]int64, 2*leaves), some: make([]int64, 2*leaves),
		wholeBy: make([]int32, 2*leaves), someBy: make([]int32, 2*leaves)}
}

func (t *topTree) highest(lo, hi int) (top int64, by int) {
	t.walk(lo, hi, func(node int) {
		if t.some[node] > top {
			top, by = t.some[node], int(t.someBy[node])
		}
	}, func(above int) {
		if t.whole[above] > top {
			top, by = t.whole[above], int(t.wholeBy[above])
		}
	})
	return top, by
}

func (t *topTree) raise(lo, hi int, top int64, by int) {
	t.walk(lo, hi, func(node int) {
		if top > t.whole[node] {
			t.whole[node], t.wholeBy[node] = top, int32(by)
		}
		if top > t.some[node] {
			t.some[node], t.someBy[node] = top, int32(by)
		}
	}, func(above int) {
		if top > t.some[above] {
			t.some[above], t.someBy[above] = top, int32(by)
		}
	})
}

// walk calls exact for the nodes that make up [lo, hi) and above for their ancestors, some of them more than
// once.
func (t *topTree) walk(lo, hi int, exact, above func(node int)) {
	ancestors := func(node int) {
		exact(node)
		for node /= 2; node > 0; node /= 2 {
			above(node)
		}
	}
	for l, r := lo+t.leaves, hi+t.leaves; l < r; l, r = l/2, r/2 {
		if l&1 == 1 {
			ancestors(l)
			l++
		}
		if r&1 == 1 {
			r--
			ancestors(r)
		}
	}
}
