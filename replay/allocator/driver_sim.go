package allocator

import (
	"fmt"
	"math"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// The simulated device counts what a real one would hold. Physical memory comes in pages of 2 MiB
// (torchalloc.Granularity), which cuMemGetAllocationGranularity returns on NVIDIA's GPUs and cuMemCreate
// requires. cudaMalloc is not documented beyond "aligned to at least 256 bytes" (CUDA C++ Programming Guide,
// Device Memory Accesses). Our interpretation, from addresses given to real programs (the published SINGA
// traces have 128-byte allocations 512 bytes apart): requests of 2 MiB and more take whole pages, smaller
// ones are cut from shared pages at multiples of 512 bytes, best fit, and a page goes back when its last
// piece does. PyTorch's allocator asks only for multiples of 2 MiB, so its figures do not depend on this
// interpretation.
//
// Addresses are best fit, too, and lie above every address that a real driver hands out, so that recorded
// segments can be put beside them (AllocAt).

const (
	firstAddress = 1 << 48
	addressSpace = 1 << 60
	unlimited    = 1 << 40 // bytes of a device without limit
	smallAlign   = 512
)

// driverCalls counts the calls that a driver served.
type driverCalls struct {
	Allocs, Frees, Reserves, Creates, Maps, Unmaps int64
}

// SimDriver is a simulated device. It is a Placer.
type SimDriver struct {
	capacity   int64
	held, peak int64
	calls      driverCalls

	space  bestFit             // addresses in pages
	small  bestFit             // pieces of shared pages
	pages  map[uint64]ref      // shared page -> its block of space
	allocs map[uint64]simAlloc // Alloc and Reserve
	mapped map[uint64]Handle
	made   []physical // by handle - 1
	unused []Handle
}

type simAlloc struct {
	size     int64
	block    ref // in space, or in small
	small    bool
	reserved bool
}

type physical struct {
	size     int64
	mappings int32
	released bool
}

// NewDriver returns a simulated device of capacity bytes, 0 for one of 1 TiB, which no model fills.
func NewDriver(capacity int64) *SimDriver {
	if capacity <= 0 {
		capacity = unlimited
	}
	d := &SimDriver{capacity: capacity, pages: map[uint64]ref{}, allocs: map[uint64]simAlloc{},
		mapped: map[uint64]Handle{}}
	d.space.addRegion(firstAddress, addressSpace)
	return d
}

func roundUp(size, multiple int64) int64 { return (size + multiple - 1) / multiple * multiple }

// Held returns the bytes that are not free now, Peak the maximum so far.
func (d *SimDriver) Held() int64 { return d.held }

// Peak returns the maximum of Held so far.
func (d *SimDriver) Peak() int64 { return d.peak }

// MemInfo returns the free and the total bytes.
func (d *SimDriver) MemInfo() (free, total int64) { return d.capacity - d.held, d.capacity }

func (d *SimDriver) hold(size int64) error {
	if free, total := d.MemInfo(); size > free {
		return fmt.Errorf("driver: %d bytes of %d are free, %d asked for: %w", free, total, size,
			ErrOutOfMemory)
	}
	d.held += size
	d.peak = max(d.peak, d.held)
	return nil
}

// Alloc implements Driver.
func (d *SimDriver) Alloc(size int64) (uint64, error) {
	if size <= 0 || size > maxRequest {
		return 0, fmt.Errorf("driver: alloc %d bytes: %w", size, ErrOutOfMemory)
	}
	if size < torchalloc.Granularity {
		return d.allocSmall(roundUp(size, smallAlign))
	}
	size = roundUp(size, torchalloc.Granularity)
	r := d.space.fit(size)
	if r == 0 {
		return 0, fmt.Errorf("driver: no addresses left: %w", ErrOutOfMemory)
	}
	if err := d.hold(size); err != nil {
		return 0, err
	}
	d.space.take(r, size)
	addr := d.space.slab.at(r).addr
	d.allocs[addr] = simAlloc{size: size, block: r}
	d.calls.Allocs++
	return addr, nil
}

func (d *SimDriver) allocSmall(size int64) (uint64, error) {
	r := d.small.fit(size)
	if r == 0 {
		if err := d.hold(torchalloc.Granularity); err != nil {
			return 0, err
		}
		page := d.space.fit(torchalloc.Granularity)
		d.space.take(page, torchalloc.Granularity)
		addr := d.space.slab.at(page).addr
		d.pages[addr] = page
		r = d.small.addRegion(addr, torchalloc.Granularity)
	}
	d.small.take(r, size)
	addr := d.small.slab.at(r).addr
	d.allocs[addr] = simAlloc{size: size, block: r, small: true}
	d.calls.Allocs++
	return addr, nil
}

// AllocAt implements Placer.
func (d *SimDriver) AllocAt(addr uint64, size int64) error {
	return d.place(addr, size, simAlloc{size: roundUp(size, torchalloc.Granularity)})
}

// ReserveAt implements Placer.
func (d *SimDriver) ReserveAt(addr uint64, size int64) error {
	return d.place(addr, size, simAlloc{size: size, reserved: true})
}

func (d *SimDriver) place(addr uint64, size int64, a simAlloc) error {
	if size <= 0 || addr >= firstAddress || uint64(size) > firstAddress-addr {
		return fmt.Errorf("driver: no room for %d bytes at %#x: places end at %#x", size, addr,
			uint64(firstAddress))
	}
	if _, taken := d.allocs[addr]; taken {
		return fmt.Errorf("driver: %#x is taken", addr)
	}
	if !a.reserved {
		if err := d.hold(a.size); err != nil {
			return err
		}
		d.calls.Allocs++
	} else {
		d.calls.Reserves++
	}
	d.allocs[addr] = a
	return nil
}

// Free implements Driver.
func (d *SimDriver) Free(addr uint64) error {
	a, known := d.allocs[addr]
	if !known || a.reserved {
		return fmt.Errorf("driver: free %#x: it was not allocated", addr)
	}
	delete(d.allocs, addr)
	d.calls.Frees++
	switch {
	case !a.small:
		d.held -= a.size
		if a.block != 0 {
			d.space.give(a.block)
		}
	default:
		hole := d.small.give(a.block)
		if b := d.small.slab.at(hole); b.size == torchalloc.Granularity {
			d.space.give(d.pages[b.addr])
			delete(d.pages, b.addr)
			d.small.removeRegion(hole)
			d.held -= torchalloc.Granularity
		}
	}
	return nil
}

// Reserve implements Driver.
func (d *SimDriver) Reserve(size int64) (uint64, error) {
	if size <= 0 || size%torchalloc.Granularity != 0 {
		return 0, fmt.Errorf("driver: reserve %d bytes: not a multiple of %d", size,
			int64(torchalloc.Granularity))
	}
	r := d.space.fit(size)
	if r == 0 {
		return 0, fmt.Errorf("driver: no %d bytes of addresses left: %w", size, ErrOutOfMemory)
	}
	d.space.take(r, size)
	addr := d.space.slab.at(r).addr
	d.allocs[addr] = simAlloc{size: size, block: r, reserved: true}
	d.calls.Reserves++
	return addr, nil
}

// Unreserve implements Driver.
func (d *SimDriver) Unreserve(addr uint64) error {
	a, known := d.allocs[addr]
	if !known || !a.reserved {
		return fmt.Errorf("driver: unreserve %#x: it was not reserved", addr)
	}
	delete(d.allocs, addr)
	if a.block != 0 {
		d.space.give(a.block)
	}
	return nil
}

// Create implements Driver.
func (d *SimDriver) Create(size int64) (Handle, error) {
	if size <= 0 || size%torchalloc.Granularity != 0 {
		return 0, fmt.Errorf("driver: create %d bytes: not a multiple of %d", size,
			int64(torchalloc.Granularity))
	}
	if err := d.hold(size); err != nil {
		return 0, err
	}
	d.calls.Creates++
	if n := len(d.unused); n > 0 {
		h := d.unused[n-1]
		d.unused = d.unused[:n-1]
		d.made[h-1] = physical{size: size}
		return h, nil
	}
	if len(d.made) == math.MaxInt32 {
		return 0, fmt.Errorf("driver: too many handles: %w", ErrOutOfMemory)
	}
	d.made = append(d.made, physical{size: size})
	return Handle(len(d.made)), nil
}

func (d *SimDriver) physical(h Handle) (*physical, error) {
	if h <= 0 || int(h) > len(d.made) || d.made[h-1].size == 0 {
		return nil, fmt.Errorf("driver: handle %d is not in use", h)
	}
	return &d.made[h-1], nil
}

// Release implements Driver.
func (d *SimDriver) Release(h Handle) error {
	p, err := d.physical(h)
	if err != nil {
		return err
	}
	p.released = true
	d.reclaim(h, p)
	return nil
}

// reclaim takes back memory that nothing refers to any more.
func (d *SimDriver) reclaim(h Handle, p *physical) {
	if p.released && p.mappings == 0 {
		d.held -= p.size
		*p = physical{}
		d.unused = append(d.unused, h)
	}
}

// Map implements Driver.
func (d *SimDriver) Map(addr uint64, h Handle) error {
	p, err := d.physical(h)
	if err != nil {
		return err
	}
	if _, taken := d.mapped[addr]; taken || addr%torchalloc.Granularity != 0 {
		return fmt.Errorf("driver: map at %#x: something is mapped there, or it is not aligned", addr)
	}
	d.mapped[addr] = h
	p.mappings++
	d.calls.Maps++
	return nil
}

// Unmap implements Driver.
func (d *SimDriver) Unmap(addr uint64, size int64) error {
	for end := addr + uint64(size); addr < end; {
		h, known := d.mapped[addr]
		if !known {
			return fmt.Errorf("driver: unmap %#x: nothing is mapped there", addr)
		}
		delete(d.mapped, addr)
		p := &d.made[h-1]
		addr += uint64(p.size)
		p.mappings--
		d.reclaim(h, p)
		d.calls.Unmaps++
	}
	return nil
}
