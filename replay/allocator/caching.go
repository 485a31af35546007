package allocator

import (
	"errors"
	"fmt"
	"math"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp, DeviceCachingAllocator), decision for
// decision. A program's reserved memory follows from these decisions alone, so each is copied exactly,
// including the odd ones:
//
//   - A request is rounded up to 512 bytes, or to roundup_power2_divisions (Settings.Round).
//   - Blocks of at most 1 MiB come from the small pool, whose segments are 2 MiB; others from the large pool,
//     whose segments are 20 MiB for requests below 10 MiB, and otherwise the request rounded up to 2 MiB
//     (Settings.SegmentFor).
//   - Of the pool's free blocks of the stream, the smallest that fits is taken, and of equal ones the lowest
//     or the oldest: the lower bound in a set ordered by (stream, size, age if the release uses it, address).
//     A block of another stream is never taken.
//   - The rest is split off if it is at least 512 bytes (small pool, or expandable segments) or more than 1
//     MiB (large pool); otherwise the block keeps it, which wastes memory beyond rounding.
//   - A freed block merges with its free neighbours in the segment and goes back to the set. Segments stay
//     cached.
//   - If nothing fits, the driver is asked. If it refuses (or the cap does), unsplit blocks beyond
//     max_split_size_mb are given back, and the driver is asked again. Then everything entirely free is given
//     back (release_cached_blocks), and the driver is asked a last time, which is the retry that
//     num_alloc_retries counts. Then the request fails.
//   - max_split_size_mb: larger blocks are never split, small requests never get one, and a large request
//     gets one only if the block is less than 20 MiB (max_non_split_rounding_mb) larger.
//   - garbage_collection_threshold: see collectGarbage. Expandable segments: see caching_expandable.go.
//   - A private pool, of a CUDA graph or a torch.cuda.MemPool, has segments of its own, which serve nothing
//     else and are not given back while the pool is in use. A recording names the pool of each request. It
//     says neither when a graph is captured nor when a pool ends, so a pool here has no end, and what
//     PyTorch does otherwise during a capture (it queries no events and does not give back the cache) is not
//     emulated.
//
// Releases of PyTorch differ in a few of these decisions: see rules.go. Two constants can be set in newer
// ones and are 20 MiB by default (max_non_split_rounding_mb, large_segment_size_mb). Not emulated:
// free-memory callbacks, pools that may be used on out-of-memory, cudaMallocAsync.
//
// O(log n) for each request and free, n free blocks of the pool; giving back the cache is linear in n.
//
// Rejected: an emulation on sizes alone that forgets addresses (faster, and wrong: which hole a block gets
// decides what can merge).

// Caching is PyTorch's caching allocator for one device: it decides who gets which memory when. The heap
// manages the memory itself.
type Caching struct {
	heap
	private map[traces.Pool]int32 // the index of each private pool's small pool; the large one follows
	delayed delayed
}

// heap holds the segments, their blocks, and the pools of free blocks.
type heap struct {
	c          Config
	set        Settings
	slab       slab
	stats      *Stats
	pools      []blockPool
	expandable []expandable
	born       int64 // segments and ranges so far
	scratch    []ref
}

// blockPool is one pool of free blocks: small or large, of the default or a private pool.
type blockPool struct {
	free     set
	unmapped set // of expandable segments, by address
	id       traces.Pool
	small    bool
	searches int64 // get_free_blocks_call_count
	segments int   // obtained and not given back, as PyTorch counts (cudaMalloc_count)
}

// Indices of the default pool's two blockPools.
const (
	smallPool = iota
	largePool
)

// NewCaching returns a Caching over c.Driver with c.Settings.
func NewCaching(c Config) (*Caching, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	switch b := c.Settings.Backend; {
	case b == asyncBackend:
		return nil, errors.New("allocator: backend:cudaMallocAsync leaves caching to the driver, which is " +
			"not emulated: use backend:native")
	case !c.Settings.Native():
		return nil, fmt.Errorf("allocator: backend:%.40s is not emulated: use backend:native", b)
	}
	a := &Caching{
		heap:    heap{c: c, set: c.Settings, stats: new(Stats)},
		private: map[traces.Pool]int32{},
	}
	if f := a.set.MemoryFraction; f > 0 && c.Cap == 0 {
		a.SetMemoryFraction(f)
	}
	a.delayed.events = c.Events
	a.addPools(traces.Pool{})
	return a, nil
}

// SetMemoryFraction caps what may be held at a share of the device's memory
// (torch.cuda.set_per_process_memory_fraction).
func (a *Caching) SetMemoryFraction(share float64) {
	a.c.Cap = 0
	if share < 1 || !a.set.follows(fractionOfOneIsNone) {
		_, total := a.c.Driver.MemInfo()
		a.c.Cap = int64(share * float64(total))
		if a.set.follows(roundedFraction) {
			a.c.Cap = int64(math.Round(share * float64(total)))
		}
	}
}

