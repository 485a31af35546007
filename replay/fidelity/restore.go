package fidelity

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// A recording that begins in the middle shows the place and the requested size of every older block that it
// frees or that outlives it, but not the true size of those that it frees: a large block keeps up to 1 MiB
// that was too little to split off when it was allocated, before the recording. Two facts recover most of
// these rests.
//
// First, no hole of the large pool is 1 MiB or smaller: split-off rests are larger, and so is every freed
// block. So a gap of that size after a block is the block's rest.
//
// Second, a request gets the beginning of a hole. The first block put within 1 MiB after a live block of
// unknown size was put at the beginning of the hole after it, and so shows where the rest ends:
//
//	at the start   [ block, asked for ####............ hole ............ ]
//	later          [ block, asked for ####][ the first one put behind it ]
//
// This uses the recorded decisions, but only for the sizes of blocks older than the recording; the report
// counts them (Rests). A block freed before anything is put after it keeps the size given by the rule. Blocks
// beyond max_split_size_mb keep the whole hole. Expandable segments and small blocks have no rests.

// piece is a block at the start whose size the recording does not show, followed by a hole.
type piece struct {
	end     uint64 // by the rule
	segment int
	block   int // index in the segment's blocks
	alloc   timeline.AllocID
	known   bool
}

// restore rebuilds the state before the first event.
func (r *replay) restore(ctx context.Context) error {
	state, err := timeline.StateAt(ctx, r.d, timeline.Start)
	if err != nil {
		return err
	}
	if !state.Known || state.Unplaced > 0 {
		return refuse(StateUnknown, nil, "its state at the start is not known: %s", state.Reason)
	}
	segments, active, unknown := r.segmentsOf(state)
	for _, find := range []func() error{
		func() error { return r.findPools(ctx, segments) },
		func() error { return r.findBases(ctx, segments) },
		func() error { return r.findRests(ctx, segments, unknown) },
	} {
		if err := find(); err != nil {
			return err
		}
	}
	var pending []uint64
	for i := range segments {
		for k, b := range segments[i].Blocks {
			if b.State == allocator.PendingFree {
				// Restored as allocated and then freed by this replay, which then knows the event.
				segments[i].Blocks[k].State = allocator.Allocated
				pending = append(pending, b.Addr)
			}
		}
	}
	blocks, err := r.alloc.Restore(segments)
	if err != nil {
		return refuse(StateUnknown, err, "its state at the start could not be rebuilt")
	}
	r.emulated = r.emulated[:0]
	r.report.Restored = active
	if r.program != nil {
		r.program.Start = segments
	}
	for _, b := range blocks {
		r.live[b.Addr] = heldBlock{b, r.blocks}
		r.blocks++
	}
	for _, addr := range pending {
		if err := r.free(addr, true); err != nil {
			return err
		}
	}
	return nil
}

// segmentsOf returns a state's segments, how many blocks are active in them, and the blocks of unknown size.
func (r *replay) segmentsOf(
	state *timeline.AllocatorState) (segments []allocator.Segment, active int, unknown []piece) {
	a, settings := &r.d.Allocs, &r.report.Settings
	segments = make([]allocator.Segment, len(state.Segments))
	for i, s := range state.Segments {
		seg := allocator.Segment{
			Addr: s.Addr, Size: s.Size, Stream: r.rank[s.Stream], Small: s.Small, Expandable: s.Expandable,
			Pool: s.Pool,
		}
		rests := !s.Small && !s.Expandable && !settings.ExpandableSegments
		for k, p := range s.Pieces {
			b := allocator.SegmentBlock{Addr: p.Addr, Size: p.Size}
			n := len(seg.Blocks)
			if p.Alloc == timeline.NoAlloc {
				whole := n > 0 && unsplit(settings, seg.Blocks[n-1].Requested)
				if rests && n > 0 && (!torchalloc.Splits(p.Size, false) || whole) {
					seg.Blocks[n-1].Size += p.Size
					r.report.Rests++
					continue
				}
				seg.Blocks = append(seg.Blocks, b)
				continue
			}
			active++
			if rests && a.End[p.Alloc] != timeline.Never && p.Size > settings.Round(a.Size[p.Alloc]) {
				r.report.Rests++ // the timeline inferred it
			}
			b.Requested, b.State = a.Size[p.Alloc], allocator.Allocated
			if p.State == traces.BlockPendingFree {
				b.State = allocator.PendingFree
			}
			hole := k+1 < len(s.Pieces) && s.Pieces[k+1].Alloc == timeline.NoAlloc &&
				torchalloc.Splits(s.Pieces[k+1].Size, false)
			if rests && hole && !unsplit(settings, b.Requested) && a.End[p.Alloc] != timeline.Never {
				unknown = append(unknown, piece{end: p.Addr + uint64(p.Size), segment: i, block: n,
					alloc: p.Alloc})
			}
			seg.Blocks = append(seg.Blocks, b)
		}
		segments[i] = seg
	}
	return segments, active, unknown
}

// unsplit reports whether the block of a request is too large to be split.
func unsplit(s *allocator.Settings, requested int64) bool {
	return s.MaxSplitSize > 0 && s.Round(requested) >= s.MaxSplitSize
}

