package pack

// Before any search, whatever needs no search is removed. Under a capacity c two rules leave an equivalent,
// smaller problem, and independent stretches of time fall apart into cores that are solved one by one.
//
//   - Peel: an item that lives through the whole of its stretch of time overlaps everything in it, so
//     whatever lies below it can change places with it: it goes to the bottom, and the rest lies above it.
//     Parameters and optimizer state are removed this way.
//   - Postpone: an item i whose neighbours cannot block every place for it, however they lie, is placed last.
//     A neighbour k blocks at most size(k) + size(i) offsets, so it is enough that the sum of size(k) +
//     size(i) over the neighbours is at most c - size(i). Off the peak that holds for most small, short
//     items. (The rule is that of low-degree vertices in graph colouring: what is postponed is placed in the
//     reverse order, by first fit.) Sums over the items that overlap a span are differences of prefix sums
//     over starts and ends, so a pass is linear.
//
// Each may enable the other, so they alternate until nothing changes or the effort is out of proportion.

// core is what is left of a stretch of time: a problem of its own, above base.
type core struct {
	in   *instance // its origin leads to the reduced instance's items
	base int64
}

// reduction is an instance taken apart under a capacity.
type reduction struct {
	cores   []core
	offsets []int64 // of the peeled items
	later   []int32 // postponed items, in the order to place them
}

// reduce takes the instance apart under the capacity, which has to be at least the bound.
func (in *instance) reduce(capacity int64) reduction {
	red := reduction{offsets: make([]int64, len(in.size))}
	type piece struct {
		items []int32
		base  int64
	}
	todo := []piece{{in.indices(), 0}}
	effort := 40*len(in.size) + 1000
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		sub := in.restrict(p.items)
		effort -= len(p.items)
		if parts := sub.components(); len(parts) > 1 {
			for _, part := range parts {
				for k, i := range part {
					part[k] = p.items[i]
				}
				todo = append(todo, piece{part, p.base})
			}
			continue
		}
		rest := p.items[:0:0]
		if effort > 0 {
			out := make([]bool, len(sub.size))
			base := p.base
			for i := range sub.peelable(out) {
				red.offsets[p.items[i]] = base
				base += sub.size[i]
			}
			for _, i := range sub.postponable(out, capacity-base) {
				red.later = append(red.later, p.items[i])
			}
			for i, gone := range out {
				if !gone {
					rest = append(rest, p.items[i])
				}
			}
			if len(rest) < len(p.items) {
				if len(rest) > 0 {
					todo = append(todo, piece{rest, base})
				}
				continue
			}
		}
		red.cores = append(red.cores, core{sub, p.base})
	}
	for a, b := 0, len(red.later)-1; a < b; a, b = a+1, b-1 {
		red.later[a], red.later[b] = red.later[b], red.later[a]
	}
	return red
}

// peelable yields the items that live through every section and marks them; none if an item is fixed.
func (in *instance) peelable(out []bool) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for _, at := range in.fixed {
			if at >= 0 {
				return
			}
		}
		for i := range in.size {
			if f := in.first[i]; f.lo == 0 && int(f.hi) == in.sections {
				out[i] = true
				if !yield(i) {
					return
				}
			}
		}
	}
}

// postponable marks the items, not marked before, that fit whatever the others do, and returns them in the
// order found.
func (in *instance) postponable(out []bool, capacity int64) []int32 {
	var found []int32
	// Of the items that remain: sizes and number of those that start in a section before s, and that end at
	// or before s.
	started, ended := make([]addrRange, in.sections+1), make([]addrRange, in.sections+1)
	for pass := 0; pass < 8; pass++ {
		clear(started)
		clear(ended)
		for i := range in.size {
			if out[i] {
				continue
			}
			a, b := in.stretches(int32(i))
			for _, r := range [2]span{a, b} {
				if r.lo < r.hi {
					started[r.lo+1].lo += in.size[i]
					started[r.lo+1].hi++
					ended[r.hi].lo += in.size[i]
					ended[r.hi].hi++
				}
			}
		}
		for s := range in.sections {
			started[s+1].lo += started[s].lo
			started[s+1].hi += started[s].hi
			ended[s+1].lo += ended[s].lo
			ended[s+1].hi += ended[s].hi
		}
		before := len(found)
		for i := range in.size {
			if out[i] || in.fixed != nil && in.fixed[i] >= 0 {
				continue
			}
			a, b := in.stretches(int32(i))
			var sizes, number int64
			for _, r := range [2]span{a, b} {
				if r.lo < r.hi {
					sizes += started[r.hi].lo - ended[r.lo].lo - in.size[i]
					number += started[r.hi].hi - ended[r.lo].hi - 1
				}
			}
			if number < capacity/in.size[i] && sizes+number*in.size[i] <= capacity-in.size[i] {
				out[i] = true
				found = append(found, int32(i))
			}
		}
		if len(found) == before {
			break
		}
	}
	return found
}

