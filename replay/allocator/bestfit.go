package allocator

// bestFit divides one or more regions of addresses into blocks and holes: the smallest hole that fits, the
// lowest of equal ones, split where the request ends, neighbours coalesced at once. It is the arena's policy,
// and the simulated driver hands out addresses with it. O(log n) for each operation. Blocks here have no
// stream; the pool field says who used a hole last.
type bestFit struct {
	slab  slab
	holes set
}

// addRegion adds [addr, addr+size) as one hole, which never coalesces with another region.
func (f *bestFit) addRegion(addr uint64, size int64) ref {
	r := f.slab.add()
	b := f.slab.at(r)
	b.addr, b.size = addr, size
	f.holes.insert(&f.slab, r)
	return r
}

// removeRegion removes a region that is one hole.
func (f *bestFit) removeRegion(r ref) {
	f.holes.erase(&f.slab, r)
	f.slab.remove(r)
}

// fit returns the hole that a request would get, 0 for none.
func (f *bestFit) fit(size int64) ref { return f.holes.atLeast(&f.slab, key{size: size}) }

// take makes the first size bytes of a hole a block and leaves the rest, if any, a hole. The slot stays the
// block's.
func (f *bestFit) take(r ref, size int64) {
	f.holes.erase(&f.slab, r)
	if f.slab.at(r).size > size {
		f.holes.insert(&f.slab, f.slab.cut(r, size))
	}
	f.slab.at(r).state = Allocated
}

// give makes a block a hole again and returns the hole, which its neighbours have become part of.
func (f *bestFit) give(r ref) ref {
	s := &f.slab
	b := s.at(r)
	b.state, b.requested = Inactive, 0
	if p := b.prev; p != 0 && s.at(p).state == Inactive {
		f.holes.erase(s, p)
		f.absorb(p, r)
		r, b = p, s.at(p)
	}
	if n := b.next; n != 0 && s.at(n).state == Inactive {
		f.holes.erase(s, n)
		f.absorb(r, n)
	}
	f.holes.insert(s, r)
	return r
}

// absorb appends n to its predecessor r; neither is in the set.
func (f *bestFit) absorb(r, n ref) {
	s := &f.slab
	b, c := s.at(r), s.at(n)
	b.size += c.size
	if b.pool != c.pool {
		switch {
		case b.pool == nobody:
			b.pool = c.pool
		case c.pool != nobody:
			b.pool = mixed
		}
	}
	s.splice(r, b.prev, c.next)
	if c.next == 0 {
		b.next = 0
	}
	s.remove(n)
}

// Who used a hole last: nobody, several streams, or 1 + a stream.
const (
	nobody int32 = 0
	mixed  int32 = -1
)

// lastHole returns the hole that ends at an address, 0 if a block ends there. It visits every block.
func (f *bestFit) lastHole(end uint64) ref {
	for i := range f.slab.all {
		if b := &f.slab.all[i]; b.generation%2 == 1 && b.state == Inactive && b.end() == end {
			return ref(i)
		}
	}
	return 0
}

// firstBlock returns the block or hole with the lowest address, 0 if there is none. It visits every block.
func (f *bestFit) firstBlock() ref {
	var first ref
	for i := range f.slab.all {
		if b := &f.slab.all[i]; b.generation%2 == 1 && (first == 0 || b.addr < f.slab.at(first).addr) {
			first = ref(i)
		}
	}
	return first
}
