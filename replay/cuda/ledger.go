package cuda

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

// The ledger.
//
// Problem: a run takes memory, addresses, events and pinned host memory in many places, and may end in any of
// them: by a driver error, Ctrl-C, or a bug of ours. It must give everything back, because other people's
// processes use the same device.
//
// Solution: the ledger is a [driver.Device] in front of the real one. It notes what is taken and what is
// given back; Close gives back the rest in the order that the driver needs: it waits for work, then frees
// memory in stream order, mappings before handles and addresses, and host memory last, when the context is
// gone and nothing can write to it. It also enforces the limit: a request beyond it is out of memory before
// the driver is asked, so that a budget can be below the card's memory, and other processes keep theirs. And
// it counts.
//
// Rejected: a defer after each allocation (blocks outlive functions here); relying on the destruction of the
// context (it frees device memory, but not what is pinned on the host, and a test could not distinguish a
// leak from a clean end).
type ledger struct {
	driver.Device
	limit int64 // the most device memory that may be held, in bytes
	held  int64
	peak  int64
	calls int64 // allocations, frees and mappings asked of the driver

	allocs   map[driver.Ptr]int64
	pooled   map[driver.Ptr]pooledBlock
	reserved map[driver.Ptr]int64
	handles  map[driver.Handle]int64
	mapped   map[driver.Ptr]int64
	slabs    [][]byte // pinned
	loose    [][]byte // to be given back when the context is gone
	streams  map[driver.Stream]bool
	events   map[driver.Event]bool
}

type pooledBlock struct {
	size   int64
	stream driver.Stream
}

func newLedger(d driver.Device, limit int64) *ledger {
	l := &ledger{Device: d, limit: limit}
	l.reset()
	return l
}

// reset empties the ledger.
func (l *ledger) reset() {
	l.held, l.peak, l.calls = 0, 0, 0
	l.allocs, l.pooled, l.reserved = map[driver.Ptr]int64{}, map[driver.Ptr]pooledBlock{},
		map[driver.Ptr]int64{}
	l.handles, l.mapped = map[driver.Handle]int64{}, map[driver.Ptr]int64{}
	l.streams, l.events = map[driver.Stream]bool{}, map[driver.Event]bool{}
}

// hold returns an error if size more bytes would exceed the limit.
func (l *ledger) hold(size int64) error {
	if l.held+size > l.limit {
		return fmt.Errorf("%d bytes wanted, %d of %d allowed are held: %w", size, l.held, l.limit,
			driver.ErrOutOfMemory)
	}
	l.held += size
	l.peak = max(l.peak, l.held)
	return nil
}

// Alloc implements driver.Memory.
func (l *ledger) Alloc(size int64) (driver.Ptr, error) {
	if err := l.hold(size); err != nil {
		return 0, err
	}
	l.calls++
	p, err := l.Device.Alloc(size)
	if err != nil {
		l.held -= size
		return 0, err
	}
	l.allocs[p] = size
	return p, nil
}

// Free implements driver.Memory.
func (l *ledger) Free(p driver.Ptr) error {
	l.calls++
	if err := l.Device.Free(p); err != nil {
		return err
	}
	l.held -= l.allocs[p]
	delete(l.allocs, p)
	return nil
}

// AllocAsync implements driver.Memory. Only the driver knows what the pool holds; the ledger counts blocks.
func (l *ledger) AllocAsync(size int64, s driver.Stream) (driver.Ptr, error) {
	if err := l.hold(size); err != nil {
		return 0, err
	}
	l.calls++
	p, err := l.Device.AllocAsync(size, s)
	if err != nil {
		l.held -= size
		return 0, err
	}
	l.pooled[p] = pooledBlock{size, s}
	return p, nil
}

// FreeAsync implements driver.Memory.
func (l *ledger) FreeAsync(p driver.Ptr, s driver.Stream) error {
	l.calls++
	if err := l.Device.FreeAsync(p, s); err != nil {
		return err
	}
	l.held -= l.pooled[p].size
	delete(l.pooled, p)
	return nil
}

// Reserve implements driver.Virtual.
func (l *ledger) Reserve(size int64) (driver.Ptr, error) {
	p, err := l.Device.Reserve(size)
	if err == nil {
		l.reserved[p] = size
	}
	return p, err
}