// restrict returns the instance of some of the items; its origin leads to in's items.
func (in *instance) restrict(items []int32) *instance {
	sub := &instance{align: in.align, origin: items, size: make([]int64, len(items)),
		first: make([]span, len(items)),
		width: make([]float64, len(items))}
	if in.second != nil {
		sub.second = make([]span, len(items))
	}
	if in.fixed != nil {
		sub.fixed = make([]int64, len(items))
	}
	// Ends by section, by counting: ends come before starts at one boundary.
	ends, starts := make([]int32, in.sections+2), make([]int32, in.sections+2)
	count := func(r span) {
		if r.lo < r.hi {
			starts[r.lo+1]++
			ends[r.hi+1]++
		}
	}
	total := 0
	for k, i := range items {
		sub.size[k], sub.width[k] = in.size[i], in.width[i]
		if in.fixed != nil {
			sub.fixed[k] = in.fixed[i]
		}
		a, b := in.stretches(i)
		count(a)
		count(b)
		total += 2
		if b.lo < b.hi {
			total += 2
		}
	}
	// at[s] is the next index for edges at boundary s: first its ends, then its starts
	endAt, startAt := make([]int32, in.sections+2), make([]int32, in.sections+2)
	at := int32(0)
	for s := 0; s <= in.sections; s++ {
		endAt[s] = at
		at += ends[s+1]
		startAt[s] = at
		at += starts[s+1]
	}
	edges := make([]edge, total)
	put := func(k int32, r span, start, end int8) {
		if r.lo < r.hi {
			edges[startAt[r.lo]] = edge{int64(r.lo), k, start}
			startAt[r.lo]++
			edges[endAt[r.hi]] = edge{int64(r.hi), k, end}
			endAt[r.hi]++
		}
	}
	for k, i := range items {
		a, b := in.stretches(i)
		put(int32(k), a, startFirst, endFirst)
		put(int32(k), b, startSecond, endSecond)
	}
	sub.sweep(edges)
	return sub
}

// components groups the items by stretches of time that no item crosses; nil if there is only one.
func (in *instance) components() [][]int32 {
	crossing := make([]int32, in.sections+1)
	for i := range in.size {
		lo, hi := in.hull(int32(i))
		crossing[lo]++
		crossing[hi-1]--
	}
	part := make([]int32, in.sections)
	parts, live := int32(0), int32(0)
	for s := range in.sections {
		part[s] = parts
		if live += crossing[s]; live == 0 {
			parts++
		}
	}
	if parts <= 1 {
		return nil
	}
	groups := make([][]int32, parts)
	for i := range in.size {
		g := part[in.first[i].lo]
		groups[g] = append(groups[g], int32(i))
	}
	return groups
}

// hull returns the sections from an item's first to its last.
func (in *instance) hull(i int32) (lo, hi int32) {
	a, b := in.stretches(i)
	if b.hi > b.lo {
		return a.lo, b.hi
	}
	return a.lo, a.hi
}

// assemble joins the cores' offsets with those of the peeled items and places the postponed ones.
func (in *instance) assemble(red reduction, solved [][]int64) []int64 {
	offsets := red.offsets
	for k, c := range red.cores {
		for i, at := range solved[k] {
			offsets[c.in.origin[i]] = c.base + at
		}
	}
	if len(red.later) == 0 {
		return offsets
	}
	late := make([]bool, len(in.size))
	for _, i := range red.later {
		late[i] = true
	}
	index := newRangeIndex(in)
	for i := range in.size {
		if !late[i] {
			index.place(in, int32(i), offsets[i])
		}
	}
	for _, i := range red.later {
		a, b := in.stretches(i)
		offsets[i] = index.choose(fitRule{first: true}, a, b, in.size[i])
		index.place(in, i, offsets[i])
	}
	return offsets
}
