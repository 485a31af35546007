package allocator

import (
	"cmp"
	"slices"
)

// What happens to GMLake's blocks between requests: which become active and inactive together, which
// addresses are forgotten, and which memory goes back to the device.

// partsOf returns the pBlocks of a block.
func (g *gmLake) partsOf(r ref) []ref {
	if b := g.slab.at(r); b.pool == isStitched {
		return g.stitched[b.segment-1].parts
	}
	g.scratch = append(g.scratch[:0], r)
	return g.scratch
}

// activate hands out an inactive block: its pBlocks leave the sets, and so does every sBlock that has one of
// them.
func (g *gmLake) activate(r ref, requested int64) {
	s := &g.slab
	left := requested
	for _, p := range g.partsOf(r) {
		b := s.at(p)
		g.whole.erase(s, p)
		b.state = Allocated
		b.requested = min(left, b.size)
		left -= b.requested
		for _, i := range g.members[p] {
			x := &g.stitched[i]
			if x.busy == 0 {
				g.joined.erase(s, x.block)
			}
			x.busy++
		}
	}
	b := s.at(r)
	b.state, b.requested = Allocated, requested
}

// deactivate takes a block back.
func (g *gmLake) deactivate(r ref) {
	s := &g.slab
	b := s.at(r)
	g.stats.Active -= b.size
	g.stats.Requested -= b.requested
	b.state, b.requested = Inactive, 0
	for _, p := range g.partsOf(r) {
		b := s.at(p)
		b.state, b.requested = Inactive, 0
		g.whole.insert(s, p)
		for _, i := range g.members[p] {
			x := &g.stitched[i]
			if x.busy--; x.busy == 0 {
				g.joined.insert(s, x.block)
			}
		}
	}
}

// link makes an sBlock the newest.
func (g *gmLake) link(r ref) {
	g.slab.splice(r, g.newest, 0)
	if g.oldest == 0 {
		g.oldest = r
	}
	g.newest = r
}

func (g *gmLake) unlink(r ref) {
	s := &g.slab
	b := s.at(r)
	if b.prev != 0 {
		s.at(b.prev).next = b.next
	} else {
		g.oldest = b.next
	}
	if b.next != 0 {
		s.at(b.next).prev = b.prev
	} else {
		g.newest = b.prev
	}
	b.prev, b.next = 0, 0
}

// touch notes that an sBlock is used again.
func (g *gmLake) touch(r ref) {
	g.unlink(r)
	g.link(r)
}

// forgetOld forgets the least recently used sBlocks that are not handed out, except keep, while there are too
// many addresses.
func (g *gmLake) forgetOld(keep ref) error {
	for r := g.oldest; r != 0 && g.c.StitchedBytes > 0 && g.bytes > g.c.StitchedBytes; {
		next := g.slab.at(r).next
		if r != keep && g.slab.at(r).state == Inactive {
			if err := g.forget(r); err != nil {
				return err
			}
		}
		r = next
	}
	return nil
}

// forget drops an sBlock that is not handed out; its parts stay as they are.
func (g *gmLake) forget(r ref) error {
	s := &g.slab
	b := s.at(r)
	i := b.segment - 1
	x := &g.stitched[i]
	if err := g.c.Driver.Unmap(b.addr, b.size); err != nil {
		return err
	}
	if err := g.c.Driver.Unreserve(b.addr); err != nil {
		return err
	}
	g.stats.Unmaps += b.size / chunk
	g.stats.Synchronisations++
	if x.busy == 0 {
		g.joined.erase(s, r)
	}
	for _, p := range x.parts {
		at := slices.Index(g.members[p], i)
		g.members[p] = slices.Delete(g.members[p], at, at+1)
	}
	*x = stitched{}
	g.freeS = append(g.freeS, i)
	g.bytes -= b.size
	g.unlink(r)
	s.remove(r)
	return nil
}

