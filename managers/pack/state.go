package pack

import "math"

// The partial packing of a search: placing an item, what follows from it, and taking it back. Everything is
// undone through one trail, last change first, so that the sparse lists of a section's remaining items need
// no copy: removing an item swaps it behind the end, and going back only moves the end.

// release is an item of the release bound.
type release struct{ at, size int64 }

// newSearcher returns a search under the capacity; reset makes it ready.
func newSearcher(g *graph, capacity int64, k knobs) *searcher {
	in := g.in
	n := len(in.size)
	s := &searcher{g: g, in: in, cap: capacity, k: k,
		sec: make([]sectionState, in.sections), rem: make([]int64, in.sections),
		cnt:   make([]int32, in.sections),
		cross: make([]int32, in.sections), member: make([]int32, len(g.member)),
		slot:   make([]int32, g.slotAt[n]),
		minOff: make([]int64, n), off: make([]int64, n), wt: make([]float64, in.sections),
		mark: make([]bool, in.sections), lateMark: make([]bool, in.sections),
		rank: make([]int32, n), secHash: make([][2]uint64, in.sections), key: make([][2]uint64, n)}
	for i := range s.wt {
		s.wt[i] = 1
	}
	for i := range n {
		s.key[i] = [2]uint64{mix(uint64(i)*2 + 1), mix(uint64(i)*2 + 0x123456789abcd)}
	}
	return s
}

