package timeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// What did the allocator's memory look like at a moment? Like blocks, stretches of mapped memory have
// lifetimes: a run of addresses obtained by one segment event lives until an event gives it back, wholly or
// in part. One walk over the segment events finds all such lives, backwards from the final state if it is
// known (memory that was returned must have been there before), else forwards from nothing. The state at a
// moment is then the runs alive at it, with the active blocks placed in them by address: O(k log k) for the k
// runs and blocks alive, whatever the length of the recording.
//
// Rejected: replaying every event from the nearest checkpoint (checkpoints of a large allocator cost more
// memory than the lives, and each seek costs the events in between).
//
// A recording does not give the size of the hole that a block was put in, and the allocator may leave the
// rest of the hole to the block: see remainder.go. If the rest cannot be determined it is shown as stranded,
// unless the final state has the true size.

// run is a stretch of mapped memory alive during [start, end).
type run struct {
	addr       uint64
	size       int64
	start, end Moment
	stack      traces.StackID
	stream     traces.StreamID
	pool       traces.Pool
	small      bool
	expandable bool
}

func (r *run) until() uint64 { return r.addr + uint64(r.size) }

// runBook finds the lives of a device's runs. open holds the runs alive at the walk's position, by address.
type runBook struct {
	d      *Device
	open   []run
	done   []run
	doubts int // runs that contradict other runs
}

// at returns the index of the first open run that ends after addr.
func (b *runBook) at(addr uint64) int {
	return sort.Search(len(b.open), func(i int) bool { return b.open[i].until() > addr })
}

// cut removes [addr, addr+size) from the open runs and passes each removed piece to closed. It returns how
// many bytes it removed.
func (b *runBook) cut(addr uint64, size int64, closed func(piece run)) int64 {
	var found int64
	until := addr + uint64(size)
	i := b.at(addr)
	j := i
	var keep []run
	for ; j < len(b.open) && b.open[j].addr < until; j++ {
		r := b.open[j]
		lo, hi := max(r.addr, addr), min(r.until(), until)
		if r.addr < lo {
			left := r
			left.size = int64(lo - r.addr)
			keep = append(keep, left)
		}
		if hi < r.until() {
			right := r
			right.addr, right.size = hi, int64(r.until()-hi)
			keep = append(keep, right)
		}
		piece := r
		piece.addr, piece.size = lo, int64(hi-lo)
		found += piece.size
		closed(piece)
	}
	b.open = slices.Replace(b.open, i, j, keep...)
	return found
}

// add opens a run; anything it overlaps is cut off first and counted as a doubt.
func (b *runBook) add(r run, closed func(piece run)) {
	if r.size <= 0 || r.addr+uint64(r.size) < r.addr {
		b.doubts++
		return
	}
	if b.cut(r.addr, r.size, closed) > 0 {
		b.doubts++
	}
	b.open = slices.Insert(b.open, b.at(r.addr), r)
}

// segmentRuns holds every run of a device and the number of contradictions, once a query has computed them.
type segmentRuns struct {
	sync.Mutex
	known  bool
	runs   []run
	doubts int
}

var segmentLives = NewMemo(func(*Device) *segmentRuns { return &segmentRuns{} })

// findLives returns every run of the device and the number of contradictions, computed once.
func findLives(ctx context.Context, d *Device) ([]run, int, error) {
	c := segmentLives.Of(d)
	c.Lock()
	defer c.Unlock()
	if c.known {
		return c.runs, c.doubts, nil
	}
	book := runBook{d: d}
	walk := book.walkForth
	if d.Totals.FinalKnown {
		walk = book.walkBack
	}
	if err := walk(ctx); err != nil {
		return nil, 0, err
	}
	c.runs, c.doubts, c.known = book.done, book.doubts, true
	return c.runs, c.doubts, nil
}

// eachEvent calls f with the device's segment events, in order or backwards.
func (b *runBook) eachEvent(ctx context.Context, backwards bool, f func(m Moment, gained bool)) error {
	actions := b.d.tl.Trace.Events.Action[b.d.first : b.d.first+b.d.n]
	for k := range actions {
		if k%tickEvents == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		i := k
		if backwards {
			i = len(actions) - 1 - k
		}
		switch actions[i] {
		case traces.SegmentAlloc, traces.SegmentMap:
			f(Moment(i), true)
		case traces.SegmentFree, traces.SegmentUnmap:
			f(Moment(i), false)
		}
	}
	return ctx.Err()
}

// runOf returns the run that a segment event obtains or returns.
func (b *runBook) runOf(m Moment) run {
	tr, ev := b.d.tl.Trace, b.d.Event(m)
	r := run{
		addr: ev.Addr, size: ev.Size, stack: ev.Stack, stream: ev.Stream,
		small:      ev.Size <= torchalloc.SmallBuffer,
		expandable: ev.Action == traces.SegmentMap || ev.Action == traces.SegmentUnmap,
	}
	if ev.Action == traces.SegmentUnmap { // one event may return several pages, large ones in the large pool
		r.small = ev.Size%torchalloc.LargeBuffer != 0
	}
	if det := tr.DetailOf(b.d.first + int(m)); det.HasPool {
		r.pool = det.Pool
	}
	return r
}

