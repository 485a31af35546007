package allocator

// All policies keep their blocks in one slab of pointer-free structs and refer to them by index, so a replay
// of a million events makes no garbage and the collector has nothing to scan. A block is in at most one
// ordered set at a time, so the set's links (see set.go) are part of it.

// ref indexes a slab; 0 is no block.
type ref int32

// block is a stretch of addresses: a block, a hole, or a stretch not mapped.
type block struct {
	addr      uint64
	size      int64
	requested int64
	age       int64 // see Caching.collectGarbage
	born      int64 // number of its segment, or its own, if the rules order equal blocks by it

	left, right ref // links within an ordered set
	prev, next  ref // neighbours by address within a segment

	priority   uint32
	generation uint32 // odd while the slot is in use
	stream     Stream
	pool       int32 // index of the policy's pools
	segment    int32 // 1 + index of the policy's expandable segments, 0 for none
	events     int32 // outstanding events
	state      BlockState
	unmapped   bool
	used       bool // on other streams, see delayed
}

// split reports whether the block is part of a segment rather than a whole segment.
func (b *block) split() bool { return b.prev != 0 || b.next != 0 }

func (b *block) end() uint64 { return b.addr + uint64(b.size) }

// slab holds blocks; free slots are linked through next.
type slab struct {
	all  []block
	free ref
}

func (s *slab) at(r ref) *block { return &s.all[r] }

// add returns a new block, all zero but for its priority and generation.
func (s *slab) add() ref {
	if len(s.all) == 0 {
		s.all = append(s.all, block{})
	}
	r := s.free
	if r == 0 {
		s.all = append(s.all, block{})
		r = ref(len(s.all) - 1)
	} else {
		s.free = s.all[r].next
	}
	generation := s.all[r].generation + 1
	s.all[r] = block{generation: generation, priority: mix(uint64(r)<<32 | uint64(generation))}
	return r
}

func (s *slab) remove(r ref) {
	b := &s.all[r]
	*b = block{generation: b.generation + 1, next: s.free}
	s.free = r
}

// mix is the finaliser of SplitMix64: a treap's priorities must look random, but need not be.
func mix(x uint64) uint32 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return uint32((x ^ x>>31) >> 32)
}

// handle returns the value that the user gets for a block.
func (s *slab) handle(r ref) Block {
	b := &s.all[r]
	return Block{Addr: b.addr, Size: b.size, Requested: b.requested, Stream: b.stream, ref: r,
		generation: b.generation}
}

// find returns the block of a user's value, 0 if it is not allocated.
func (s *slab) find(h Block) ref {
	if h.ref <= 0 || int(h.ref) >= len(s.all) {
		return 0
	}
	if b := &s.all[h.ref]; b.generation != h.generation || b.state != Allocated {
		return 0
	}
	return h.ref
}

// splice links r in between two neighbours, either of which may be 0.
func (s *slab) splice(r, prev, next ref) {
	b := &s.all[r]
	b.prev, b.next = prev, next
	if prev != 0 {
		s.all[prev].next = r
	}
	if next != 0 {
		s.all[next].prev = r
	}
}

// cut splits block r after size bytes and returns the rest, linked in behind it and in the state of a hole;
// it is in no set.
func (s *slab) cut(r ref, size int64) ref {
	rest := s.add()
	b, c := &s.all[r], &s.all[rest]
	c.addr, c.size = b.addr+uint64(size), b.size-size
	c.stream, c.pool, c.segment, c.unmapped, c.born = b.stream, b.pool, b.segment, b.unmapped, b.born
	b.size = size
	s.splice(rest, r, b.next)
	return rest
}