// nextBorn returns the number of a new segment or range, 0 if the rules order equal blocks by address.
func (a *heap) nextBorn() int64 {
	if !a.set.follows(olderBlockFirst) {
		return 0
	}
	a.born++
	return a.born
}

// renew turns a part of a block, which is in no set, into a new block if the rules go by the age of blocks.
func (a *heap) renew(r ref) {
	if !a.set.follows(olderSegmentFirst) {
		a.slab.at(r).born = a.nextBorn()
	}
}

// addPools adds the small and the large pool of an id and returns the small one's index.
func (a *heap) addPools(id traces.Pool) int32 {
	a.pools = append(a.pools,
		blockPool{id: id, small: true, unmapped: set{byAddress: true}},
		blockPool{id: id, unmapped: set{byAddress: true}})
	return int32(len(a.pools) - 2)
}

// poolFor returns the index of the pool that a request of a rounded size goes to. The first request from a
// private pool makes it.
func (a *Caching) poolFor(id traces.Pool, rounded int64) int32 {
	first := int32(smallPool)
	if id != (traces.Pool{}) {
		known := false
		if first, known = a.private[id]; !known {
			first = a.addPools(id)
			a.private[id] = first
		}
	}
	if rounded <= torchalloc.SmallSize {
		return first
	}
	return first + 1
}

// Malloc implements Allocator.
func (a *Caching) Malloc(size int64, stream Stream) (Block, error) {
	return a.MallocFrom(traces.Pool{}, size, stream)
}

// MallocFrom is Malloc from a private pool or, for the zero Pool, from the default one.
func (a *Caching) MallocFrom(id traces.Pool, size int64, stream Stream) (Block, error) {
	if err := checkSize(size); err != nil {
		return Block{}, err
	}
	a.ProcessEvents()
	rounded := a.set.Round(size)
	pool := a.poolFor(id, rounded)
	r := a.takeFree(pool, rounded, stream)
	if r == 0 {
		var err error
		if r, err = a.obtain(pool, rounded, stream); err != nil {
			return Block{}, err
		}
	}
	b := a.slab.at(r)
	if a.shouldSplit(pool, b.size, rounded) {
		rest := a.slab.cut(r, rounded)
		a.insertFree(rest)
		a.renew(r)
		b = a.slab.at(r)
	}
	b.state, b.requested = Allocated, size
	a.stats.gave(size, b.size)
	return a.slab.handle(r), nil
}

// Cached reports whether a request would be served without the driver.
func (a *Caching) Cached(id traces.Pool, size int64, stream Stream) bool {
	rounded := a.set.Round(size)
	return a.findFree(a.poolFor(id, rounded), rounded, stream) != 0
}

// Garbage returns how many segments garbage collection would release for a request.
func (a *Caching) Garbage(id traces.Pool, size int64, stream Stream) int {
	if !a.collects() || a.Cached(id, size, stream) {
		return 0
	}
	searches := int64(0)
	if a.poolFor(id, a.set.Round(size)) == largePool {
		searches = 1 // its own
	}
	return len(a.garbage(searches))
}

func (a *heap) shouldSplit(pool int32, size, rounded int64) bool {
	small := a.pools[pool].small || a.set.ExpandableSegments
	return torchalloc.Splits(size-rounded, small) && (small || !a.set.oversize(rounded))
}

// insertFree puts a free block into the set of its pool.
func (a *heap) insertFree(r ref) {
	b := a.slab.at(r)
	p := &a.pools[b.pool]
	b.age = p.searches
	p.free.insert(&a.slab, r)
}

// collects reports whether garbage collection is active: it needs a cap, since its threshold is a share of
// that.
func (a *heap) collects() bool { return a.c.Cap > 0 && a.set.GarbageCollectionThreshold > 0 }

// takeFree removes the best-fitting block from its set, 0 if none fits (get_free_block).
func (a *heap) takeFree(pool int32, rounded int64, stream Stream) ref {
	if a.collects() {
		a.pools[pool].searches++
	}
	r := a.findFree(pool, rounded, stream)
	if r != 0 {
		a.pools[pool].free.erase(&a.slab, r)
	}
	return r
}

func (a *heap) findFree(pool int32, rounded int64, stream Stream) ref {
	s, free := &a.slab, &a.pools[pool].free
	r := free.atLeast(s, key{stream: stream, size: rounded})
	if r == 0 || s.at(r).stream != stream {
		return 0
	}
	if s.at(r).segment != 0 {
		if r = a.preferExpandable(free, r, stream); r == 0 {
			return 0
		}
	}
	size := s.at(r).size
	switch {
	case a.set.MaxSplitSize == 0:
	case rounded < a.set.MaxSplitSize && size >= a.set.MaxSplitSize:
		return 0
	case rounded >= a.set.MaxSplitSize && size >= rounded+a.set.nonSplitRounding():
		return 0
	}
	return r
}

