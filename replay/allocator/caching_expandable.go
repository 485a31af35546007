package allocator

import (
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// Expandable segments (expandable_segments:True): instead of a segment for each request that finds no hole,
// one range of addresses for each pool and stream, large enough for the whole device (1 1/8 of its memory),
// into which memory is mapped from the front as needed, in pages of 2 MiB (small pool) or 20 MiB (large
// pool). Holes at the end then merge with newly mapped memory, so requests that grow from step to step leave
// no slivers.
//
// The unmapped parts of a range are blocks, too, in a set of their own by address. A request takes the lowest
// place where adjacent free and unmapped blocks have room (find_expandable_block), and maps the missing part.
// Best fit among the mapped free blocks counts the unmapped block behind one as part of its size
// (get_free_block), so the end of the range is used last. Releasing unmaps the whole pages within each free
// block, even if other blocks of the same range are in use.
//
// One physical handle is made for each page: a mapping can only be undone by whole handles.

// expandable is one range of addresses.
type expandable struct {
	addr    uint64
	size    int64
	page    int64
	handles map[int64]Handle // by page
}

// preferExpandable moves on from the best fit r to the block that may be used, 0 for none.
func (a *heap) preferExpandable(free *set, r ref, stream Stream) ref {
	s := &a.slab
	if !a.set.ExpandableSegments {
		// The setting was turned off: only blocks outside expandable segments may be used.
		for r != 0 && s.at(r).segment != 0 && s.at(r).stream == stream {
			r = free.after(s, r)
		}
		if r == 0 || s.at(r).stream != stream {
			return 0
		}
		return r
	}
	room := func(r ref) int64 {
		b := s.at(r)
		if n := b.next; n != 0 && s.at(n).unmapped {
			return b.size + s.at(n).size
		}
		return b.size
	}
	for s.at(r).segment != 0 {
		next := free.after(s, r)
		if next == 0 || s.at(next).stream != stream || room(next) >= room(r) {
			break
		}
		r = next
	}
	return r
}

// growExpandable maps memory for a request and returns the free block that holds it, in no set
// (try_allocate_expandable_block).
func (a *heap) growExpandable(pool int32, rounded int64, stream Stream) (ref, error) {
	r, err := a.findExpandable(pool, rounded, stream)
	if err != nil {
		return 0, err
	}
	s := &a.slab
	if s.at(r).unmapped {
		if err := a.mapBlock(r, min(s.at(r).size, rounded)); err != nil {
			return 0, err
		}
	}
	for s.at(r).size < rounded { // r is free and mapped, the next block is not mapped
		next := s.at(r).next
		if err := a.mapBlock(next, min(rounded-s.at(r).size, s.at(next).size)); err != nil {
			return 0, err
		}
		r = next // it has absorbed r
	}
	a.pools[pool].free.erase(s, r)
	return r, nil
}

// findExpandable returns the lowest free or unmapped block at which there is room, in a new range if
// necessary.
func (a *heap) findExpandable(pool int32, rounded int64, stream Stream) (ref, error) {
	s := &a.slab
	unmapped := &a.pools[pool].unmapped
	for r := unmapped.atLeast(s, key{stream: stream}); r != 0 &&
		s.at(r).stream == stream; r = unmapped.after(s, r) {
		from := r
		if p := s.at(r).prev; p != 0 && s.at(p).state == Inactive {
			from = p
		}
		room := int64(0)
		for n := from; n != 0 && room < rounded && s.at(n).state == Inactive; n = s.at(n).next {
			room += s.at(n).size
		}
		if room >= rounded {
			return from, nil
		}
	}
	_, total := a.c.Driver.MemInfo()
	page := a.set.pageOf(a.pools[pool].small)
	size := roundUp(total+total/8, page)
	if rounded > size && a.set.follows(noRangeInVain) {
		return 0, fmt.Errorf("%d bytes wanted of a range of %d: %w", rounded, size, ErrOutOfMemory)
	}
	addr, err := a.c.Driver.Reserve(size)
	if err != nil {
		return 0, err
	}
	return a.addExpandable(pool, stream, addr, size), nil
}

// pageOf returns the size of the pages that a range of a small or a large pool consists of.
func (s *Settings) pageOf(small bool) int64 {
	if small {
		return torchalloc.SmallBuffer
	}
	return roundUp(s.largeSegment(), torchalloc.Granularity)
}

// addExpandable adds a range, as one unmapped block.
func (a *heap) addExpandable(pool int32, stream Stream, addr uint64, size int64) ref {
	e := expandable{addr: addr, size: size, page: a.set.pageOf(a.pools[pool].small),
		handles: map[int64]Handle{}}
	i := 0
	for i < len(a.expandable) && a.expandable[i].size != 0 {
		i++
	}
	if i == len(a.expandable) {
		a.expandable = append(a.expandable, e)
	} else {
		a.expandable[i] = e
	}
	r := a.slab.add()
	b := a.slab.at(r)
	b.addr, b.size, b.stream, b.pool, b.segment, b.unmapped = addr, size, stream, pool, int32(i+1), true
	b.born = a.nextBorn()
	a.pools[pool].unmapped.insert(&a.slab, r)
	return r
}

// mapBlock maps the first size bytes of an unmapped block, rounded up to pages, and puts them into the set,
// merged with their free neighbours. If the device refuses, nothing is mapped (map_block).
func (a *heap) mapBlock(r ref, size int64) error {
	s := &a.slab
	b := s.at(r)
	e := &a.expandable[b.segment-1]
	size = roundUp(size, e.page)
	first := int64(b.addr-e.addr) / e.page
	if err := a.mapPages(e, first, first+size/e.page); err != nil {
		return err
	}
	p := &a.pools[b.pool]
	p.unmapped.erase(s, r)
	addr := b.addr
	if size < b.size {
		rest := s.cut(r, size)
		a.renew(rest)
		p.unmapped.insert(s, rest)
		b = s.at(r)
	}
	b.unmapped = false
	a.merge(r, b.prev)
	a.merge(r, s.at(r).next)
	a.insertFree(r)
	b = s.at(r)
	a.stats.reserve(size)
	a.c.emit(SegmentEvent{SegmentMap, addr, size, b.stream, p.id, p.small})
	return nil
}

// mapPages makes memory for pages [first, end) and maps it.
func (a *heap) mapPages(e *expandable, first, end int64) error {
	d := a.c.Driver
	if err := checkVast(d, (end-first)*e.page); err != nil {
		return err
	}
	for i := first; i < end; i++ {
		h, err := d.Create(e.page)
		if err != nil {
			for k := first; k < i; k++ {
				err = errors.Join(err, d.Release(e.handles[k]))
				delete(e.handles, k)
			}
			return err
		}
		e.handles[i] = h
	}
	for i := first; i < end; i++ {
		if err := d.Map(e.addr+uint64(i*e.page), e.handles[i]); err != nil {
			return err
		}
		a.stats.Maps++
	}
	return nil
}

// unmapBlock releases the whole pages within a free block, which is in the set. The remainders on either side
// stay there. A range with nothing mapped is released (unmap_block, release_expandable_segment).
func (a *heap) unmapBlock(r ref) error {
	s := &a.slab
	b := s.at(r)
	e := &a.expandable[b.segment-1]
	first := roundUp(int64(b.addr-e.addr), e.page) / e.page
	end := int64(b.end()-e.addr) / e.page
	if first >= end {
		return nil
	}
	p := &a.pools[b.pool]
	d := a.c.Driver
	addr, size := e.addr+uint64(first*e.page), (end-first)*e.page
	if err := d.Unmap(addr, size); err != nil {
		return err
	}
	for i := first; i < end; i++ {
		if err := d.Release(e.handles[i]); err != nil {
			return err
		}
		delete(e.handles, i)
		a.stats.Unmaps++
	}
	a.stats.Synchronisations++
	p.free.erase(s, r)
	if before := int64(addr - b.addr); before > 0 {
		unmapped := s.cut(r, before)
		a.renew(r)
		a.insertFree(r)
		r, b = unmapped, s.at(unmapped)
	}
	if b.size > size {
		rest := s.cut(r, size)
		a.renew(rest)
		a.insertFree(rest)
		b = s.at(r)
	}
	b.unmapped = true
	a.merge(r, b.prev)
	a.merge(r, s.at(r).next)
	p.unmapped.insert(s, r)
	a.stats.Reserved -= size
	p.segments--
	b = s.at(r)
	a.c.emit(SegmentEvent{SegmentUnmap, addr, size, b.stream, p.id, p.small})
	if b.split() {
		return nil
	}
	p.unmapped.erase(s, r)
	s.remove(r)
	base := e.addr
	*e = expandable{}
	return d.Unreserve(base)
}
