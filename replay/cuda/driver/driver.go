// Package driver is the small interface through which package cuda uses a GPU: just what the executor needs
// from the CUDA driver.
//
// Its duties:
//   - [Driver], [Device] and the parts that a Device is made of: memory, virtual memory, queues, kernels;
//   - [Open]: the CUDA driver through gorgonia.org/cu and package libcuda in a build with -tags cuda
//     (`make`), and an error that says so in every other;
//   - [Error] and the sentinels, whose texts say what to do next.
//
// Nothing here is safe for concurrent use. A CUDA context is current on an operating-system thread: lock the
// goroutine to its thread (runtime.LockOSThread) before opening a [Device], and make every call there,
// including Close.
package driver

import (
	"unsafe"
)

// Objects of a device, by the driver's names; 0 is none.
type (
	// Ptr is an address in device memory.
	Ptr uint64
	// Handle is physical memory that can be mapped.
	Handle uint64
	// Stream is a queue of work, which is done in order.
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
	// CUDA is the newest version that the driver supports, 12020 for 12.2.
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
	// Version is the newest CUDA version that it supports, 12020 for 12.2.
	Version() int
	// Devices lists the GPUs; the error wraps ErrNoDevice if there are none.
	Devices() ([]Info, error)
	// Open makes a context on a device and makes it current on the calling thread.
	Open(ordinal int) (Device, error)
	// Close releases the library. Close its devices first.
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
	// Close destroys the context and frees everything that it still holds.
	Close() error
}

// Memory is device memory as a whole, and pinned host memory.
type Memory interface {
	// MemInfo returns the device's free and total bytes, across all processes.
	MemInfo() (free, total int64, err error)
	Alloc(size int64) (Ptr, error)
	// Free gives back what Alloc returned. Work on it must be done.
	Free(Ptr) error
	// AllocAsync takes memory in a stream's order from a pool of our own, which keeps freed memory until it
	// is trimmed.
	AllocAsync(size int64, s Stream) (Ptr, error)
	// FreeAsync gives it back in a stream's order.
	FreeAsync(p Ptr, s Stream) error
	// Pool returns how much that pool holds now and held at most; trim gives unused memory back.
	Pool(trim bool) (now, peak int64, err error)
	// Register pins host memory that is not Go's; Unregister undoes it.
	Register(p unsafe.Pointer, size int64) error
	Unregister(p unsafe.Pointer) error
}

// Virtual is address space and the physical memory behind it.
type Virtual interface {
	// Granularity is the unit of physical memory: sizes are multiples of it.
	Granularity() (int64, error)
	Reserve(size int64) (Ptr, error)
	Unreserve(p Ptr, size int64) error
	Create(size int64) (Handle, error)
	// Release gives physical memory back; it is freed once it is mapped nowhere.
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
	// Record puts the event after the stream's work so far.
	Record(Event, Stream) error
	// Wait makes the stream's later work wait for the event's latest recording.
	Wait(Stream, Event) error
	SynchronizeEvent(Event) error
	// Done reports whether the event has completed.
	Done(Event) (bool, error)
	// Elapsed returns the time between two completed events with timing, in nanoseconds.
	Elapsed(from, to Event) (int64, error)
	// CopyOut copies to the host, CopyIn from it, in a stream's order. The host memory must not move until
	// that is done.
	CopyOut(to unsafe.Pointer, from Ptr, size int64, s Stream) error
	CopyIn(to Ptr, from unsafe.Pointer, size int64, s Stream) error
}

// Kernels are programs for the device.
type Kernels interface {
	// Load compiles a module from PTX and returns the functions of the given names, in their order.
	Load(ptx string, names ...string) ([]Kernel, error)
	// Launch queues a kernel on a stream, with a grid of one dimension and arguments of eight bytes each.
	Launch(k Kernel, blocks, threads int, s Stream, args ...uint64) error
}
