package pack

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
)

// The search for a packing under a capacity.
//
// It walks canonical packings, where every item rests on address 0 or on another item, bottom up. Each
// section keeps a floor, below which nothing more will be put, and each item still to place a lowest offset,
// the highest floor of its sections. Where a section's floor plus what it still has to hold exceeds the
// capacity, the branch is dead (MiniMalloc, Moffitt and others, "MiniMalloc: A Lightweight Memory Allocator
// for Hardware-Accelerated Machine Learning", ASPLOS 2023, calls this section inference). Like it we raise a
// section's floor to the lowest offset any of its items can have, and solve stretches of time that no
// remaining item crosses apart. The rest is ours:
//
//   - Branching. MiniMalloc asks which item comes next in one global order of offsets, so that choices in
//     unrelated valleys interleave. Here a node picks one section t of a valley (a run of equal floors with
//     higher neighbours, so that an item which can lie on its floor lies in it whole) and asks what covers
//     the floor of t: one of the items that can lie there, or nothing. The answers exclude each other, no two
//     paths meet the same packing, and t may be chosen where there is least choice. "Nothing" is possible
//     only if the section has slack, and raises the floor to the next place an item of t could rest on.
//   - Learning. Every time a section kills a branch its weight grows, and choice / weight picks the section
//     (dom/wdeg, Boussemart and others, ECAI 2004). Weights survive restarts, which is what makes restarts
//     pay.
//   - Release bound. In a section, items whose lowest offset is at least r need the sum of their sizes above
//     r, for every r: the one machine bound of Jackson, with offsets as release times.
//   - Failed states. What is left of a stretch is fully described by which items remain, the floors, and
//     which floors are tops of placed items. States that failed are kept in a table under a 128-bit hash. A
//     collision could hide a packing; for 2^40 states its probability is below 2^-47.
//   - Support. An item is not placed on a floor that no placed item reaches: such a packing is not canonical.
//   - Twins. Of items with equal size and sections the first comes first.
//
// A node costs the members of the sections whose floor changes. Rejected: adjacency lists with pairwise order
// variables, as in scheduling (propagation costs more than it prunes on these problems); stacking order among
// items of equal sections (the table already catches it, and together they are not sound).

// sectionState is the part of a section that is restored on backtracking.
type sectionState struct {
	floor int64 // no item still to be placed in the section is lower
	cand  int32 // how many of them have floor as their lowest offset
	real  bool  // floor is 0 or the top of a placed item
}

// trailEntry is one change to undo.
type trailEntry struct {
	kind int8
	idx  int32
	off  int64
	sec  sectionState
}

const (
	trailMin int8 = iota
	trailSection
	trailPlace
)

// knobs switch off mechanisms, for tests of what each is worth.
type knobs struct {
	lowest  bool // branch on the lowest floor only
	jackson bool // the release bound
	table   bool // remember failed states
	support bool // nothing on a floor that no placed item reaches
	weights bool // prefer sections that failed often
	twins   bool // equal items in one order only
}

// allKnobs is the search as it is meant to be.
var allKnobs = knobs{jackson: true, table: true, support: true, weights: true, twins: true}

// searcher is one member's search: its state is the partial packing, and the trail that undoes it.
type searcher struct {
	g   *graph
	in  *instance
	cap int64
	k   knobs

	sec      []sectionState // the restorable part, by section
	rem      []int64        // bytes still to place, by section
	cnt      []int32        // items still to place, by section
	cross    []int32        // unplaced items across the boundary of s and s+1
	member   []int32        // graph.member, those still to place first
	slot     []int32        // where an item stands in its section's list, see slotOf
	minOff   []int64        // the lowest offset an item can have
	off      []int64        // an item's offset, -1 while it has none
	rank     []int32        // order in which items are tried
	trail    []trailEntry   // changes, to undo them
	dirty    []int32        // sections to settle
	mark     []bool         // whether a section is in dirty
	late     []int32        // sections whose release bound has to be looked at
	lateMark []bool         // whether a section is in late
	wt       []float64      // 1 + how often a section killed a branch
	cands    []int32        // candidates of all open nodes, a stack

	secHash [][2]uint64 // by section: xor of keys of unplaced items that begin there
	key     [][2]uint64 // by item
	table   [][2]uint64

	ctx                  context.Context
	winner               *atomic.Int32
	self                 int32
	nodes                int64
	scanned              int64 // members and sections looked at
	nodeLimit, stepLimit int64
	aborted              bool
	scratch              []release
}

// solve packs what is left in sections [a, b), one connected stretch after the other. When one fails the
// others are not tried again.
func (s *searcher) solve(a, b int32) bool {
	from := a
	mark := len(s.trail)
	for t := a; t < b; t++ {
		if t+1 < b && s.cross[t] > 0 {
			continue
		}
		if !s.connected(from, t+1) {
			if !s.aborted {
				s.undo(mark)
			}
			return false
		}
		from = t + 1
	}
	return true
}

