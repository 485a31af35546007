package allocator

// What the caching allocator returns to the driver, and when: everything unused before a request fails or
// when the user asks for it, single blocks beyond max_split_size_mb before that, and old blocks if
// garbage_collection_threshold is set.

// releaseBlock gives a whole unsplit segment back (release_block).
func (a *heap) releaseBlock(r ref) error {
	b := a.slab.at(r)
	p := &a.pools[b.pool]
	if err := a.c.Driver.Free(b.addr); err != nil {
		return err
	}
	p.free.erase(&a.slab, r)
	a.stats.DriverFrees++
	a.stats.Synchronisations++
	a.stats.Reserved -= b.size
	p.segments--
	e := SegmentEvent{SegmentFree, b.addr, b.size, b.stream, p.id, p.small}
	a.slab.remove(r)
	a.c.emit(e)
	return nil
}

// releaseCached waits for all events and releases all wholly unused memory of the default pool
// (release_cached_blocks).
func (a *Caching) releaseCached() error {
	a.stats.Synchronisations++
	a.scratch = a.delayed.poll(&a.slab, a.scratch[:0], true)
	for _, r := range a.scratch {
		a.freed(r)
	}
	if err := a.releasePool(largePool); err != nil {
		return err
	}
	return a.releasePool(smallPool)
}

// releasePool gives back the wholly unused of one pool, in order of the set (release_blocks).
func (a *heap) releasePool(pool int32) error {
	free := &a.pools[pool].free
	expandable := a.scratch[:0]
	for r := free.first(&a.slab); r != 0; {
		next := free.after(&a.slab, r)
		if b := a.slab.at(r); b.segment != 0 {
			expandable = append(expandable, r) // unmapping changes the set
		} else if !b.split() {
			if err := a.releaseBlock(r); err != nil {
				return err
			}
		}
		r = next
	}
	a.scratch = expandable
	for _, r := range expandable {
		if err := a.unmapBlock(r); err != nil {
			return err
		}
	}
	return nil
}

// releaseAvailable gives back just enough blocks beyond max_split_size_mb for a request: one that is large
// enough, or else the largest ones of the stream. It reports whether that may be enough
// (release_available_cached_blocks). PyTorch relies on no such block being part of a segment; in a state
// restored under another limit some are, and those are skipped.
func (a *heap) releaseAvailable(pool int32, rounded int64, stream Stream) (bool, error) {
	if a.set.MaxSplitSize == 0 {
		return false, nil
	}
	s, free := &a.slab, &a.pools[pool].free
	k := key{stream: stream, size: max(rounded, a.set.MaxSplitSize)}
	for r := free.atLeast(s, k); r != 0 && s.at(r).stream == stream &&
		s.at(r).segment == 0; r = free.after(s, r) {
		if !s.at(r).split() {
			return true, a.releaseBlock(r)
		}
	}
	var total int64
	for r := free.below(s, k); r != 0 && total < k.size; {
		b := s.at(r)
		if !a.set.oversize(b.size) || b.stream != stream {
			break
		}
		next := free.below(s, free.keyOf(b))
		if b.segment == 0 && !b.split() {
			total += b.size
			if err := a.releaseBlock(r); err != nil {
				return false, err
			}
		}
		r = next
	}
	return total >= k.size, nil
}

// collectGarbage releases unsplit large blocks that were long unused, when more than the threshold's share of
// the cap is held (garbage_collect_cached_blocks).
func (a *heap) collectGarbage() error {
	for _, r := range a.garbage(0) {
		if err := a.releaseBlock(r); err != nil {
			return err
		}
	}
	return nil
}

// garbage returns the blocks that collectGarbage releases, in order, after some more searches of the large
// pool. A block's age is how many searches its pool saw since the block was freed. Each sweep releases all
// blocks of at least average age; the average is computed again for the next sweep, until enough is released.
func (a *heap) garbage(searches int64) []ref {
	target := a.stats.Reserved - int64(a.set.GarbageCollectionThreshold*float64(a.c.Cap))
	if target <= 0 {
		return nil
	}
	s, p := &a.slab, &a.pools[largePool]
	age := func(r ref) int64 { return p.searches + searches - s.at(r).age }
	old := a.scratch[:0]
	var total int64
	for r := p.free.first(s); r != 0; r = p.free.after(s, r) {
		if b := s.at(r); !b.split() && b.segment == 0 {
			total += age(r)
			old = append(old, r)
		}
	}
	a.scratch = old
	var chosen []ref
	var reclaimed int64
	for more := true; reclaimed < target && more && len(old) > 0; {
		threshold := float64(total) / float64(len(old))
		more = false
		kept := old[:0]
		for _, r := range old {
			if float64(age(r)) < threshold {
				kept = append(kept, r)
				continue
			}
			more = true
			reclaimed += s.at(r).size
			total -= age(r)
			chosen = append(chosen, r)
		}
		old = kept
	}
	return chosen
}
