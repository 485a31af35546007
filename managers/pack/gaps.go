package pack

import "math"

// Which gaps are left during a lifetime, and which of them does a rule take?
//
// The index of ranges answers with lists: merged ranges of whole windows and of runs of blocks, and windows
// whose tenancies must be looked at one by one. What is taken is the union of all; a gap of the union lies
// within a gap of every list. So nothing is united. We take those gaps of one list that are large enough, and
// cut out of them, list by list, what the other lists take, dropping at once whatever becomes smaller than
// the item. A galloping search in a merged list, or chunks in a window, skip what lies outside of the
// remaining gaps. Most lists are packed, so few gaps are left after the first.
//
//   - The list that reaches highest comes first: below its top its gaps bound the union's, and above the
//     union's top nothing need be searched.
//   - It is processed in strips of a few gaps, from below. First fit ends with the first gap that survives,
//     best fit with the first that is no larger than the item, which is soon found if tensors have few
//     different sizes.
//
// Complexity: for each list O(gaps left * log ranges + ranges within them), for a window its tenancies within
// the gaps left at worst; O(gaps in a strip) memory. Rejected: merging the lists pairwise before looking for
// gaps, which costs the sum of all lengths, ten times as many ranges as gaps survive; one gap at a time
// through all lists, which has no loop that stays within one list.

// strip is how many gaps of the first list are looked at together.
const strip = 64

// query is one question to the index, and the scratch that the next one uses again.
type query struct {
	lists       [][]addrRange // merged, none empty
	cursors     []int         // of each list: no range before it ends within or above the gaps to come
	scans       []scan
	gaps, spare []addrRange
}

// scan is a non-empty window, with the requested sections.
type scan struct {
	chunks []chunk
	during span
}

// choose returns the offset that the rule gives to size bytes during two runs of sections, the second of
// which may be empty.
func (x *rangeIndex) choose(rule fitRule, a, b span, size int64) int64 {
	q := &x.query
	q.lists, q.scans = q.lists[:0], q.scans[:0]
	x.gather(a)
	if b.lo < b.hi {
		x.gather(b)
	}
	c, least := newChoice(rule, size), rule.smallest(size)
	top := q.top()
	var first []addrRange
	if len(q.lists) > 0 {
		first = q.lists[0]
	}
	var below int64 // end of the range under the next gap
	for k, last := 0, false; !last; {
		q.gaps = q.gaps[:0]
		for ; k < len(first) && len(q.gaps) < strip; k++ {
			if first[k].lo-below >= least {
				q.gaps = append(q.gaps, addrRange{below, first[k].lo})
			}
			below = first[k].hi
		}
		if last = k == len(first); last && top-below >= least {
			q.gaps = append(q.gaps, addrRange{below, top})
		}
		if q.narrow(&c, least) {
			break
		}
	}
	return c.at(top)
}

// gather collects what is taken during s.
func (x *rangeIndex) gather(s span) {
	first, last := s.lo>>x.shift, (s.hi-1)>>x.shift
	x.look(first, s)
	if last > first+1 {
		x.look(last-1, s)
		x.collect(1, span{0, x.leaves}, span{first + 2, last - 1})
	}
}

// look collects what is taken in a window during s.
func (x *rangeIndex) look(block int32, s span) {
	if chunks := x.windows[block]; len(chunks) > 0 {
		x.scans = append(x.scans, scan{chunks, s})
	}
	if list := x.through[block]; len(list) > 0 {
		x.lists = append(x.lists, list)
	}
}

// collect collects what is taken in a run of blocks.
func (x *rangeIndex) collect(node int, covers, blocks span) {
	if max(covers.lo, blocks.lo) >= min(covers.hi, blocks.hi) {
		return
	}
	if blocks.lo <= covers.lo && covers.hi <= blocks.hi {
		if list := x.some[node]; len(list) > 0 {
			x.lists = append(x.lists, list)
		}
		return
	}
	mid := (covers.lo + covers.hi) / 2
	x.collect(2*node, span{covers.lo, mid}, blocks)
	x.collect(2*node+1, span{mid, covers.hi}, blocks)
}

// top puts the list that reaches highest first, and returns the end of all that is taken.
func (q *query) top() (top int64) {
	highest := 0
	q.cursors = q.cursors[:0]
	for k, list := range q.lists {
		if t := list[len(list)-1].hi; t > top {
			top, highest = t, k
		}
		q.cursors = append(q.cursors, 0)
	}
	if highest > 0 {
		q.lists[0], q.lists[highest] = q.lists[highest], q.lists[0]
	}
	for _, s := range q.scans {
		for k := len(s.chunks) - 1; k >= 0; k-- {
			if c := &s.chunks[k]; c.top > top {
				for i := range c.list {
					top = max(top, c.list[i].hi&c.list[i].lives(s.during))
				}
			}
		}
	}
	return top
}

