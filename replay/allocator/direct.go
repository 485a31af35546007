package allocator

import (
	"cmp"
	"slices"
)

// direct asks the driver for every block and returns every block at once, like a program that calls
// cudaMalloc and cudaFree (PYTORCH_NO_CUDA_MEMORY_CACHING=1). It wastes no memory beyond the driver's own
// rounding and pays for that in time: cudaFree waits until the device has finished all its work, which
// Synchronisations counts. For the same reason a block used on other streams needs no delay.
type direct struct {
	c     Config
	slab  slab
	stats Stats
}

// newDirect returns a direct allocator over c.Driver.
func newDirect(c Config) (*direct, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	return &direct{c: c}, nil
}

// Malloc implements Allocator.
func (d *direct) Malloc(size int64, stream Stream) (Block, error) {
	if err := checkSize(size); err != nil {
		return Block{}, err
	}
	addr, err := d.c.Driver.Alloc(max(size, 1))
	if err != nil {
		d.stats.OOMs++
		return Block{}, err
	}
	r := d.slab.add()
	b := d.slab.at(r)
	b.addr, b.size, b.requested, b.stream, b.state = addr, roundUp(max(size, 1), smallAlign), size, stream,
		Allocated
	d.stats.DriverMallocs++
	d.stats.reserve(b.size)
	d.stats.gave(size, b.size)
	d.c.emit(SegmentEvent{Action: SegmentAlloc, Addr: addr, Size: b.size, Stream: stream})
	return d.slab.handle(r), nil
}

// Free implements Allocator.
func (d *direct) Free(h Block) error {
	r := d.slab.find(h)
	if r == 0 {
		return blockError("free", h)
	}
	if err := d.c.Driver.Free(h.Addr); err != nil {
		return err
	}
	d.slab.remove(r)
	s := &d.stats
	s.Frees++
	s.DriverFrees++
	s.Synchronisations++
	s.Requested -= h.Requested
	s.Allocated -= h.Size
	s.Active -= h.Size
	s.Reserved -= h.Size
	d.c.emit(SegmentEvent{Action: SegmentFree, Addr: h.Addr, Size: h.Size, Stream: h.Stream})
	return nil
}

// RecordStream implements Allocator; the free waits for every stream anyway.
func (d *direct) RecordStream(h Block, _ Stream) error {
	if d.slab.find(h) == 0 {
		return blockError("record a stream of", h)
	}
	return nil
}

// ProcessEvents implements Allocator: there is nothing to wait for.
func (d *direct) ProcessEvents() {}

// EmptyCache implements Allocator: there is no cache.
func (d *direct) EmptyCache() error { return nil }

// Stats implements Allocator. Reserved counts blocks rounded to 512 bytes; only the driver knows what the
// device holds for them.
func (d *direct) Stats() Stats { return d.stats }

// Segments implements Allocator: every block is a segment.
func (d *direct) Segments() []Segment {
	var all []Segment
	for i := range d.slab.all {
		if b := &d.slab.all[i]; b.generation%2 == 1 {
			all = append(all, Segment{
				Addr: b.addr, Size: b.size, Stream: b.stream,
				Blocks: []SegmentBlock{{Addr: b.addr, Size: b.size, Requested: b.requested,
					State: Allocated}},
			})
		}
	}
	slices.SortFunc(all, func(a, b Segment) int { return cmp.Compare(a.Addr, b.Addr) })
	return all
}
