package allocator

import "fmt"

// Handle names physical memory that a driver made and that can be mapped; 0 is none.
type Handle int64

// Driver is the device's memory as the CUDA driver offers it: whole allocations (cudaMalloc), and virtual
// memory, where physical memory is created and mapped at reserved addresses. Sizes and addresses of virtual
// memory are multiples of [torchalloc.Granularity]. ErrOutOfMemory says that the device has not enough left;
// nothing has changed then.
//
// A Driver need not be fast or safe for concurrent use. It chooses addresses freely, and policies use them
// only to break ties between holes of equal size.
type Driver interface {
	// Alloc returns the address of size new bytes (cudaMalloc).
	Alloc(size int64) (addr uint64, err error)
	// Free gives back what Alloc returned (cudaFree). A device waits for all its work first.
	Free(addr uint64) error

	// Reserve returns the address of size bytes of address space without memory (cuMemAddressReserve).
	Reserve(size int64) (addr uint64, err error)
	// Unreserve gives back a whole reservation, of which nothing is mapped (cuMemAddressFree).
	Unreserve(addr uint64) error
	// Create makes physical memory (cuMemCreate).
	Create(size int64) (Handle, error)
	// Release gives physical memory back; the device has it again once it is mapped nowhere (cuMemRelease).
	Release(h Handle) error
	// Map puts the whole of h at a reserved address (cuMemMap and cuMemSetAccess); the same h may be mapped
	// at several.
	Map(addr uint64, h Handle) error
	// Unmap removes the mappings that fill [addr, addr+size) exactly (cuMemUnmap). The caller waits for work
	// on them first.
	Unmap(addr uint64, size int64) error

	// MemInfo returns the device's free and total bytes (cudaMemGetInfo).
	MemInfo() (free, total int64)
}

// placer is a Driver that can put things at given addresses, as restoring a recorded state requires.
type placer interface {
	Driver
	// AllocAt is Alloc at an address, which must lie outside of what the driver itself hands out.
	AllocAt(addr uint64, size int64) error
	// ReserveAt is Reserve at an address, likewise.
	ReserveAt(addr uint64, size int64) error
}

// vast is the size from which it pays to ask the device whether it has that much before making pages one by
// one.
const vast = 64 << 30

// checkVast returns ErrOutOfMemory if a device cannot have size bytes free.
func checkVast(d Driver, size int64) error {
	if size < vast {
		return nil
	}
	if free, total := d.MemInfo(); size > free {
		return fmt.Errorf("allocator: %d bytes wanted of a device that has %d of %d free: %w", size, free,
			total, ErrOutOfMemory)
	}
	return nil
}