// narrow cuts what all lists except the first take out of the gaps and offers the rest to the choice. It
// reports whether that is settled.
func (q *query) narrow(c *choice, least int64) bool {
	cuts := max(len(q.lists)-1, 0) + len(q.scans)
	if cuts == 0 {
		for _, g := range q.gaps {
			if c.offer(g) {
				return true
			}
		}
	}
	for k := range cuts {
		if len(q.gaps) == 0 {
			return false
		}
		to := sink{gaps: q.spare[:0]}
		if k == cuts-1 {
			to.choice = c
		}
		var settled bool
		if list := k + 1; list < len(q.lists) {
			q.cursors[list], settled = cut(&to, q.gaps, q.lists[list], q.cursors[list], least)
		} else {
			settled = q.scans[k-max(len(q.lists)-1, 0)].cut(&to, q.gaps, least)
		}
		if settled {
			return true
		}
		q.gaps, q.spare = to.gaps, q.gaps
	}
	return false
}

// sink receives the remaining gaps: for the next list or, after the last one, for the choice.
type sink struct {
	gaps   []addrRange
	choice *choice
}

// put takes a gap, and reports whether the choice is settled.
func (s *sink) put(g addrRange) bool {
	if s.choice != nil {
		return s.choice.offer(g)
	}
	s.gaps = append(s.gaps, g)
	return false
}

// cut cuts the ranges of a merged list out of gaps, drops what is smaller than least, and returns where the
// list's next gaps begin. It stops once the choice is settled.
func cut(to *sink, gaps, list []addrRange, k int, least int64) (cursor int, settled bool) {
	for _, g := range gaps {
		k = firstAbove(list, k, g.lo)
		lo := g.lo
		for ; k < len(list) && list[k].lo < g.hi; k++ {
			if list[k].lo-lo >= least && to.put(addrRange{lo, list[k].lo}) {
				return k, true
			}
			lo = list[k].hi
		}
		if g.hi-lo >= least && to.put(addrRange{lo, g.hi}) {
			return k, true
		}
		k = max(k-1, 0) // the last one may reach into the next gap
	}
	return k, false
}

// firstAbove returns the index of the first range from k on that ends above an address, by galloping: it is
// near more often than not.
func firstAbove(list []addrRange, k int, address int64) int {
	step := 1
	for k+step <= len(list) && list[k+step-1].hi <= address {
		k += step
		step *= 2
	}
	for end := min(k+step-1, len(list)); k < end; {
		if mid := int(uint(k+end) / 2); list[mid].hi <= address {
			k = mid + 1
		} else {
			end = mid
		}
	}
	return k
}

// cut cuts what the window's tenancies take out of gaps, of which there is at least one; otherwise it is like
// cut for a merged list.
func (s *scan) cut(to *sink, gaps []addrRange, least int64) (settled bool) {
	lo, hi := gaps[0].lo, gaps[0].hi // the rest of the first of the gaps
	for k := range s.chunks {
		c := &s.chunks[k]
		for c.list[0].lo >= hi {
			if gaps, lo, settled = next(to, gaps, lo, least); len(gaps) == 0 {
				return settled
			}
			hi = gaps[0].hi
		}
		if c.top <= lo {
			continue
		}
		for i := range c.list {
			e := &c.list[i]
			lives := e.lives(s.during)
			from := e.lo & lives // one that lives at another time is an empty range at address 0
			for from >= hi {
				if gaps, lo, settled = next(to, gaps, lo, least); len(gaps) == 0 {
					return settled
				}
				hi = gaps[0].hi
			}
			if from-lo >= least && to.put(addrRange{lo, from}) {
				return true
			}
			lo = max(lo, e.hi&lives)
		}
	}
	for len(gaps) > 0 {
		gaps, lo, settled = next(to, gaps, lo, least)
	}
	return settled
}

// next emits the rest of the first of the gaps above lo, and returns the other gaps with the rest of the next
// one; none if the choice is settled.
func next(to *sink, gaps []addrRange, lo, least int64) (rest []addrRange, from int64, settled bool) {
	if hi := gaps[0].hi; hi-lo >= least && to.put(addrRange{lo, hi}) {
		return nil, 0, true
	}
	if rest = gaps[1:]; len(rest) > 0 {
		from = max(lo, rest[0].lo)
	}
	return rest, from, false
}

// lives returns all bits set if the tenancy overlaps the sections, none otherwise. Whether the next one
// overlaps is unpredictable, and a branch on it costs more than everything else.
func (e *tenancy) lives(s span) int64 { return int64((e.from-s.hi)&(s.lo-e.to)) >> 63 }

// choice is what a rule chooses among the gaps that it is offered from below.
type choice struct {
	rule   fitRule
	size   int64
	gap    int64 // the length of the chosen one, math.MaxInt64 if there is none
	offset int64
}

func newChoice(rule fitRule, size int64) choice {
	return choice{rule: rule, size: size, gap: math.MaxInt64}
}

// offer considers a gap, and reports whether no later one can be better.
func (c *choice) offer(g addrRange) (settled bool) {
	if c.rule.quirk && c.offset == 0 && g.lo > 0 {
		c.gap = math.MaxInt64 // there is more than one range, so that the gap below the first does not count
	}
	if gap := g.hi - g.lo; gap >= c.size && gap < c.gap {
		c.gap, c.offset = gap, g.lo
		return (c.rule.first || gap == c.size) && (g.lo > 0 || !c.rule.quirk)
	}
	return false
}

// at returns the chosen offset, or top if no gap fits.
func (c *choice) at(top int64) int64 {
	if c.gap == math.MaxInt64 {
		return top
	}
	return c.offset
}
