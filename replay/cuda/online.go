package cuda

import (
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

// Online allocators on a device.
//
// The emulated allocators decide addresses and driver calls, and never touch memory. Here their driver is the
// device, so that segments, mappings and what they cost are real. An allocator reuses a block within its
// stream without waiting, as PyTorch's does, and a block that other streams touched only when their work on
// it is done, as the device's events say.
//
// Where cudaFree and cuMemUnmap would wait for the device, the code waits explicitly: the allocator pays the
// same, and nothing depends on the driver.

// deviceDriver is the allocator.Driver of a device within a cap.
type deviceDriver struct {
	led      *ledger
	cap      int64 // the most that it may hold, in bytes
	held     int64
	allocs   map[driver.Ptr]int64
	reserved map[driver.Ptr]int64
	made     []physical // by handle - 1
	unused   []allocator.Handle
	mapped   map[driver.Ptr]allocator.Handle
}

type physical struct {
	handle   driver.Handle
	size     int64
	mappings int32
	released bool
}

func newDeviceDriver(l *ledger, limit int64) *deviceDriver {
	return &deviceDriver{led: l, cap: limit, allocs: map[driver.Ptr]int64{}, reserved: map[driver.Ptr]int64{},
		mapped: map[driver.Ptr]allocator.Handle{}}
}

// refused turns the device's out-of-memory into the allocators'.
func refused(err error) error {
	if errors.Is(err, driver.ErrOutOfMemory) {
		return fmt.Errorf("%w: %w", allocator.ErrOutOfMemory, err)
	}
	return err
}

func (d *deviceDriver) hold(size int64) error {
	if size > d.cap-d.held {
		return fmt.Errorf("%d bytes wanted, %d of %d are held: %w", size, d.held, d.cap,
			allocator.ErrOutOfMemory)
	}
	return nil
}

// Alloc implements allocator.Driver.
func (d *deviceDriver) Alloc(size int64) (uint64, error) {
	if err := d.hold(size); err != nil {
		return 0, err
	}
	p, err := d.led.Alloc(size)
	if err != nil {
		return 0, refused(err)
	}
	d.allocs[p] = size
	d.held += size
	return uint64(p), nil
}

// Free implements allocator.Driver.
func (d *deviceDriver) Free(addr uint64) error {
	if err := d.led.Synchronize(); err != nil {
		return err
	}
	p := driver.Ptr(addr)
	if err := d.led.Free(p); err != nil {
		return err
	}
	d.held -= d.allocs[p]
	delete(d.allocs, p)
	return nil
}

// Reserve implements allocator.Driver.
func (d *deviceDriver) Reserve(size int64) (uint64, error) {
	p, err := d.led.Reserve(size)
	if err != nil {
		return 0, refused(err)
	}
	d.reserved[p] = size
	return uint64(p), nil
}

// Unreserve implements allocator.Driver.
func (d *deviceDriver) Unreserve(addr uint64) error {
	p := driver.Ptr(addr)
	if err := d.led.Unreserve(p, d.reserved[p]); err != nil {
		return err
	}
	delete(d.reserved, p)
	return nil
}

// Create implements allocator.Driver.
func (d *deviceDriver) Create(size int64) (allocator.Handle, error) {
	if err := d.hold(size); err != nil {
		return 0, err
	}
	h, err := d.led.Create(size)
	if err != nil {
		return 0, refused(err)
	}
	d.held += size
	made := physical{handle: h, size: size}
	if n := len(d.unused); n > 0 {
		i := d.unused[n-1]
		d.unused, d.made[i-1] = d.unused[:n-1], made
		return i, nil
	}
	d.made = append(d.made, made)
	return allocator.Handle(len(d.made)), nil
}

// Release implements allocator.Driver.
func (d *deviceDriver) Release(h allocator.Handle) error {
	x := &d.made[h-1]
	x.released = true
	return d.reclaim(h)
}

// reclaim gives back memory that is released and mapped nowhere.
func (d *deviceDriver) reclaim(h allocator.Handle) error {
	x := &d.made[h-1]
	if !x.released || x.mappings > 0 {
		return nil
	}
	if err := d.led.Release(x.handle); err != nil {
		return err
	}
	d.held -= x.size
	*x = physical{}
	d.unused = append(d.unused, h)
	return nil
}

// Map implements allocator.Driver.
func (d *deviceDriver) Map(addr uint64, h allocator.Handle) error {
	x := &d.made[h-1]
	if err := d.led.Map(driver.Ptr(addr), x.size, x.handle); err != nil {
		return refused(err)
	}
	x.mappings++
	d.mapped[driver.Ptr(addr)] = h
	return nil
}

// Unmap implements allocator.Driver.
func (d *deviceDriver) Unmap(addr uint64, size int64) error {
	if err := d.led.Synchronize(); err != nil {
		return err
	}
	p := driver.Ptr(addr)
	if err := d.led.Unmap(p, size); err != nil {
		return err
	}
	for end := p + driver.Ptr(size); p < end; {
		h, known := d.mapped[p]
		if !known {
			return fmt.Errorf("unmap %#x: nothing is mapped there", uint64(p))
		}
		delete(d.mapped, p)
		p += driver.Ptr(d.made[h-1].size)
		d.made[h-1].mappings--
		if err := d.reclaim(h); err != nil {
			return err
		}
	}
	return nil
}

// MemInfo implements allocator.Driver: of the cap, not of the card.
func (d *deviceDriver) MemInfo() (free, total int64) { return d.cap - d.held, d.cap }

// deviceEvents are the allocator's events on the device. The interface has no errors, so the first one is
// kept and ends the run.
type deviceEvents struct {
	x     *execution
	open  []driver.Event // by number - 1, 0 if it has completed
	spare []driver.Event
	err   error
}

// Record implements allocator.Events.
func (d *deviceEvents) Record(stream allocator.Stream) allocator.Event {
	var e driver.Event
	if n := len(d.spare); n > 0 {
		e, d.spare = d.spare[n-1], d.spare[:n-1]
	} else if e = d.event(); e == 0 {
		return 0
	}
	d.note(d.x.led.Record(e, d.x.streams[stream]))
	d.open = append(d.open, e)
	return allocator.Event(len(d.open))
}

func (d *deviceEvents) event() driver.Event {
	e, err := d.x.led.NewEvent(false)
	d.note(err)
	return e
}

func (d *deviceEvents) note(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *deviceEvents) passed(n allocator.Event) {
	d.spare = append(d.spare, d.open[n-1])
	d.open[n-1] = 0
}

// Done implements allocator.Events.
func (d *deviceEvents) Done(n allocator.Event) bool {
	if n == 0 || d.open[n-1] == 0 {
		return true
	}
	done, err := d.x.led.Done(d.open[n-1])
	d.note(err)
	if done || err != nil {
		d.passed(n)
		return true
	}
	return false
}

// Wait implements allocator.Events.
func (d *deviceEvents) Wait(n allocator.Event) {
	if n != 0 && d.open[n-1] != 0 {
		d.note(d.x.led.SynchronizeEvent(d.open[n-1]))
		d.passed(n)
	}
}

// online is an emulated allocator over the device.
type online struct {
	borders
	device *deviceDriver
	events *deviceEvents
	a      allocator.Allocator
	blocks []allocator.Block // by instance
	end    []plan.InstanceID // by buffer: its present instance
}

func newOnline(x *execution, settings allocator.Settings, limit int64) (*online, error) {
	o := &online{borders: newBorders(x), device: newDeviceDriver(x.led, limit), events: &deviceEvents{x: x},
		blocks: make([]allocator.Block, len(x.pl.Instances)), end: make([]plan.InstanceID, len(x.p.Buffers))}
	var err error
	o.a, err = allocator.New(x.pl.Policy.Name, allocator.Config{Driver: o.device, Events: o.events,
		Settings: settings})
	return o, err
}

func (o *online) alloc(i plan.InstanceID) error {
	o.end[o.x.pl.Instances[i].Buffer] = i
	size := o.x.requested(i)
	if size == 0 {
		return nil
	}
	before := o.a.Stats().Synchronisations
	b, err := o.a.Malloc(size, allocator.Stream(o.x.prog.home(i)))
	if err = errors.Join(err, o.events.err); err != nil {
		return err
	}
	if o.a.Stats().Synchronisations > before { // it reuses memory that only a wait for the device makes safe
		if err := o.x.led.Synchronize(); err != nil {
			return err
		}
	}
	o.blocks[i] = b
	return o.take(i)
}

func (o *online) free(i plan.InstanceID) error {
	b := o.blocks[i]
	if b.Size == 0 {
		return nil
	}
	o.blocks[i] = allocator.Block{}
	return errors.Join(o.a.Free(b), o.events.err)
}

func (o *online) at(i plan.InstanceID) (driver.Ptr, int64) {
	return driver.Ptr(o.blocks[i].Addr), o.x.requested(i)
}

func (o *online) touch(i plan.InstanceID, queue int16) error {
	first, err := o.cross(i, queue)
	if err != nil || !first || o.blocks[i].Size == 0 {
		return err
	}
	return o.a.RecordStream(o.blocks[i], allocator.Stream(queue))
}

func (o *online) turn() {
	for _, i := range o.x.pl.Resident {
		b := o.x.pl.Instances[i].Buffer
		if last := o.end[b]; last != i {
			o.blocks[i], o.blocks[last] = o.blocks[last], allocator.Block{}
			o.end[b] = i
		}
		o.crossed[i] = 0
	}
}

func (o *online) footprint() (int64, error) { return o.a.Stats().PeakReserved, nil }
func (o *online) figures() allocator.Stats  { return o.a.Stats() }
