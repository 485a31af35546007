package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// Segments implements Allocator. A mapped run of an expandable segment is a segment, as in PyTorch's
// snapshots.
func (a *Caching) Segments() []Segment {
	var all []Segment
	for i := range a.slab.all {
		b := &a.slab.all[i]
		if b.generation%2 == 0 || b.unmapped || b.prev != 0 && !a.slab.at(b.prev).unmapped {
			continue
		}
		p := &a.pools[b.pool]
		seg := Segment{Addr: b.addr, Stream: b.stream, Pool: p.id, Small: p.small, Expandable: b.segment != 0}
		if seg.Expandable {
			seg.Base = a.expandable[b.segment-1].addr
		}
		for r := ref(i); r != 0 && !a.slab.at(r).unmapped; r = a.slab.at(r).next {
			b := a.slab.at(r)
			seg.Size += b.size
			seg.Blocks = append(seg.Blocks, SegmentBlock{b.addr, b.size, b.requested, b.state})
		}
		all = append(all, seg)
	}
	slices.SortFunc(all, func(x, y Segment) int { return cmp.Compare(x.Addr, y.Addr) })
	return all
}

// Restore loads a recorded state into an unused allocator, and returns the blocks that are allocated or
// pending, in order of segments and blocks. The driver must be a Placer. Holes next to each other become one.
// A pending block becomes free with the event that the allocator's Events record for it.
//
// Runs of expandable segments of one pool and stream count as parts of one range, which begins at their Base,
// or at the lowest of them: a snapshot does not distinguish ranges, and the allocator begins a second one
// only when the first, larger than the device, is full.
func (a *Caching) Restore(segments []Segment) ([]Block, error) {
	if len(a.slab.all) > 0 || a.stats.Reserved > 0 {
		return nil, errors.New("allocator: restore: the allocator has been used already: restore into a " +
			"new one")
	}
	driver, ok := a.c.Driver.(placer)
	if !ok {
		return nil, errors.New("allocator: restore: the driver chooses its addresses itself: use a Placer " +
			"such as NewDriver")
	}
	segments = slices.Clone(segments)
	slices.SortFunc(segments, func(x, y Segment) int { return cmp.Compare(x.Addr, y.Addr) })
	var blocks []Block
	for i := range segments {
		seg := &segments[i]
		if err := checkSegment(segments, i); err != nil {
			return nil, err
		}
		pool := a.poolFor(seg.Pool, torchalloc.SmallSize)
		if !seg.Small {
			pool++
		}
		place := a.placeSegment
		if seg.Expandable {
			place = a.placeRun
		}
		r, err := place(driver, seg, pool)
		if err != nil {
			return nil, fmt.Errorf("allocator: restore: segment %#x: %w", seg.Addr, err)
		}
		a.pools[pool].segments++
		blocks = a.tile(r, seg.Blocks, blocks)
	}
	return blocks, nil
}

func checkSegment(segments []Segment, i int) error {
	seg := &segments[i]
	at := seg.Addr
	for _, b := range seg.Blocks {
		if b.Addr != at || b.Size <= 0 {
			return fmt.Errorf("allocator: restore: segment %#x: its blocks do not tile it at %#x", seg.Addr,
				at)
		}
		at += uint64(b.Size)
	}
	if at != seg.Addr+uint64(seg.Size) || seg.Size <= 0 || at < seg.Addr {
		return fmt.Errorf("allocator: restore: segment %#x: its blocks end at %#x", seg.Addr, at)
	}
	if i > 0 && segments[i-1].Addr+uint64(segments[i-1].Size) > seg.Addr {
		return fmt.Errorf("allocator: restore: segment %#x overlaps the one before it", seg.Addr)
	}
	return nil
}

// placeSegment turns a plain segment into one block, in no set.
func (a *heap) placeSegment(d placer, seg *Segment, pool int32) (ref, error) {
	if err := d.AllocAt(seg.Addr, seg.Size); err != nil {
		return 0, err
	}
	r := a.slab.add()
	b := a.slab.at(r)
	b.addr, b.size, b.stream, b.pool, b.born = seg.Addr, seg.Size, seg.Stream, pool, a.nextBorn()
	a.stats.reserve(seg.Size)
	return r, nil
}

// placeRun turns a run of an expandable segment into one mapped block, in no set.
func (a *heap) placeRun(d placer, seg *Segment, pool int32) (ref, error) {
	s := &a.slab
	page := a.set.pageOf(a.pools[pool].small)
	if seg.Size%page != 0 {
		return 0, fmt.Errorf("its %d bytes are not a multiple of the page of %d bytes", seg.Size, page)
	}
	unmapped := &a.pools[pool].unmapped
	r := unmapped.below(s, key{stream: seg.Stream, addr: seg.Addr + 1})
	if r == 0 || s.at(r).stream != seg.Stream || s.at(r).end() < seg.Addr+uint64(seg.Size) {
		_, total := d.MemInfo()
		size := roundUp(total+total/8, page)
		base := seg.Addr
		if seg.Base > 0 && seg.Base < base {
			base = seg.Base
		}
		if err := d.ReserveAt(base, size); err != nil {
			return 0, err
		}
		r = a.addExpandable(pool, seg.Stream, base, size)
	}
	if before := int64(seg.Addr - s.at(r).addr); before > 0 {
		if before%page != 0 {
			return 0, fmt.Errorf("it does not begin at a page of its range")
		}
		unmapped.erase(s, r)
		rest := s.cut(r, before)
		unmapped.insert(s, r)
		unmapped.insert(s, rest)
		r = rest
	}
	if err := a.mapBlock(r, seg.Size); err != nil {
		return 0, err
	}
	a.pools[pool].free.erase(s, r)
	return r, nil
}

// tile divides block r, which is in no set, into the blocks of a segment.
func (a *Caching) tile(r ref, parts []SegmentBlock, blocks []Block) []Block {
	s := &a.slab
	for i := 0; i < len(parts); i++ {
		part := parts[i]
		if part.State == Inactive {
			for i+1 < len(parts) && parts[i+1].State == Inactive {
				i++
				part.Size += parts[i].Size
			}
		}
		rest := ref(0)
		if s.at(r).size > part.Size {
			rest = s.cut(r, part.Size)
		}
		b := s.at(r)
		if part.State == Inactive {
			a.insertFree(r)
		} else {
			b.state, b.requested = Allocated, part.Requested
			a.stats.gave(part.Requested, b.size)
			h := s.handle(r)
			if part.State == PendingFree {
				// The recording does not say which other streams used it; any stream will do, since only its
				// event counts.
				a.delayed.note(s, r, b.stream+1)
				b.state = PendingFree
				a.stats.Frees++
				a.stats.Allocated -= b.size
				a.delayed.free(s, r)
			}
			blocks = append(blocks, h)
		}
		r = rest
	}
	return blocks
}
