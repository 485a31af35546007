package fidelity

import (
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/replay/allocator"
)

// recordedDriver is a device that answers as the recorded one did, as far as the recording shows. The driver,
// not the allocator, chooses the addresses that cudaMalloc returns, yet the allocator breaks ties between
// holes of equal size by address; so a segment of a recorded size gets the recorded address. A recording does
// not show refusals of memory, but it shows segments returned just before others were obtained: the driver
// refuses memory until as many are returned.
type recordedDriver struct {
	*allocator.SimDriver
	ctx     context.Context // of the replay
	created int
	total   int64                    // of the recorded device, 0 if unknown
	due     []allocator.SegmentEvent // recorded and not yet answered, in order
	waiting int                      // segments to be returned before more is granted
	refused int

	// A range of addresses in which a mapping failed shows only when a later mapping succeeds: later returns
	// the next mapped address for the pool and stream of the current request.
	later func() (addr uint64, ok bool)
}

// expect prepares the answers for one request.
func (d *recordedDriver) expect(recorded []allocator.SegmentEvent, refusals bool) {
	d.due, d.waiting = d.due[:0], 0
	for _, e := range recorded {
		switch e.Action {
		case allocator.SegmentAlloc, allocator.SegmentMap:
			d.due = append(d.due, e)
		case allocator.SegmentFree, allocator.SegmentUnmap:
			if refusals {
				d.waiting++
			}
		}
	}
}

// take returns the address of the first recorded segment with an action and, if size is not 0, that size.
func (d *recordedDriver) take(action allocator.SegmentAction, size int64) (uint64, bool) {
	for i, e := range d.due {
		if e.Action == action && (size == 0 || e.Size == size) {
			d.due = append(d.due[:i], d.due[i+1:]...)
			return e.Addr, true
		}
	}
	return 0, false
}

// MemInfo implements allocator.Driver. Only the recording limits the device: other users of it are unknown.
func (d *recordedDriver) MemInfo() (free, total int64) {
	free, total = d.SimDriver.MemInfo()
	if d.total > 0 {
		total = d.total
	}
	return free, total
}

func (d *recordedDriver) refuses() error {
	if d.waiting <= 0 {
		return nil
	}
	d.refused++
	return fmt.Errorf("the recorded device refused: %w", allocator.ErrOutOfMemory)
}

// Alloc implements allocator.Driver.
func (d *recordedDriver) Alloc(size int64) (uint64, error) {
	if err := d.refuses(); err != nil {
		return 0, err
	}
	if addr, ok := d.take(allocator.SegmentAlloc, size); ok && d.AllocAt(addr, size) == nil {
		return addr, nil
	}
	return d.SimDriver.Alloc(size)
}

// Free implements allocator.Driver.
func (d *recordedDriver) Free(addr uint64) error {
	d.waiting--
	return d.SimDriver.Free(addr)
}

// errTaken says that the recorded address of a new range belongs to one that is not yet released. PyTorch
// reserves a range before it learns that there is no memory to back it, so that range was released before the
// request.
var errTaken = errors.New("the recorded addresses are not free yet")

// Reserve implements allocator.Driver.
func (d *recordedDriver) Reserve(size int64) (uint64, error) {
	addr, ok := d.take(allocator.SegmentMap, 0)
	if !ok && d.later != nil {
		addr, ok = d.later()
	}
	if ok {
		if d.ReserveAt(addr, size) == nil {
			return addr, nil
		}
		if d.waiting > 0 {
			return 0, errTaken
		}
	}
	return d.SimDriver.Reserve(size)
}

// Create implements allocator.Driver.
func (d *recordedDriver) Create(size int64) (allocator.Handle, error) {
	if d.created++; d.created%tickEvents == 0 && d.ctx.Err() != nil {
		return 0, d.ctx.Err() // one event of a hostile trace can ask for half a million pages
	}
	if err := d.refuses(); err != nil {
		return 0, err
	}
	return d.SimDriver.Create(size)
}

// Unmap implements allocator.Driver.
func (d *recordedDriver) Unmap(addr uint64, size int64) error {
	d.waiting--
	return d.SimDriver.Unmap(addr, size)
}