// EmptyCache implements Allocator: it waits for all events, forgets every sBlock that is not handed out, and
// gives back the chunks of every inactive pBlock.
func (g *gmLake) EmptyCache() error {
	g.poll(true)
	if err := g.small.EmptyCache(); err != nil {
		return err
	}
	for r := g.oldest; r != 0; {
		next := g.slab.at(r).next
		if g.slab.at(r).state == Inactive {
			if err := g.forget(r); err != nil {
				return err
			}
		}
		r = next
	}
	for r := g.whole.first(&g.slab); r != 0; r = g.whole.first(&g.slab) {
		if err := g.release(r); err != nil {
			return err
		}
	}
	return nil
}

// release returns an inactive pBlock that is part of no sBlock.
func (g *gmLake) release(r ref) error {
	s, d := &g.slab, g.c.Driver
	b := s.at(r)
	p := &g.primaries[b.segment-1]
	if err := d.Unmap(b.addr, b.size); err != nil {
		return err
	}
	first := int64(b.addr-p.addr) / chunk
	for _, h := range p.handles[first : first+b.size/chunk] {
		if err := d.Release(h); err != nil {
			return err
		}
	}
	g.stats.Unmaps += b.size / chunk
	g.stats.Synchronisations++
	g.stats.Reserved -= b.size
	if p.live -= b.size; p.live == 0 {
		if err := d.Unreserve(p.addr); err != nil {
			return err
		}
		*p = primary{}
		g.freeP = append(g.freeP, b.segment-1)
	}
	e := SegmentEvent{Action: SegmentUnmap, Addr: b.addr, Size: b.size, Stream: b.stream}
	g.whole.erase(s, r)
	s.remove(r)
	g.c.emit(e)
	return nil
}

// Free implements Allocator.
func (g *gmLake) Free(h Block) error {
	if h.small {
		return g.small.Free(h)
	}
	r := g.slab.find(h)
	if r == 0 || g.slab.at(r).addr != h.Addr {
		return blockError("free", h)
	}
	g.stats.Frees++
	g.stats.Allocated -= h.Size
	if !g.delayed.free(&g.slab, r) {
		g.deactivate(r)
		return nil
	}
	for _, p := range g.partsOf(r) {
		g.slab.at(p).state = PendingFree
	}
	g.slab.at(r).state = PendingFree
	return nil
}

// RecordStream implements Allocator.
func (g *gmLake) RecordStream(h Block, stream Stream) error {
	if h.small {
		return g.small.RecordStream(h, stream)
	}
	r := g.slab.find(h)
	if r == 0 {
		return blockError("record a stream of", h)
	}
	g.delayed.note(&g.slab, r, stream)
	return nil
}

// ProcessEvents implements Allocator.
func (g *gmLake) ProcessEvents() {
	g.small.ProcessEvents()
	g.poll(false)
}

func (g *gmLake) poll(wait bool) {
	if g.delayed.n == 0 {
		return
	}
	g.done = g.delayed.poll(&g.slab, g.done[:0], wait)
	for _, r := range g.done {
		g.deactivate(r)
	}
}

// Stats implements Allocator: those of large and small blocks together. Peaks are of the sum.
func (g *gmLake) Stats() Stats { return *g.stats }

// Segments implements Allocator: a segment is a run of pBlocks that were made together. The addresses of
// sBlocks are not segments, as they hold no memory of their own.
func (g *gmLake) Segments() []Segment {
	all := g.small.Segments()
	var blocks []ref
	for i := range g.slab.all {
		if b := &g.slab.all[i]; b.generation%2 == 1 && b.pool == isPrimary {
			blocks = append(blocks, ref(i))
		}
	}
	slices.SortFunc(blocks, func(x, y ref) int { return cmp.Compare(g.slab.at(x).addr, g.slab.at(y).addr) })
	last := int32(-1)
	for _, r := range blocks {
		b := g.slab.at(r)
		if n := len(all) - 1; last != b.segment || all[n].Addr+uint64(all[n].Size) != b.addr {
			all = append(all, Segment{Addr: b.addr, Stream: b.stream, Expandable: true})
		}
		last = b.segment
		seg := &all[len(all)-1]
		seg.Size += b.size
		seg.Blocks = append(seg.Blocks, SegmentBlock{b.addr, b.size, b.requested, b.state})
	}
	slices.SortFunc(all, func(x, y Segment) int { return cmp.Compare(x.Addr, y.Addr) })
	return all
}