// connected packs what is left in a stretch that does not fall apart.
func (s *searcher) connected(a, b int32) bool {
	any := false
	for t := a; t < b; t++ {
		if s.cnt[t] > 0 {
			any = true
			break
		}
	}
	if !any {
		return true
	}
	s.nodes++
	if s.nodes >= s.nodeLimit || s.steps() >= s.stepLimit || s.nodes%64 == 0 &&
		(s.winner.Load() < s.self || s.ctx.Err() != nil) {
		s.aborted = true
		return false
	}
	var hash [2]uint64
	if s.k.table {
		hash = s.stateHash(a, b)
		if s.table[hash[0]&uint64(len(s.table)-1)] == hash {
			return false
		}
	}
	t := s.choose(a, b)
	floor := s.sec[t].floor
	from := len(s.cands)
	base := s.g.memberAt[t]
	for _, i := range s.member[base : base+s.cnt[t]] {
		if s.minOff[i] != floor {
			continue
		}
		if w := s.g.twin[i]; s.k.twins && w >= 0 && s.off[w] < 0 {
			continue
		}
		if s.k.support && !s.supported(i) {
			continue
		}
		s.cands = append(s.cands, i)
	}
	to := len(s.cands)
	slices.SortFunc(s.cands[from:to], func(x, y int32) int { return int(s.rank[x] - s.rank[y]) })
	mark := len(s.trail)
	for k := from; k < to; k++ {
		i := s.cands[k]
		if s.place(i) && s.solve(a, b) {
			return true
		}
		if s.aborted {
			return false
		}
		s.undo(mark)
	}
	s.cands = s.cands[:from]
	if s.lift(t) && s.solve(a, b) {
		return true
	}
	if s.aborted {
		return false
	}
	s.undo(mark)
	if s.k.table {
		s.table[hash[0]&uint64(len(s.table)-1)] = hash
	}
	return false
}

// steps is the work done: the nodes, and what was scanned by the scansPerStep.
func (s *searcher) steps() int64 { return s.nodes + s.scanned/scansPerStep }

const scansPerStep = 512

// supported reports whether the item, at its lowest offset, rests on a placed item or on address 0.
func (s *searcher) supported(i int32) bool {
	at := s.minOff[i]
	if at == 0 || s.in.fixed != nil && s.in.fixed[i] >= 0 {
		return true
	}
	a, b := s.in.stretches(i)
	for _, r := range [2]span{a, b} {
		for t := r.lo; t < r.hi; t++ {
			if s.sec[t].real && s.sec[t].floor == at {
				return true
			}
		}
	}
	return false
}

// lift leaves the floor of section t empty: its lowest item then rests elsewhere, on an item that is not in
// t.
func (s *searcher) lift(t int32) bool {
	floor := s.sec[t].floor
	if floor+s.rem[t] >= s.cap {
		return false
	}
	base := s.g.memberAt[t]
	to := int64(math.MaxInt64)
	for _, i := range s.member[base : base+s.cnt[t]] {
		if s.minOff[i] != floor {
			to = min(to, s.minOff[i])
		}
	}
	for _, i := range s.member[base : base+s.cnt[t]] {
		if s.minOff[i] != floor {
			continue
		}
		for _, k := range s.g.nbr[s.g.nbrAt[i]:s.g.nbrAt[i+1]] {
			if s.off[k] >= 0 || s.minOff[k]+s.in.size[k] >= to || s.lives(k, t) {
				continue
			}
			to = s.minOff[k] + s.in.size[k]
		}
	}
	if to == math.MaxInt64 || to+s.rem[t] > s.cap {
		return false
	}
	for _, i := range s.member[base : base+s.cnt[t]] {
		if !s.raise(i, to) {
			s.clearDirty()
			return false
		}
	}
	return s.settle()
}

// lives reports whether the item lives in the section.
func (s *searcher) lives(i, t int32) bool {
	a, b := s.in.stretches(i)
	return a.lo <= t && t < a.hi || b.lo <= t && t < b.hi
}

// stateHash hashes what is left of a stretch.
func (s *searcher) stateHash(a, b int32) [2]uint64 {
	h := [2]uint64{uint64(a), uint64(b)}

	for t := a; t < b; t++ {
		h[0] ^= s.secHash[t][0]
		h[1] ^= s.secHash[t][1]
		if s.cnt[t] == 0 {
			continue
		}
		v := uint64(s.sec[t].floor)<<1 | 1
		if s.sec[t].real {
			v ^= 1
		}
		x := mix(v ^ uint64(t)<<44)
		h[0] += x
		h[1] += x*0x9fb21c651e98df25 ^ x>>29
	}
	if h == [2]uint64{} {
		h[1] = 1
	}
	return h
}

// choose picks the section to branch on: of the lowest floor and of the valleys, the one with the least
// choice for its weight.
func (s *searcher) choose(a, b int32) int32 {
	best, bestScore := int32(-1), math.Inf(1)
	lowest := int64(math.MaxInt64)
	for t := a; t < b; t++ {
		if s.cnt[t] > 0 {
			lowest = min(lowest, s.sec[t].floor)
		}
	}
	for t := a; t < b; {
		if s.cnt[t] == 0 {
			t++
			continue
		}
		// a run of one floor
		f := s.sec[t].floor
		u := t + 1
		for u < b && s.cnt[u] > 0 && s.sec[u].floor == f {
			u++
		}
		valley := (t == a || s.cnt[t-1] == 0 || s.sec[t-1].floor > f) &&
			(u == b || s.cnt[u] == 0 || s.sec[u].floor > f)
		if f == lowest || valley && !s.k.lowest && s.in.second == nil {
			for v := t; v < u; v++ {
				c := float64(s.sec[v].cand)
				slack := s.cap - f - s.rem[v]
				if slack > 0 {
					c += 1
				}
				score := c
				if s.k.weights {
					score /= s.wt[v]
				}
				if s.sec[v].cand == 1 && slack == 0 {
					return v
				}
				if score < bestScore || score == bestScore && f < s.sec[best].floor {
					best, bestScore = v, score
				}
			}
		}
		t = u
	}
	return best
}