// findPools finds the runs of expandable segments that belong to the small pool, which the trace does not say
// for runs mapped by an event: by a block in the run, else by the first block put there, else by the size, a
// multiple of the pool's page.
func (r *replay) findPools(ctx context.Context, segments []allocator.Segment) error {
	settings := &r.report.Settings
	small := func(requested int64) bool {
		_, small := settings.SegmentFor(settings.Round(requested))
		return small
	}
	large, _ := settings.SegmentFor(torchalloc.SmallSize + 1)
	var unknown []int // by address, as segments are
	for i := range segments {
		s := &segments[i]
		if !s.Expandable {
			continue
		}
		s.Small = s.Size%large != 0
		k := slices.IndexFunc(s.Blocks,
			func(b allocator.SegmentBlock) bool { return b.State != allocator.Inactive })
		if k >= 0 {
			s.Small = small(s.Blocks[k].Requested)
		} else {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	known := make([]bool, len(unknown))
	return r.each(ctx, r.d.Len(), func(_ timeline.Moment, e traces.Event) error {
		if e.Action != traces.Alloc {
			return nil
		}
		k := sort.Search(len(unknown), func(k int) bool { return segments[unknown[k]].Addr > e.Addr }) - 1
		if k < 0 || known[k] {
			return nil
		}
		if s := &segments[unknown[k]]; e.Addr-s.Addr < uint64(s.Size) {
			s.Small, known[k] = small(e.Size), true
		}
		return nil
	})
}

// rangeKey identifies a range of expandable segments: each pool and stream has one, which is never full.
type rangeKey struct {
	stream allocator.Stream
	pool   traces.Pool
	small  bool
}

// extent holds what is known about a range.
type extent struct {
	from, until uint64 // of what was seen mapped
	mapped      int64
	over        bool // everything was unmapped, and the range released
}

// findBases finds the beginnings of ranges whose first pages are not mapped at the start: the lowest address
// mapped later while the range exists. PyTorch maps the lowest unmapped pages first.
func (r *replay) findBases(ctx context.Context, segments []allocator.Segment) error {
	seen := map[rangeKey]*extent{}
	for _, s := range segments {
		if !s.Expandable {
			continue
		}
		k := rangeKey{s.Stream, s.Pool, s.Small}
		x := seen[k]
		if x == nil {
			x = &extent{from: s.Addr}
			seen[k] = x
		}
		x.from, x.until = min(x.from, s.Addr), max(x.until, s.Addr+uint64(s.Size))
		x.mapped += s.Size
	}
	if len(seen) == 0 {
		return nil
	}
	err := r.each(ctx, r.d.Len(), func(_ timeline.Moment, e traces.Event) error {
		switch e.Action {
		case traces.SegmentMap:
			if x := seen[r.keyOf(e)]; x != nil && !x.over {
				x.from, x.until = min(x.from, e.Addr), max(x.until, e.Addr+uint64(e.Size))
				x.mapped += e.Size
			}
		case traces.SegmentUnmap:
			k := r.keyOf(e)
			for _, small := range [...]bool{false, true} { // several small pages can be unmapped at once
				k.small = small
				if x := seen[k]; x != nil && x.from <= e.Addr && e.Addr < x.until {
					x.mapped -= e.Size
					x.over = x.over || x.mapped <= 0
				}
			}
		}
		return nil
	})
	for i := range segments {
		if s := &segments[i]; s.Expandable {
			s.Base = seen[rangeKey{s.Stream, s.Pool, s.Small}].from
		}
	}
	return err
}

// keyOf returns the range of a segment_map: the small pool maps single pages, which are smaller than the
// large pool's.
func (r *replay) keyOf(e traces.Event) rangeKey {
	return rangeKey{r.rank[e.Stream], r.poolOf(e), e.Size == torchalloc.Granularity}
}

// findRests moves the ends of the blocks of unknown size to the place of the first block after them.
func (r *replay) findRests(ctx context.Context, segments []allocator.Segment, unknown []piece) error {
	if len(unknown) == 0 {
		return nil
	}
	a := &r.d.Allocs
	left := len(unknown)
	err := r.each(ctx, r.d.Len(), func(m timeline.Moment, e traces.Event) error {
		if e.Action != traces.Alloc {
			return nil
		}
		i := sort.Search(len(unknown), func(i int) bool { return unknown[i].end > e.Addr }) - 1
		if i < 0 {
			return nil
		}
		p := &unknown[i]
		if p.known || torchalloc.Splits(int64(e.Addr-p.end), false) || a.End[p.alloc] < m {
			return nil
		}
		p.known = true
		left--
		rest := int64(e.Addr - p.end)
		blocks := segments[p.segment].Blocks
		if hole := &blocks[p.block+1]; rest > 0 && rest < hole.Size {
			blocks[p.block].Size += rest
			hole.Addr += uint64(rest)
			hole.Size -= rest
			r.report.Rests++
		}
		return nil
	})
	if left > 0 {
		r.report.Caveats = append(r.report.Caveats,
			fmt.Sprintf(
				"%d blocks older than the recording may be up to 1 MiB larger than their requests say", left))
	}
	return err
}
