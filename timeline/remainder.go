package timeline

import (
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// How large is a request's block, really? The caching allocator rounds the request, takes a hole, and splits
// the rest off, unless the hole is in the large pool and the rest is at most 1 MiB
// (DeviceCachingAllocator::should_split): then the block keeps it. So the block's size follows from the hole,
// and the hole from its neighbour: it reaches to the next active block or to the end of the segment. Only
// neighbours within 1 MiB of the rounded request matter, and blocks of the large pool and segments are larger
// than that, so a table with one boundary for each MiB of addresses answers in two lookups, about 30 ns an
// allocation.
//
// With max_split_size_mb, a block of at least that size is never split: it is a whole segment, and a table of
// segments answers.
//
// This works if every block and segment is known, that is, if the final state is, and is checked against the
// sizes in the final state (sizeProof). Expandable segments need none of it: they split every rest off. Not
// covered: pools made with torch.cuda.MemPool(no_split=True) (see nosplit.go).
//
// Rejected: an ordered set of all blocks (ten times the time, for neighbours that do not matter).

const mib = 1 << 20

// boundaries is a set of addresses, at most one in each MiB.
type boundaries struct {
	slots []boundary
	shift uint
	used  int
}

type boundary struct {
	page uint64 // address in MiB, plus one; 0 is a free slot
	addr uint64 // 0 if the page has none
}

func newBoundaries() *boundaries {
	const bits = 10
	return &boundaries{slots: make([]boundary, 1<<bits), shift: 64 - bits}
}

// probe returns the slot of an address's page, or the free slot that it would take.
func (t *boundaries) probe(page uint64) *boundary {
	mask := uint(len(t.slots) - 1)
	for i := hashAddr(page, t.shift); ; i++ {
		if s := &t.slots[i&mask]; s.page == page || s.page == 0 {
			return s
		}
	}
}

func (t *boundaries) add(addr uint64) {
	s := t.probe(addr/mib + 1)
	if s.page == 0 {
		if t.used*2 >= len(t.slots) {
			old := t.slots
			t.slots, t.shift = make([]boundary, 2*len(old)), t.shift-1
			for _, o := range old {
				if o.page != 0 {
					*t.probe(o.page) = o
				}
			}
			s = t.probe(addr/mib + 1)
		}
		t.used++
		s.page = addr/mib + 1
	}
	s.addr = addr
}

func (t *boundaries) remove(addr uint64) {
	if s := t.probe(addr/mib + 1); s.addr == addr {
		s.addr = 0
	}
}

// next returns the first boundary in [from, from+1 MiB], 0 for none.
func (t *boundaries) next(from uint64) uint64 {
	if s := t.probe(from/mib + 1); s.addr >= from {
		return s.addr
	}
	if s := t.probe(from/mib + 2); s.addr >= from && s.addr <= from+mib {
		return s.addr
	}
	return 0
}

// remainders finds the true size of blocks as they are allocated; nil if that is impossible.
type remainders struct {
	blocks, ends *boundaries
	// blocks of at least this size are whole segments; 0 if there is no such size
	maxSplit int64
	segments map[uint64]int64 // the size of each segment by its address; nil without maxSplit
}

// newRemainders returns the boundaries at the start of the recording, nil if they are unknown or the rule
// differs.
func (b *deviceBuilder) newRemainders() *remainders {
	f := sumFinal(&b.tr.Final, b.d.ID)
	m := b.m
	if b.rule.none || !b.finalKnown(&f) || b.d.n == 0 ||
		m.actions[traces.SegmentMap]+m.actions[traces.SegmentUnmap] > 0 {
		return nil
	}
	r := &remainders{blocks: newBoundaries(), ends: newBoundaries()}
	if n, err := strconv.ParseInt(strings.TrimSpace(b.tr.Setting("max_split_size")), 10, 64); err == nil &&
		n > 0 {
		r.maxSplit, r.segments = n, map[uint64]int64{}
	}
	for i := range b.tr.Final.Segments {
		seg := &b.tr.Final.Segments[i]
		if seg.Device != b.d.ID {
			continue
		}
		if seg.Expandable {
			return nil
		}
		r.segment(traces.SegmentAlloc, seg.Address, seg.TotalSize)
	}
	ev := &b.tr.Events
	for row := b.d.first + b.d.n - 1; row >= b.d.first && m.segmentEvents() > 0; row-- {
		switch ev.Action[row] { // backwards: undo the event
		case traces.SegmentAlloc:
			r.segment(traces.SegmentFree, ev.Addr[row], ev.Size[row])
		case traces.SegmentFree:
			r.segment(traces.SegmentAlloc, ev.Addr[row], ev.Size[row])
		}
	}
	a := &b.d.Allocs
	for i := range b.m.earlier {
		if a.Rounded[i] > torchalloc.SmallSize {
			r.blocks.add(a.Addr[i])
		}
	}
	known := make([]bool, len(b.m.earlier)) // the final state has its size
	for _, x := range b.m.joined {
		if j, ok := isEarlier(x.id); ok {
			known[j] = true
		}
	}
	// earlier blocks keep their rest too: no hole of the large pool is that small
	for j, e := range b.m.earlier {
		if i := len(b.m.earlier) - 1 - j; e.rounded == 0 && !known[j] && a.Rounded[i] > torchalloc.SmallSize {
			a.Rounded[i] = r.size(a.Addr[i], a.Rounded[i])
		}
	}
	return r
}

// segment records a segment event.
func (r *remainders) segment(action traces.Action, addr uint64, size int64) {
	switch action {
	case traces.SegmentAlloc:
		r.ends.add(addr + uint64(size))
		if r.segments != nil {
			r.segments[addr] = size
		}
	case traces.SegmentFree:
		r.ends.remove(addr + uint64(size))
		delete(r.segments, addr)
	}
}

// allocated records a block and returns its size, given the rounded size of its request.
func (r *remainders) allocated(addr uint64, rounded int64) int64 {
	if rounded <= torchalloc.SmallSize {
		return rounded
	}
	size := r.size(addr, rounded)
	r.blocks.add(addr)
	return size
}

// size returns the size of a block in the large pool, given the rounded size of its request and its
// surroundings.
func (r *remainders) size(addr uint64, rounded int64) int64 {
	if r.maxSplit > 0 && rounded >= r.maxSplit {
		return max(rounded, r.segments[addr])
	}
	until := addr + uint64(rounded)
	limit := r.blocks.next(until)
	if end := r.ends.next(until); limit == 0 || end != 0 && end < limit {
		limit = end
	}
	if limit == 0 {
		return rounded
	}
	return int64(limit - addr)
}

// freed records that a block is back in its pool.
func (r *remainders) freed(addr uint64, rounded int64) {
	if rounded > torchalloc.SmallSize {
		r.blocks.remove(addr)
	}
}
