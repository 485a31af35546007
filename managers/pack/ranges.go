package pack

import (
	"slices"
	"sort"
)

// Which addresses are taken during a lifetime? A rule such as best fit asks that once per item. Gathering and
// sorting the placed neighbours each time is O(n * live * log live), which takes minutes for a network with
// thousands of live tensors.
//
// Items differ: most live briefly, some through almost everything. Time is cut into blocks, of a length that
// makes what follows cheapest (see blockShift), and a window is two neighbouring blocks, with one window
// beginning at each block.
//
//   - A window lists the items that live in a part of it, in order of address, each with its lifetime. A
//     lifetime no longer than a block lies within one window, and one scan of its list finds the neighbours
//     in the order in which gaps are counted: nothing is gathered from several places, nothing is sorted.
//   - The place of an item that lives through all of a window, and is longer than a few blocks, needs no
//     lifetime there: it goes into a list of ranges, merged where they touch. Placed items lean on each
//     other, so those lists stay short, a few hundred ranges for tens of thousands of live items.
//   - What is taken during a long lifetime is the union of the two lists of its first window and of its last,
//     and of what anybody takes in the blocks between, which a segment tree over blocks holds as merged
//     ranges too. How the union's gaps are found without uniting them is in gaps.go.
//
// Complexity: a short item costs O(neighbours), a long one O(neighbours * log blocks) at worst and a short
// list operation for each block it lives in. The length of blocks balances the two, so a network whose items
// live for a fraction of the whole costs at worst O(n^1.5). Memory is O(n) for the windows and O(blocks *
// ranges of a merged list) for the rest, the latter a few hundred in networks.
//
// Rejected: a segment tree over single sections with what covers a node and what touches it, which scatters
// an item's neighbours over two dozen sparse lists, each of which cuts the gaps into more pieces; a list of
// all items ordered by offset, scanned with a filter on time, which is O(n) for each item; an interval tree
// of neighbours, which does not keep them in order of address.

// addrRange is the addresses [lo, hi).
type addrRange struct{ lo, hi int64 }

// tenancy is an address range with the sections [from, to) in which it is taken.
type tenancy struct {
	addrRange
	from, to int32
}

// rangeIndex answers which addresses are taken during a run of sections.
type rangeIndex struct {
	sections int32
	shift    uint8 // a block has 1<<shift sections

	windows [][]chunk     // of each block that one begins in, by address
	through [][]addrRange // of each window: what long items take that live through it
	leaves  int32         // blocks, filled up to a power of two
	// for each node of the tree: what any item takes in its blocks; nil if nobody asks
	some [][]addrRange

	query // scratch
}

// chunk is a part of a window, in order of the lower ends; top is the greatest of the upper ends.
type chunk struct {
	list []tenancy
	top  int64
}

func newChunk(list []tenancy) chunk {
	c := chunk{list: list}
	for i := range list {
		c.top = max(c.top, list[i].hi)
	}
	return c
}

const (
	// longBlocks is the number of blocks beyond which an item counts as long. Items are listed in at most
	// longBlocks+3 windows.
	longBlocks  = 4
	chunkLength = 256
)

func newRangeIndex(in *instance) *rangeIndex {
	x := &rangeIndex{sections: int32(in.sections), leaves: 1, shift: in.blockShift()}
	blocks := x.sections>>x.shift + 1
	for x.leaves < blocks {
		x.leaves *= 2
	}
	x.windows, x.through = make([][]chunk, blocks), make([][]addrRange, blocks)
	for i := range in.size {
		if a, b := in.stretches(int32(i)); x.outlasts(a, 1) || x.outlasts(b, 1) {
			x.some = make([][]addrRange, 2*x.leaves)
			break
		}
	}
	return x
}

func (x *rangeIndex) outlasts(s span, blocks int32) bool { return s.hi-s.lo > blocks<<x.shift }