// growTable makes the table of failed states fit the node limit; growing forgets what it held.
func (s *searcher) growTable() {
	const least, most = 1 << 12, 1 << 20
	size := least
	for size < most && int64(size) < s.nodeLimit {
		size *= 2
	}
	if s.k.table && size > len(s.table) {
		s.table = make([][2]uint64, size)
	}
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// reset returns to the empty packing. It reports false if that already exceeds the capacity.
func (s *searcher) reset() bool {
	in, g := s.in, s.g
	copy(s.member, g.member)
	copy(s.rem, in.load)
	for i := range s.sec {
		s.sec[i] = sectionState{real: true}
		s.cnt[i] = g.memberAt[i+1] - g.memberAt[i]
		s.cross[i] = 0
		s.secHash[i] = [2]uint64{}
		for k, j := range g.member[g.memberAt[i]:g.memberAt[i+1]] {
			s.slot[s.slotOf(j, int32(i))] = int32(k)
		}
	}
	for i := range s.off {
		s.off[i], s.minOff[i] = -1, 0
		if in.fixed != nil && in.fixed[i] >= 0 {
			s.minOff[i] = in.fixed[i]
		}
		lo, hi := s.in.hull(int32(i))
		for t := lo; t+1 < hi; t++ {
			s.cross[t]++
		}
		s.secHash[lo][0] ^= s.key[i][0]
		s.secHash[lo][1] ^= s.key[i][1]
	}
	s.trail, s.cands = s.trail[:0], s.cands[:0]
	s.clearDirty()
	s.aborted = false
	for t := range s.sec {
		s.mark[t] = true
		s.dirty = append(s.dirty, int32(t))
	}
	return s.settle()
}

// slotOf returns where slot holds the item's place in the section's list.
func (s *searcher) slotOf(i, sec int32) int32 {
	a := s.in.first[i]
	if sec < a.hi && sec >= a.lo {
		return s.g.slotAt[i] + sec - a.lo
	}
	return s.g.slotAt[i] + (a.hi - a.lo) + sec - s.in.second[i].lo
}

// settle recomputes the dirty sections; it reports false if one cannot hold what is left.
func (s *searcher) settle() bool {
	ok := true
	for _, t := range s.dirty {
		s.mark[t] = false
		if !ok || s.cnt[t] == 0 {
			continue
		}
		base := s.g.memberAt[t]
		s.scanned += int64(s.cnt[t])
		m, worst, cand := int64(math.MaxInt64), int64(0), int32(0)
		for _, i := range s.member[base : base+s.cnt[t]] {
			o := s.minOff[i]
			worst = max(worst, o)
			if o < m {
				m, cand = o, 1
			} else if o == m {
				cand++
			}
		}
		cur := &s.sec[t]
		if m != cur.floor || cand != cur.cand {
			s.trail = append(s.trail, trailEntry{kind: trailSection, idx: t, sec: *cur})
			if m > cur.floor {
				cur.floor, cur.real = m, false
			}
			cur.cand = cand
		}
		slack := s.cap - cur.floor - s.rem[t]
		if slack < 0 {
			s.wt[t]++
			ok = false
		} else if s.k.jackson && worst-m > slack && !s.jackson(t, base, slack) {
			s.wt[t]++
			ok = false
		}
	}
	s.dirty = s.dirty[:0]
	for _, t := range s.late {
		s.lateMark[t] = false
		if !ok || s.cnt[t] == 0 {
			continue
		}
		s.scanned += int64(s.cnt[t])
		if !s.jackson(t, s.g.memberAt[t], s.cap-s.sec[t].floor-s.rem[t]) {
			s.wt[t]++
			ok = false
		}
	}
	s.late = s.late[:0]
	return ok
}

// jackson is the release bound on section t, whose members start at base: false if it exceeds the capacity.
func (s *searcher) jackson(t, base int32, slack int64) bool {
	members := s.member[base : base+s.cnt[t]]
	floor := s.sec[t].floor
	ground := floor + slack
	for _, i := range members {
		if s.minOff[i] == floor {
			ground += s.in.size[i]
		}
	}
	rel := s.scratch[:0]
	var sum, worst int64
	for _, i := range members {
		if o := s.minOff[i]; o > ground {
			rel = append(rel, release{o, s.in.size[i]})
			sum += s.in.size[i]
			worst = max(worst, o)
		}
	}
	s.scratch = rel
	if worst+sum <= s.cap {
		return true
	}
	// insertion sort by release, descending
	for a := 1; a < len(rel); a++ {
		x := rel[a]
		b := a
		for b > 0 && rel[b-1].at < x.at {
			rel[b] = rel[b-1]
			b--
		}
		rel[b] = x
	}
	sum = 0
	for _, r := range rel {
		sum += r.size
		if r.at+sum > s.cap {
			return false
		}
	}
	return true
}

// touch marks a section for settle.
func (s *searcher) touch(t int32) {
	if !s.mark[t] {
		s.mark[t] = true
		s.dirty = append(s.dirty, t)
	}
}

// raise lifts the lowest offset of an unplaced item.
func (s *searcher) raise(i int32, to int64) bool {
	if s.minOff[i] >= to {
		return true
	}
	if s.in.fixed != nil && s.in.fixed[i] >= 0 {
		return false
	}
	s.trail = append(s.trail, trailEntry{kind: trailMin, idx: i, off: s.minOff[i]})
	from := s.minOff[i]
	s.minOff[i] = to
	a, b := s.in.stretches(i)
	s.scanned += int64(a.hi - a.lo + b.hi - b.lo)
	for _, r := range [2]span{a, b} {
		for t := r.lo; t < r.hi; t++ {
			cur := &s.sec[t]
			if cur.floor == from {
				if cur.cand--; cur.cand == 0 {
					s.touch(t)
				}
			}
			if s.k.jackson && !s.lateMark[t] && to > s.cap-s.rem[t] && !s.mark[t] {
				s.lateMark[t] = true
				s.late = append(s.late, t)
			}
		}
	}
	return true
}

// clearDirty forgets what settle would have done.
func (s *searcher) clearDirty() {
	for _, t := range s.dirty {
		s.mark[t] = false
	}
	for _, t := range s.late {
		s.lateMark[t] = false
	}
	s.dirty, s.late = s.dirty[:0], s.late[:0]
}

// place puts item i at its lowest offset.
func (s *searcher) place(i int32) bool {
	at := s.minOff[i]
	top := at + s.in.size[i]
	s.trail = append(s.trail, trailEntry{kind: trailPlace, idx: i})
	s.off[i] = at
	a, b := s.in.stretches(i)
	for _, r := range [2]span{a, b} {
		for t := r.lo; t < r.hi; t++ {
			s.trail = append(s.trail, trailEntry{kind: trailSection, idx: t, sec: s.sec[t]})
			s.sec[t].floor, s.sec[t].real = top, true
			s.rem[t] -= s.in.size[i]
			base := s.g.memberAt[t]
			s.cnt[t]--
			last := s.member[base+s.cnt[t]]
			k := s.slot[s.slotOf(i, t)]
			s.member[base+k], s.member[base+s.cnt[t]] = last, i
			s.slot[s.slotOf(last, t)], s.slot[s.slotOf(i, t)] = k, s.cnt[t]
			s.touch(t)
		}
	}
	lo, hi := s.in.hull(i)
	for t := lo; t+1 < hi; t++ {
		s.cross[t]--
	}
	s.secHash[lo][0] ^= s.key[i][0]
	s.secHash[lo][1] ^= s.key[i][1]
	for _, k := range s.g.nbr[s.g.nbrAt[i]:s.g.nbrAt[i+1]] {
		if s.off[k] < 0 && !s.raise(k, top) {
			s.clearDirty()
			return false
		}
	}
	return s.settle()
}

// unplace reverses place, except for what the trail restores.
func (s *searcher) unplace(i int32) {
	a, b := s.in.stretches(i)
	for _, r := range [2]span{a, b} {
		for t := r.lo; t < r.hi; t++ {
			s.rem[t] += s.in.size[i]
			s.cnt[t]++
		}
	}
	lo, hi := s.in.hull(i)
	for t := lo; t+1 < hi; t++ {
		s.cross[t]++
	}
	s.secHash[lo][0] ^= s.key[i][0]
	s.secHash[lo][1] ^= s.key[i][1]
	s.off[i] = -1
}

// undo goes back to where the trail had the given length.
func (s *searcher) undo(to int) {
	for k := len(s.trail) - 1; k >= to; k-- {
		e := &s.trail[k]
		switch e.kind {
		case trailMin:
			s.minOff[e.idx] = e.off
			a, b := s.in.stretches(e.idx)
			for _, r := range [2]span{a, b} {
				for t := r.lo; t < r.hi; t++ {
					if s.sec[t].floor == e.off {
						s.sec[t].cand++
					}
				}
			}
		case trailSection:
			s.sec[e.idx] = e.sec
		case trailPlace:
			s.unplace(e.idx)
		}
	}
	s.trail = s.trail[:to]
}
