package allocator

import (
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// The arena is the pool that deep-learning frameworks had before PyTorch's: one stretch of memory, requests
// rounded to 512 bytes, best fit, the rest split off, neighbours coalesced at once (NVIDIA's CnMem;
// TensorFlow's BFC allocator differs by its bins). With a size it obtains the stretch from the driver at the
// first request and never more, as cnmemInit does. Without, it is as large as necessary: addresses for the
// whole device are reserved and memory is mapped behind them in pages of 2 MiB as the highest block moves up,
// so HighWater is the size of the smallest fixed arena in which the same requests succeed. SmartPool is
// compared with CnMem figures computed this way.
//
// Our interpretation for streams: CnMem keeps an arena for each stream and lets streams steal from each other
// after synchronising. Here there is one arena; a request whose hole was last used by another stream waits
// for the device, which Synchronisations counts.
//
// O(log n) for each request and free.

// Arena is one arena of memory.
type Arena struct {
	c       Config
	fit     bestFit
	delayed delayed
	scratch []ref
	stats   Stats

	base      uint64 // 0 before the first request
	size      int64  // of addresses
	mapped    int64  // bytes from base that have memory
	handles   []Handle
	highWater int64
}

// NewArena returns an Arena over c.Driver, of c.ArenaSize bytes or growing.
func NewArena(c Config) (*Arena, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	if c.ArenaSize < 0 || c.ArenaSize > maxRequest {
		return nil, fmt.Errorf("allocator: an arena of %d bytes: use 0 for one that grows", c.ArenaSize)
	}
	a := &Arena{c: c}
	a.delayed.events = c.Events
	return a, nil
}

// HighWater returns the highest byte that was ever part of a block, counted from the arena's start: its
// footprint before rounding to the driver's granularity.
func (a *Arena) HighWater() int64 { return a.highWater }

func (a *Arena) open() error {
	if a.base != 0 {
		return nil
	}
	d := a.c.Driver
	if size := a.c.ArenaSize; size > 0 {
		addr, err := d.Alloc(size)
		if err != nil {
			return err
		}
		a.base, a.size, a.mapped = addr, size, size
		a.stats.DriverMallocs++
		a.stats.reserve(size)
		a.c.emit(SegmentEvent{Action: SegmentAlloc, Addr: addr, Size: size})
	} else {
		_, total := d.MemInfo()
		size := roundUp(total+total/8, torchalloc.Granularity)
		addr, err := d.Reserve(size)
		if err != nil {
			return err
		}
		a.base, a.size = addr, size
	}
	a.fit.addRegion(a.base, a.size)
	return nil
}

// Malloc implements Allocator.
func (a *Arena) Malloc(size int64, stream Stream) (Block, error) {
	if err := checkSize(size); err != nil {
		return Block{}, err
	}
	if err := a.open(); err != nil {
		return Block{}, err
	}
	a.ProcessEvents()
	rounded := roundUp(max(size, 1), torchalloc.MinBlock)
	r, err := a.obtain(rounded)
	if errors.Is(err, ErrOutOfMemory) && a.delayed.n > 0 {
		a.synchronise()
		a.stats.Retries++
		r, err = a.obtain(rounded)
	}
	if err != nil {
		if errors.Is(err, ErrOutOfMemory) {
			a.stats.OOMs++
		}
		return Block{}, err
	}
	b := a.fit.slab.at(r)
	if user := int32(stream) + 1; b.pool != nobody && b.pool != user {
		a.stats.Synchronisations++
	}
	b.stream, b.requested = stream, size
	a.highWater = max(a.highWater, int64(b.end()-a.base))
	a.stats.gave(size, b.size)
	return a.fit.slab.handle(r), nil
}

// obtain makes a block in the best-fitting hole and backs it with memory.
func (a *Arena) obtain(rounded int64) (ref, error) {
	r := a.fit.fit(rounded)
	if r == 0 {
		return 0, fmt.Errorf("allocator: no hole of %d bytes in an arena of %d: %w", rounded, a.size,
			ErrOutOfMemory)
	}
	if err := a.back(int64(a.fit.slab.at(r).addr-a.base) + rounded); err != nil {
		return 0, err
	}
	a.fit.take(r, rounded)
	return r, nil
}

// back maps memory up to an offset.
func (a *Arena) back(until int64) error {
	d, from := a.c.Driver, a.mapped
	if err := checkVast(d, until-from); err != nil {
		return err
	}
	defer func() {
		if size := a.mapped - from; size > 0 {
			a.stats.reserve(size)
			a.c.emit(SegmentEvent{Action: SegmentMap, Addr: a.base + uint64(from), Size: size})
		}
	}()
	for a.mapped < until {
		h, err := d.Create(torchalloc.Granularity)
		if err != nil {
			return err
		}
		if err := d.Map(a.base+uint64(a.mapped), h); err != nil {
			return errors.Join(err, d.Release(h))
		}
		a.handles = append(a.handles, h)
		a.mapped += torchalloc.Granularity
		a.stats.Maps++
	}
	return nil
}

// Free implements Allocator.
func (a *Arena) Free(h Block) error {
	r := a.fit.slab.find(h)
	if r == 0 {
		return blockError("free", h)
	}
	a.fit.slab.at(r).state = PendingFree
	a.stats.Frees++
	a.stats.Allocated -= h.Size
	if !a.delayed.free(&a.fit.slab, r) {
		a.freed(r)
	}
	return nil
}

func (a *Arena) freed(r ref) {
	b := a.fit.slab.at(r)
	a.stats.Active -= b.size
	a.stats.Requested -= b.requested
	b.pool, b.stream = int32(b.stream)+1, 0
	a.fit.give(r)
}

// RecordStream implements Allocator.
func (a *Arena) RecordStream(h Block, stream Stream) error {
	r := a.fit.slab.find(h)
	if r == 0 {
		return blockError("record a stream of", h)
	}
	a.delayed.note(&a.fit.slab, r, stream)
	return nil
}

// ProcessEvents implements Allocator.
func (a *Arena) ProcessEvents() { a.poll(false) }

func (a *Arena) poll(wait bool) {
	a.scratch = a.delayed.poll(&a.fit.slab, a.scratch[:0], wait)
	for _, r := range a.scratch {
		a.freed(r)
	}
}

func (a *Arena) synchronise() {
	a.stats.Synchronisations++
	a.poll(true)
}

// EmptyCache implements Allocator: it returns a fixed arena if nothing is in it, and the pages after the last
// block of a growing one.
func (a *Arena) EmptyCache() error {
	if a.base == 0 {
		return nil
	}
	a.synchronise()
	d := a.c.Driver
	last := a.fit.lastHole(a.base + uint64(a.size))
	if a.c.ArenaSize > 0 {
		if last == 0 || a.fit.slab.at(last).size != a.size {
			return nil
		}
		if err := d.Free(a.base); err != nil {
			return err
		}
		a.fit.removeRegion(last)
		a.stats.DriverFrees++
		a.stats.Synchronisations++
		a.stats.Reserved -= a.size
		a.c.emit(SegmentEvent{Action: SegmentFree, Addr: a.base, Size: a.size})
		a.base, a.mapped = 0, 0
		return nil
	}
	keep := a.mapped
	if last != 0 {
		keep = min(keep, roundUp(int64(a.fit.slab.at(last).addr-a.base), torchalloc.Granularity))
	}
	size := a.mapped - keep
	if size == 0 {
		return nil
	}
	if err := d.Unmap(a.base+uint64(keep), size); err != nil {
		return err
	}
	first := keep / torchalloc.Granularity
	for _, h := range a.handles[first:] {
		if err := d.Release(h); err != nil {
			return err
		}
	}
	a.handles = a.handles[:first]
	a.mapped = keep
	a.stats.Unmaps += size / torchalloc.Granularity
	a.stats.Synchronisations++
	a.stats.Reserved -= size
	a.c.emit(SegmentEvent{Action: SegmentUnmap, Addr: a.base + uint64(keep), Size: size})
	return nil
}

// Stats implements Allocator.
func (a *Arena) Stats() Stats { return a.stats }

// Segments implements Allocator: the part of the arena that has memory.
func (a *Arena) Segments() []Segment {
	if a.base == 0 || a.mapped == 0 {
		return nil
	}
	seg := Segment{Addr: a.base, Size: a.mapped, Expandable: a.c.ArenaSize == 0}
	limit := a.base + uint64(a.mapped)
	for r := a.fit.firstBlock(); r != 0; r = a.fit.slab.at(r).next {
		b := a.fit.slab.at(r)
		if b.addr >= limit {
			break
		}
		size := min(b.size, int64(limit-b.addr))
		seg.Blocks = append(seg.Blocks, SegmentBlock{b.addr, size, b.requested, b.state})
	}
	return []Segment{seg}
}