// walkBack finds the lives from the final state.
func (b *runBook) walkBack(ctx context.Context) error {
	for _, seg := range b.d.tl.Trace.Final.Segments {
		if seg.Device == b.d.ID {
			b.open = append(b.open, run{
				addr: seg.Address, size: seg.TotalSize, end: Never, stack: seg.Stack, stream: seg.Stream,
				pool:  seg.Pool,
				small: seg.Small, expandable: seg.Expandable,
			})
		}
	}
	slices.SortFunc(b.open, func(x, y run) int { return cmp.Compare(x.addr, y.addr) })
	b.dropOverlaps()
	err := b.eachEvent(ctx, true, func(m Moment, gained bool) {
		begin := func(piece run) {
			piece.start = m
			b.done = append(b.done, piece)
		}
		r := b.runOf(m)
		if gained {
			// pages come one request at a time, so this event shows the pool even if the one that returned
			// them does not
			if r.expandable {
				small := r.small
				begin = func(piece run) {
					if piece.start = m; piece.end != Never { // else it is in the final state
						piece.small = small
					}
					b.done = append(b.done, piece)
				}
			}
			if b.cut(r.addr, r.size, begin) < r.size {
				b.doubts++
			}
			return
		}
		r.end = m
		b.add(r, begin)
	})
	for _, r := range b.open {
		r.start = Start
		b.done = append(b.done, r)
	}
	b.open = nil
	return err
}

// dropOverlaps drops final segments that overlap their predecessor, which no real allocator's state has.
func (b *runBook) dropOverlaps() {
	n := 0
	for _, r := range b.open {
		if r.size <= 0 || r.until() < r.addr || n > 0 && r.addr < b.open[n-1].until() {
			b.doubts++
			continue
		}
		b.open[n] = r
		n++
	}
	b.open = b.open[:n]
}

// walkForth finds the lives starting from nothing; memory that is returned but was never obtained was there
// from the start.
func (b *runBook) walkForth(ctx context.Context) error {
	err := b.eachEvent(ctx, false, func(m Moment, gained bool) {
		finish := func(piece run) {
			piece.end = m
			b.done = append(b.done, piece)
		}
		r := b.runOf(m)
		if gained {
			r.start, r.end = m, Never
			b.add(r, finish)
			return
		}
		if found := b.cut(r.addr, r.size, finish); found == 0 && r.size > 0 {
			r.start, r.end = Start, m
			b.done = append(b.done, r)
		} else if found < r.size {
			b.doubts++
		}
	})
	b.done = append(b.done, b.open...)
	b.open = nil
	return err
}

// SegmentsAt returns the segments at m by address, without their pieces; neighbours of one expandable segment
// are one.
func SegmentsAt(d *Device, m Moment) []SegmentState {
	lives, _, _ := findLives(context.Background(), d)
	runs := runsAt(lives, m)
	segments := make([]SegmentState, len(runs))
	for i := range runs {
		segments[i] = runs[i].segment()
	}
	return segments
}

// segment returns a run as an empty segment.
func (r *run) segment() SegmentState {
	return SegmentState{
		Addr: r.addr, Size: r.size, Stream: r.stream, Pool: r.pool, Small: r.small, Expandable: r.expandable,
		Stack: r.stack,
	}
}

// runsAt returns the runs alive at m by address, neighbours of one expandable segment merged.
func runsAt(lives []run, m Moment) []run {
	var runs []run
	for i := range lives {
		if lives[i].start <= m && m < lives[i].end {
			runs = append(runs, lives[i])
		}
	}
	slices.SortFunc(runs, func(x, y run) int { return cmp.Compare(x.addr, y.addr) })
	n := 0
	for _, r := range runs {
		if n > 0 {
			p := &runs[n-1]
			if p.expandable && r.expandable && p.until() == r.addr && p.stream == r.stream &&
				p.pool == r.pool {
				p.size += r.size
				continue
			}
		}
		runs[n] = r
		n++
	}
	return runs[:n]
}

// StateAt returns the allocator's segments and their blocks at m. The parts of reserved add up exactly at
// every moment; Exactness and Reason say how far to trust them. The first call on a device walks its segment
// events, and stops when ctx is cancelled.
func StateAt(ctx context.Context, d *Device, m Moment) (*AllocatorState, error) {
	lives, doubts, err := findLives(ctx, d)
	if err != nil {
		return nil, err
	}
	s := &AllocatorState{At: m,
		Known: d.Totals.PeakReserved.IsKnown() && (len(lives) > 0 || d.Totals.FinalKnown)}
	if !s.Known {
		s.Reason = "the source records no segments"
		return s, nil
	}
	p := placer{d: d, m: m, state: s}
	p.place(runsAt(lives, m))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.judge(d, &p, doubts)
	return s, nil
}