// Unreserve implements driver.Virtual.
func (l *ledger) Unreserve(p driver.Ptr, size int64) error {
	err := l.Device.Unreserve(p, size)
	if err == nil {
		delete(l.reserved, p)
	}
	return err
}

// Create implements driver.Virtual.
func (l *ledger) Create(size int64) (driver.Handle, error) {
	if err := l.hold(size); err != nil {
		return 0, err
	}
	h, err := l.Device.Create(size)
	if err != nil {
		l.held -= size
		return 0, err
	}
	l.handles[h] = size
	return h, nil
}

// Release implements driver.Virtual. Callers unmap memory before they release it.
func (l *ledger) Release(h driver.Handle) error {
	err := l.Device.Release(h)
	if err == nil {
		l.held -= l.handles[h]
		delete(l.handles, h)
	}
	return err
}

// Map implements driver.Virtual.
func (l *ledger) Map(p driver.Ptr, size int64, h driver.Handle) error {
	l.calls++
	err := l.Device.Map(p, size, h)
	if err == nil {
		l.mapped[p] = size
	}
	return err
}

// Unmap implements driver.Virtual. The range is that of one or several mappings.
func (l *ledger) Unmap(p driver.Ptr, size int64) error {
	l.calls++
	if err := l.Device.Unmap(p, size); err != nil {
		return err
	}
	for at, end := p, p+driver.Ptr(size); at < end; {
		n, known := l.mapped[at]
		if !known {
			break
		}
		delete(l.mapped, at)
		at += driver.Ptr(n)
	}
	return nil
}

// pin returns host memory of exactly that size, pinned, which stays until close.
func (l *ledger) pin(size int64) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("take %d bytes of host memory: %w (%w)", size, driver.ErrPinned, err)
	}
	if err := l.Register(unsafe.Pointer(&b[0]), size); err != nil {
		_ = syscall.Munmap(b) // the first error is the one that counts
		return nil, err
	}
	l.slabs = append(l.slabs, b)
	return b, nil
}

// NewStream implements driver.Queues.
func (l *ledger) NewStream() (driver.Stream, error) {
	s, err := l.Device.NewStream()
	if err == nil {
		l.streams[s] = true
	}
	return s, err
}

// NewEvent implements driver.Queues.
func (l *ledger) NewEvent(timing bool) (driver.Event, error) {
	e, err := l.Device.NewEvent(timing)
	if err == nil {
		l.events[e] = true
	}
	return e, err
}

// CloseEvent implements driver.Queues.
func (l *ledger) CloseEvent(e driver.Event) error {
	err := l.Device.CloseEvent(e)
	if err == nil {
		delete(l.events, e)
	}
	return err
}

// clear gives back everything but the context, and returns the first error. The ledger is empty afterwards in
// any case.
func (l *ledger) clear() error {
	var first error
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	note(l.Synchronize())
	for p, b := range l.pooled {
		note(l.Device.FreeAsync(p, b.stream))
	}
	if len(l.pooled) > 0 {
		note(l.Synchronize())
	}
	if _, _, err := l.Pool(true); err != nil {
		note(err)
	}
	for p, size := range l.mapped {
		note(l.Device.Unmap(p, size))
	}
	for h := range l.handles {
		note(l.Device.Release(h))
	}
	for p, size := range l.reserved {
		note(l.Device.Unreserve(p, size))
	}
	for p := range l.allocs {
		note(l.Device.Free(p))
	}
	for e := range l.events {
		note(l.Device.CloseEvent(e))
	}
	for s := range l.streams {
		note(l.Device.CloseStream(s))
	}
	for _, b := range l.slabs {
		note(l.Unregister(unsafe.Pointer(&b[0])))
	}
	if first != nil { // the device may still write to it
		l.loose = append(l.loose, l.slabs...)
		l.slabs = nil
	}
	for _, b := range l.slabs {
		note(syscall.Munmap(b))
	}
	l.slabs = nil
	l.reset()
	return first
}

// Close gives everything back and destroys the context. It does not repeat the error of a lost device.
func (l *ledger) Close() error {
	err := l.clear()
	if e := l.Device.Close(); err == nil {
		err = e
	}
	for _, b := range l.loose {
		if e := syscall.Munmap(b); err == nil {
			err = e
		}
	}
	l.loose = nil
	return err
}