// blockShift chooses the length of blocks. Longer blocks make windows longer; shorter ones make more items
// long, whose places are merged rather than scanned and which are put down once per block. Costs are in
// places scanned, and were measured: merging a range takes about as long as scanning four places, a list of
// merged ranges rarely has more than mostRanges, and putting one range down takes as long as putDown places.
func (in *instance) blockShift() uint8 {
	const merging, mostRanges, putDown = 4, 500, 120
	lengths := make([]int32, 0, len(in.size))
	for i := range in.size {
		a, b := in.stretches(int32(i))
		lengths = append(lengths, a.hi-a.lo)
		if b.lo < b.hi {
			lengths = append(lengths, b.hi-b.lo)
		}
	}
	slices.Sort(lengths)
	n, sections := int64(len(lengths)), int64(in.sections)
	sums := make([]int64, n+1)
	for i, l := range lengths {
		sums[i+1] = sums[i] + int64(l)
	}
	upTo := func(length int64) int64 {
		return int64(sort.Search(len(lengths), func(i int) bool { return int64(lengths[i]) > length }))
	}
	best, shift := int64(-1), uint8(0)
	for s := uint8(2); ; s++ {
		block := int64(1) << s
		blocks := sections>>s + 1
		short, listed := upTo(block), upTo(longBlocks*block)
		window := (sums[listed]>>s + 2*listed + 4*(n-listed)) / blocks
		cost := n * (window + merging*min((sums[n]-sums[listed])/(sections+1), mostRanges))
		if short < n {
			nodes := 2 * sums[n] >> s // of the tree
			cost += (n-short)*((merging-1)*window+merging*min(sums[n]/(sections+1), mostRanges)) +
				putDown*(nodes+(sums[n]-sums[listed])>>s)
		}
		if best < 0 || cost < best {
			best, shift = cost, s
		}
		if block >= sections {
			return shift
		}
	}
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
func (x *rangeIndex) add(s span, r addrRange) {
	first, last := s.lo>>x.shift, (s.hi-1)>>x.shift
	long := x.outlasts(s, longBlocks)
	for w := max(first-1, 0); w <= last; w++ {
		if from, to := x.window(w); long && s.lo <= from && to <= s.hi {
			x.through[w] = insertRange(x.through[w], r)
		} else {
			x.list(w, tenancy{r, s.lo, s.hi})
		}
	}
	if x.some != nil {
		x.addBelow(1, span{0, x.leaves}, span{first, last + 1}, r)
	}
}

// window returns the sections of the window that begins with a block.
func (x *rangeIndex) window(block int32) (from, to int32) {
	return block << x.shift, min((block+2)<<x.shift, x.sections)
}

// list puts a tenancy in its place in a window.
func (x *rangeIndex) list(block int32, e tenancy) {
	w := x.windows[block]
	k := sort.Search(len(w), func(k int) bool { return w[k].list[0].lo > e.lo })
	if k == 0 {
		if len(w) == 0 {
			x.windows[block] = []chunk{newChunk([]tenancy{e})}
			return
		}
		k = 1
	}
	c := &w[k-1]
	at, end := 0, len(c.list)
	for at < end {
		if mid := int(uint(at+end) / 2); c.list[mid].lo <= e.lo {
			at = mid + 1
		} else {
			end = mid
		}
	}
	c.list, c.top = slices.Insert(c.list, at, e), max(c.top, e.hi)
	if list := c.list; len(list) > chunkLength {
		*c = newChunk(list[:chunkLength/2])
		x.windows[block] = slices.Insert(w, k, newChunk(slices.Clone(list[chunkLength/2:])))
	}
}

// addBelow marks addresses as taken in some blocks.
func (x *rangeIndex) addBelow(node int, covers, blocks span, r addrRange) {
	x.some[node] = insertRange(x.some[node], r)
	if covers.hi-covers.lo == 1 {
		return
	}
	mid := (covers.lo + covers.hi) / 2
	if blocks.lo < mid {
		x.addBelow(2*node, span{covers.lo, mid}, blocks, r)
	}
	if mid < blocks.hi {
		x.addBelow(2*node+1, span{mid, covers.hi}, blocks, r)
	}
}

// insertRange adds r to a sorted list of disjoint ranges and merges what touches.
func insertRange(list []addrRange, r addrRange) []addrRange {
	i, end := 0, len(list)
	for i < end {
		if mid := int(uint(i+end) / 2); list[mid].hi < r.lo {
			i = mid + 1
		} else {
			end = mid
		}
	}
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