// obtain gets a block from the driver, and releases cached ones if it refuses.
func (a *Caching) obtain(pool int32, rounded int64, stream Stream) (ref, error) {
	if a.collects() {
		if err := a.collectGarbage(); err != nil {
			return 0, err
		}
	}
	r, err := a.grow(pool, rounded, stream)
	if !errors.Is(err, ErrOutOfMemory) {
		return r, err
	}
	released, e := a.releaseAvailable(pool, rounded, stream)
	if e != nil {
		return 0, e
	}
	if released {
		if r, err = a.grow(pool, rounded, stream); !errors.Is(err, ErrOutOfMemory) {
			return r, err
		}
	}
	if e := a.releaseCached(); e != nil {
		return 0, e
	}
	a.stats.Retries++
	if r, err = a.grow(pool, rounded, stream); !errors.Is(err, ErrOutOfMemory) {
		return r, err
	}
	a.stats.OOMs++
	return 0, fmt.Errorf("allocator: %d bytes wanted with %d allocated of %d reserved: %w",
		rounded, a.stats.Allocated, a.stats.Reserved, err)
}

// grow asks the driver for a segment, or for more of an expandable one, and returns a free block that is in
// no set (alloc_block).
func (a *heap) grow(pool int32, rounded int64, stream Stream) (ref, error) {
	size, small := a.set.SegmentFor(rounded)
	if a.c.Cap > 0 && a.stats.Reserved+size > a.c.Cap {
		return 0, errCap
	}
	if a.set.ExpandableSegments {
		r, err := a.growExpandable(pool, rounded, stream)
		if err == nil {
			a.pools[pool].segments++
		}
		return r, err
	}
	addr, err := a.c.Driver.Alloc(size)
	if err != nil {
		return 0, err
	}
	a.pools[pool].segments++
	a.stats.DriverMallocs++
	a.stats.reserve(size)
	r := a.slab.add()
	b := a.slab.at(r)
	b.addr, b.size, b.stream, b.pool, b.born = addr, size, stream, pool, a.nextBorn()
	a.c.emit(SegmentEvent{SegmentAlloc, addr, size, stream, a.pools[pool].id, small})
	return r, nil
}

var errCap = fmt.Errorf("the cap is reached: %w", ErrOutOfMemory)

// Free implements Allocator.
func (a *Caching) Free(h Block) error {
	r := a.slab.find(h)
	if r == 0 {
		return blockError("free", h)
	}
	b := a.slab.at(r)
	b.state = PendingFree
	a.stats.Frees++
	a.stats.Allocated -= b.size
	if !a.delayed.free(&a.slab, r) {
		a.freed(r)
	}
	return nil
}

// RecordStream implements Allocator.
func (a *Caching) RecordStream(h Block, stream Stream) error {
	r := a.slab.find(h)
	if r == 0 {
		return blockError("record a stream of", h)
	}
	a.delayed.note(&a.slab, r, stream)
	return nil
}

// ProcessEvents implements Allocator.
func (a *Caching) ProcessEvents() {
	if a.delayed.n == 0 {
		return
	}
	a.scratch = a.delayed.poll(&a.slab, a.scratch[:0], false)
	for _, r := range a.scratch {
		a.freed(r)
	}
}

// freed puts a block whose use has ended back into its pool, merged with its neighbours (free_block).
func (a *heap) freed(r ref) {
	b := a.slab.at(r)
	a.stats.Active -= b.size
	a.stats.Requested -= b.requested
	b.state, b.requested = Inactive, 0
	a.merge(r, b.prev)
	a.merge(r, a.slab.at(r).next)
	a.insertFree(r)
}

// merge makes neighbour n part of r if it is free and mapped, or not, like r (try_merge_blocks).
func (a *heap) merge(r, n ref) {
	if n == 0 {
		return
	}
	s := &a.slab
	b, c := s.at(r), s.at(n)
	if c.state != Inactive || b.unmapped != c.unmapped {
		return
	}
	if c.unmapped {
		a.pools[c.pool].unmapped.erase(s, n)
	} else {
		a.pools[c.pool].free.erase(s, n)
	}
	b.size += c.size
	if b.prev == n {
		b.addr, b.prev = c.addr, c.prev
		if c.prev != 0 {
			s.at(c.prev).next = r
		}
	} else {
		b.next = c.next
		if c.next != 0 {
			s.at(c.next).prev = r
		}
	}
	s.remove(n)
}

// EmptyCache implements Allocator.
func (a *Caching) EmptyCache() error { return a.releaseCached() }

// Stats implements Allocator.
func (a *Caching) Stats() Stats { return *a.stats }
