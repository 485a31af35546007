//go:build cuda && linux && cgo

package driver

import (
	"fmt"
	"reflect"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/gmemtop/gmemtop/replay/cuda/driver/libcuda"
)

// code returns the CUresult of an error. gorgonia.org/cu does not export the type, and its constants lack
// some values of newer drivers, but it is an integer.
func code(err error) int {
	for e := err; e != nil; {
		if v := reflect.ValueOf(e); v.Kind() == reflect.Int {
			return int(v.Int())
		}
		switch u := e.(type) {
		case interface{ Unwrap() error }:
			e = u.Unwrap()
		case interface{ Cause() error }: // of github.com/pkg/errors
			e = u.Cause()
		default:
			return resultUnknown
		}
	}
	return resultUnknown
}

// device is a context. Each of its parts has what it needs of the others.
type device struct {
	memory
	virtual
	queues
	kernels
	info Info
	ctx  cu.CUContext
}

// Info implements Device.
func (d *device) Info() Info { return d.info }

// Synchronize implements Device.
func (d *device) Synchronize() error { return wrap("wait for the GPU", cu.Synchronize()) }

// Close implements Device.
func (d *device) Close() error {
	var first error
	if d.memory.pool != nil {
		first = wrap("destroy the pool", d.memory.pool.Destroy())
	}
	for _, m := range d.kernels.modules {
		if err := wrap("unload a module", m.Unload()); first == nil {
			first = err
		}
	}
	if err := wrap("destroy the context", d.ctx.Destroy()); first == nil {
		first = err
	}
	return first
}

// table keeps the driver's objects under small numbers, so that the interface needs no types of the library.
type table[T any] struct {
	all  []T
	free []uint32
}

func (t *table[T]) add(x T) uint32 {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		t.all[i-1] = x
		return i
	}
	t.all = append(t.all, x)
	return uint32(len(t.all))
}

func (t *table[T]) at(i uint32) *T { return &t.all[i-1] }

func (t *table[T]) remove(i uint32) { t.free = append(t.free, i) }

type memory struct {
	device  int
	pool    *libcuda.MemoryPool
	streams *queues
}

// MemInfo implements Memory.
func (m *memory) MemInfo() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, wrap("ask for free memory", err)
}

// Alloc implements Memory.
func (m *memory) Alloc(size int64) (Ptr, error) {
	p, err := cu.MemAlloc(size)
	if err != nil {
		return 0, wrap(fmt.Sprintf("allocate %d bytes", size), err)
	}
	return Ptr(p), nil
}

// Free implements Memory.
func (m *memory) Free(p Ptr) error { return wrap("free memory", cu.MemFree(cu.DevicePtr(p))) }

func (m *memory) ensurePool() error {
	if m.pool != nil {
		return nil
	}
	p, err := libcuda.NewMemoryPool(m.device)
	if err != nil {
		return wrap("make a memory pool", err)
	}
	m.pool = &p
	return nil
}

// AllocAsync implements Memory.
func (m *memory) AllocAsync(size int64, s Stream) (Ptr, error) {
	if err := m.ensurePool(); err != nil {
		return 0, err
	}
	p, err := m.pool.AllocAsync(size, m.streams.raw(s))
	if err != nil {
		return 0, wrap(fmt.Sprintf("allocate %d bytes in a stream's order", size), err)
	}
	return Ptr(p), nil
}

// FreeAsync implements Memory.
func (m *memory) FreeAsync(p Ptr, s Stream) error {
	return wrap("free memory in a stream's order", libcuda.FreeAsync(uint64(p), m.streams.raw(s)))
}

// Pool implements Memory.
func (m *memory) Pool(trim bool) (now, peak int64, err error) {
	if m.pool == nil {
		return 0, 0, nil
	}
	if trim {
		if err := m.pool.Trim(0); err != nil {
			return 0, 0, wrap("trim the memory pool", err)
		}
	}
	now, peak, err = m.pool.Reserved()
	return now, peak, wrap("ask for the memory pool's size", err)
}

// Register implements Memory.
func (m *memory) Register(p unsafe.Pointer, size int64) error {
	err := libcuda.HostRegister(p, size)
	if err == nil {
		return nil
	}
	e := NewError(fmt.Sprintf("pin %d bytes of host memory", size), code(err), err.Error()).(*Error)
	if e.kind == nil || e.kind == ErrOutOfMemory || e.Code == resultNotSupported ||
		e.Code == resultNotPermitted {
		e.kind = ErrPinned
	}
	return e
}

// Unregister implements Memory.
func (m *memory) Unregister(p unsafe.Pointer) error {
	return wrap("unpin host memory", libcuda.HostUnregister(p))
}

type virtual struct{ device int }

// Granularity implements Virtual.
func (v *virtual) Granularity() (int64, error) {
	n, err := libcuda.Granularity(v.device)
	return n, wrap("ask for the granularity of memory", err)
}

// Reserve implements Virtual.
func (v *virtual) Reserve(size int64) (Ptr, error) {
	p, err := libcuda.Reserve(size)
	return Ptr(p), wrap(fmt.Sprintf("reserve %d bytes of addresses", size), err)
}

// Unreserve implements Virtual.
func (v *virtual) Unreserve(p Ptr, size int64) error {
	return wrap("give addresses back", libcuda.Unreserve(uint64(p), size))
}

