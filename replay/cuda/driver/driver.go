// Package driver is the one small interface through which package cuda sees a GPU: what the executor asks of
// the CUDA driver and nothing else.
//
// Its duties:
//   - [Driver], [Device] and the parts that a Device is made of: memory, virtual memory, queues, kernels;
//   - [Open]: the CUDA driver through gorgonia.org/cu and package libcuda in a build with -tags cuda (`make`), and an error that says so in every other;
//   - [Error] and the sentinels: what can go wrong, in words that say what to do next.
//
// Nothing here is safe for concurrent use. A CUDA context is current on an operating-system thread: lock the
// goroutine to its thread (runtime.LockOSThread) before opening a [Device], and make every call there, the
// last one to Close.
package driver

import (
	"unsafe"
)

// Things of a device, as the driver names them; 0 is none.
type (
	// Ptr is an address in device memory.
	Ptr uint64
	// Handle is physical memory that can be mapped.
	Handle uint64
	// Stream is a queue of work: what is given to it is done in order.
	Stream uint32
	// Event is a point in a stream's work.
	Event uint32
	// Kernel is a function of a loaded module.
	Kernel uint32
)

// Info is what a device is.
type Info struct {
	// Ordinal is the driver's number of it, which CUDA_VISIBLE_DEVICES changes.
	Ordinal int
	Name    string
	// UUID is the device's, in the driver's spelling without prefix.
	UUID string
	// CUDA is the newest that the driver supports, 12020 for 12.2.
	CUDA int
	// Total is its memory in bytes.
	Total int64
	// Processors is its number of multiprocessors, Major and Minor its compute capability.
	Processors, Major, Minor int
	// Pools says that it has stream-ordered allocation, Virtual that it has virtual memory management.
	Pools, Virtual bool
}

// Driver is the opened driver of a machine.
type Driver interface {
	// Version is the newest CUDA that it supports, 12020 for 12.2.
	Version() int
	// Devices lists the GPUs; the error wraps ErrNoDevice if there are none.
	Devices() ([]Info, error)
	// Open makes a context on a device and makes it current on the calling thread.
	Open(ordinal int) (Device, error)
	// Close gives the library back. Its devices must be closed before.
	Close()
}

// Device is a context on one GPU. Times are nanoseconds, sizes bytes. Every error is an [*Error].
type Device interface {
	Memory
	Virtual
	Queues
	Kernels
	Info() Info
	// Synchronize waits for all work.
	Synchronize() error
	// Close destroys the context, and with it everything that is still held of the device.
	Close() error
}

// Memory is device memory as a whole, and pinned host memory.
type Memory interface {
	// MemInfo returns the device's free and total bytes, other processes counted.
	MemInfo() (free, total int64, err error)
	Alloc(size int64) (Ptr, error)
	// Free gives back what Alloc returned. Work on it must be done.
	Free(Ptr) error
	// AllocAsync takes memory in a stream's order from a pool that the device keeps for us alone, and that
	// returns nothing until it is trimmed.
	AllocAsync(size int64, s Stream) (Ptr, error)
	// FreeAsync gives it back in a stream's order.
	FreeAsync(p Ptr, s Stream) error
	// Pool returns what that pool holds now and the most that it held, and gives back what is unused where
	// trim is set.
	Pool(trim bool) (now, peak int64, err error)
	// Register pins host memory that is not Go's; Unregister undoes it.
	Register(p unsafe.Pointer, size int64) error
	Unregister(p unsafe.Pointer) error
}

// Virtual is address space and the physical memory behind it.
type Virtual interface {
	// Granularity is the size that physical memory comes in multiples of.
	Granularity() (int64, error)
	Reserve(size int64) (Ptr, error)
	Unreserve(p Ptr, size int64) error
	Create(size int64) (Handle, error)
	// Release gives physical memory back; the device has it again once it is mapped nowhere.
	Release(Handle) error
	// Map puts the whole of h at p and makes it accessible.
	Map(p Ptr, size int64, h Handle) error
	// Unmap removes the mappings that fill the range. Work on it must be done.
	Unmap(p Ptr, size int64) error
}

// Queues are streams, the copies on them, and events between them.
type Queues interface {
	// NewStream returns a stream that waits for no other.
	NewStream() (Stream, error)
	CloseStream(Stream) error
	SynchronizeStream(Stream) error
	// NewEvent returns an event; one without timing costs less.
	NewEvent(timing bool) (Event, error)
	CloseEvent(Event) error
	// Record puts the event behind the stream's work so far.
	Record(Event, Stream) error
	// Wait makes the stream's later work wait for the event as it was recorded last.
	Wait(Stream, Event) error
	SynchronizeEvent(Event) error
	// Done reports whether the event has come to pass.
	Done(Event) (bool, error)
	// Elapsed returns the time between two events with timing that have come to pass, in nanoseconds.
	Elapsed(from, to Event) (int64, error)
	// CopyOut copies to the host, CopyIn from it, in a stream's order. The host memory must stay where it is
	// until that is done.
	CopyOut(to unsafe.Pointer, from Ptr, size int64, s Stream) error
	CopyIn(to Ptr, from unsafe.Pointer, size int64, s Stream) error
}

// Kernels are programs for the device.
type Kernels interface {
	// Load compiles a module from PTX and returns the functions of the given names, in their order.
	Load(ptx string, names ...string) ([]Kernel, error)
	// Launch gives a kernel to a stream: a grid of one dimension, arguments of eight bytes each.
	Launch(k Kernel, blocks, threads int, s Stream, args ...uint64) error
}