// placer tiles segments with the blocks active at a moment.
type placer struct {
	d         *Device
	m         Moment
	state     *AllocatorState
	inferred  int // active blocks whose rounded size comes from the rule alone
	conflicts int // blocks that overlap others
}

func (p *placer) place(runs []run) {
	a := &p.d.Allocs
	active := p.d.ActiveAt(p.m, nil)
	slices.SortStableFunc(active, func(x, y AllocID) int { return cmp.Compare(a.Addr[x], a.Addr[y]) })
	k := 0
	p.state.Segments = make([]SegmentState, 0, len(runs))
	for _, r := range runs {
		for ; k < len(active) && a.Addr[active[k]] < r.addr; k++ {
			p.miss(active[k])
		}
		from := k
		for k < len(active) && a.Addr[active[k]] < r.until() {
			k++
		}
		p.tile(r, active[from:k])
	}
	for ; k < len(active); k++ {
		p.miss(active[k])
	}
}

// miss counts a block that lies in no segment.
func (p *placer) miss(id AllocID) {
	p.state.Unplaced++
	p.state.UnplacedBytes += p.d.Allocs.Rounded[id]
}

// tile adds the segment of a run with its blocks, which are ordered by address.
func (p *placer) tile(r run, blocks []AllocID) {
	a, s := &p.d.Allocs, p.state
	seg := r.segment()
	seg.Pieces = make([]Piece, 0, 2*len(blocks)+1)
	at, holes := r.addr, int64(0)
	hole := func(to uint64) {
		if to > at {
			size := int64(to - at)
			seg.Pieces = append(seg.Pieces, Piece{Addr: at, Size: size, Alloc: NoAlloc})
			holes += size
			s.LargestFree = max(s.LargestFree, size)
		}
	}
	for i, id := range blocks {
		limit := r.until()
		if i+1 < len(blocks) {
			limit = a.Addr[blocks[i+1]]
		}
		size := min(a.Rounded[id], int64(limit-a.Addr[id]))
		if size < a.Rounded[id] && size < a.Size[id] {
			p.conflicts++
		}
		if size <= 0 { // a later block took its place: its free is missing
			p.miss(id)
			continue
		}
		hole(a.Addr[id])
		at = a.Addr[id] + uint64(size)
		seg.Pieces = append(seg.Pieces, p.piece(id, size))
		seg.Active += size
	}
	hole(r.until())
	if seg.Active > 0 {
		s.Stranded += holes
	} else {
		s.Cached += holes
	}
	s.Reserved += r.size
	s.Segments = append(s.Segments, seg)
}

func (p *placer) piece(id AllocID, size int64) Piece {
	a, s := &p.d.Allocs, p.state
	requested := min(a.Size[id], size)
	s.ActiveRequested += requested
	s.Internal += size - requested
	if a.End[id] != Never {
		p.inferred++
	}
	piece := Piece{Addr: a.Addr[id], Size: size, Alloc: id, State: traces.BlockAllocated}
	if a.Requested[id] <= p.m {
		piece.State = traces.BlockPendingFree
		s.PendingFree += size
	}
	return piece
}

// judge sets how far the state can be trusted.
func (s *AllocatorState) judge(d *Device, p *placer, doubts int) {
	switch {
	case s.Unplaced > 0:
		s.Exactness = Inferred
		s.Reason = fmt.Sprintf("%s (%s) in no known segment", Counted(s.Unplaced, "active block"),
			Counted(s.UnplacedBytes, "byte"))
	case p.conflicts+doubts > 0:
		s.Exactness = Inferred
		s.Reason = Counted(p.conflicts+doubts, "overlap") + " of blocks or segments: events are missing"
	case d.Totals.RequestedExactness != Exact:
		s.Exactness, s.Reason = d.Totals.Exactness, d.Totals.Reason
	case !d.Totals.FinalKnown && !d.Totals.BeginsEmpty:
		s.Exactness, s.Reason = LowerBound, "segments that no event obtains or gives back are not in the "+
			"recording"
	case p.inferred > 0 && d.Totals.Exactness != Exact:
		s.Exactness = Inferred
		s.Reason = fmt.Sprintf("sizes of %s active blocks follow the allocator's rule%s",
			Count(int64(p.inferred)), roundingNote(d))
	default:
		s.Reason = "every block's size is the allocator's own, or follows from its rules and what lies " +
			"around it"
	}
}

// roundingNote says how well the rule agrees with the final state.
func roundingNote(d *Device) string {
	switch {
	case d.roundChecked == 0:
		return ": leftovers that it did not split off count as fragmented"
	case d.roundWrong == 0:
		return fmt.Sprintf(", which gives all %s that the final state shows", Count(int64(d.roundChecked)))
	}
	return fmt.Sprintf(", which misses %d of the %d that the final state shows", d.roundWrong, d.roundChecked)
}