// Create implements Virtual.
func (v *virtual) Create(size int64) (Handle, error) {
	h, err := libcuda.Create(size, v.device)
	return Handle(h), wrap(fmt.Sprintf("make %d bytes of physical memory", size), err)
}

// Release implements Virtual.
func (v *virtual) Release(h Handle) error {
	return wrap("give physical memory back", libcuda.Release(uint64(h)))
}

// Map implements Virtual.
func (v *virtual) Map(p Ptr, size int64, h Handle) error {
	if err := libcuda.Map(uint64(p), size, uint64(h)); err != nil {
		return wrap("map memory", err)
	}
	if err := libcuda.Allow(uint64(p), size, v.device); err != nil {
		_ = libcuda.Unmap(uint64(p), size) // the first error is the one that counts
		return wrap("make mapped memory accessible", err)
	}
	return nil
}

// Unmap implements Virtual.
func (v *virtual) Unmap(p Ptr, size int64) error {
	return wrap("unmap memory", libcuda.Unmap(uint64(p), size))
}

type queues struct {
	streams table[cu.Stream]
	events  table[cu.Event]
}

// raw returns the driver's own stream, for package libcuda.
func (q *queues) raw(s Stream) unsafe.Pointer { return unsafe.Pointer(q.streams.at(uint32(s)).C()) }

// NewStream implements Queues.
func (q *queues) NewStream() (Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return 0, wrap("make a stream", err)
	}
	return Stream(q.streams.add(s)), nil
}

// CloseStream implements Queues.
func (q *queues) CloseStream(s Stream) error {
	err := wrap("destroy a stream", q.streams.at(uint32(s)).Destroy())
	q.streams.remove(uint32(s))
	return err
}

// SynchronizeStream implements Queues.
func (q *queues) SynchronizeStream(s Stream) error {
	return wrap("wait for a stream", q.streams.at(uint32(s)).Synchronize())
}

// NewEvent implements Queues.
func (q *queues) NewEvent(timing bool) (Event, error) {
	flags := cu.DisableTiming
	if timing {
		flags = cu.DefaultEvent
	}
	e, err := cu.MakeEvent(flags)
	if err != nil {
		return 0, wrap("make an event", err)
	}
	return Event(q.events.add(e)), nil
}

// CloseEvent implements Queues.
func (q *queues) CloseEvent(e Event) error {
	err := wrap("destroy an event", cu.DestroyEvent(q.events.at(uint32(e))))
	q.events.remove(uint32(e))
	return err
}

// Record implements Queues.
func (q *queues) Record(e Event, s Stream) error {
	return wrap("record an event", q.events.at(uint32(e)).Record(*q.streams.at(uint32(s))))
}

// Wait implements Queues.
func (q *queues) Wait(s Stream, e Event) error {
	return wrap("make a stream wait", q.streams.at(uint32(s)).Wait(*q.events.at(uint32(e)), 0))
}

// SynchronizeEvent implements Queues.
func (q *queues) SynchronizeEvent(e Event) error {
	return wrap("wait for an event", q.events.at(uint32(e)).Synchronize())
}

// Done implements Queues.
func (q *queues) Done(e Event) (bool, error) {
	err := q.events.at(uint32(e)).Query()
	if err != nil && code(err) == resultNotReady {
		return false, nil
	}
	return err == nil, wrap("ask for an event", err)
}

// Elapsed implements Queues.
func (q *queues) Elapsed(from, to Event) (int64, error) {
	ms, err := q.events.at(uint32(from)).Elapsed(*q.events.at(uint32(to)))
	return int64(ms * 1e6), wrap("take the time between two events", err)
}

// CopyOut implements Queues.
func (q *queues) CopyOut(to unsafe.Pointer, from Ptr, size int64, s Stream) error {
	return wrap("copy to the host", cu.MemcpyDtoHAsync(to, cu.DevicePtr(from), size,
		*q.streams.at(uint32(s))))
}

// CopyIn implements Queues.
func (q *queues) CopyIn(to Ptr, from unsafe.Pointer, size int64, s Stream) error {
	return wrap("copy from the host", cu.MemcpyHtoDAsync(cu.DevicePtr(to), from, size,
		*q.streams.at(uint32(s))))
}

type kernels struct {
	functions table[cu.Function]
	modules   []cu.Module
	streams   *queues
	args      [maxArgs]uint64
	params    [maxArgs]unsafe.Pointer
}

const maxArgs = 8

// Load implements Kernels.
func (k *kernels) Load(ptx string, names ...string) ([]Kernel, error) {
	m, err := cu.LoadData(ptx)
	if err != nil {
		return nil, wrap("compile the kernels", err)
	}
	k.modules = append(k.modules, m)
	all := make([]Kernel, len(names))
	for i, name := range names {
		f, err := m.Function(name)
		if err != nil {
			return nil, wrap("find the kernel "+name, err)
		}
		all[i] = Kernel(k.functions.add(f))
	}
	return all, nil
}

// Launch implements Kernels.
func (k *kernels) Launch(f Kernel, blocks, threads int, s Stream, args ...uint64) error {
	n := copy(k.args[:], args)
	for i := range n {
		k.params[i] = unsafe.Pointer(&k.args[i])
	}
	return wrap("launch a kernel", k.functions.at(uint32(f)).Launch(blocks, 1, 1, threads, 1, 1, 0,
		*k.streams.streams.at(uint32(s)), k.params[:n]))
}
