package cuda

import (
	"fmt"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

// store gives instances their memory: the arena of a placed plan, or an online allocator over the device.
// Sizes are bytes. Calls come in the order of the program's steps; earlier work on streams may still be
// running.
type store interface {
	// alloc takes memory for an instance, free gives it back.
	alloc(plan.InstanceID) error
	free(plan.InstanceID) error
	// at returns an instance's address and how many bytes of it count.
	at(plan.InstanceID) (driver.Ptr, int64)
	// touch is called before work on a queue touches an instance.
	touch(i plan.InstanceID, queue int16) error
	// turn is called when an iteration ends: the next one finds buffers where they are now.
	turn()
	// footprint is the most memory held from the driver so far.
	footprint() (int64, error)
	// figures are an online allocator's counts.
	figures() allocator.Stats
}

// openStore takes the memory for a plan's residents, and sets up the store for the rest. limit is the most
// that an online allocator may hold.
func (x *execution) openStore(limit int64) (store, error) {
	if x.pl.Policy == nil {
		return newArena(x)
	}
	settings, err := allocator.ParseSettings(x.pl.Policy.Settings)
	if err != nil {
		return nil, fmt.Errorf("the allocator %q: %w", x.pl.Policy.Name, err)
	}
	var s store
	if x.pl.Policy.Name == plan.PolicyAsync || settings.Backend == "cudaMallocAsync" {
		s = newAsync(x)
	} else if s, err = newOnline(x, settings, limit); err != nil {
		return nil, err
	}
	for _, i := range x.pl.Resident {
		if err := s.alloc(i); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// arena is one allocation with every instance at its offset.
type arena struct {
	x    *execution
	base driver.Ptr
}

func newArena(x *execution) (*arena, error) {
	a := &arena{x: x}
	if x.pl.Footprint == 0 {
		return a, nil
	}
	var err error
	a.base, err = x.led.Alloc(x.pl.Footprint)
	return a, err
}

func (a *arena) alloc(plan.InstanceID) error        { return nil }
func (a *arena) free(plan.InstanceID) error         { return nil }
func (a *arena) touch(plan.InstanceID, int16) error { return nil }
func (a *arena) turn()                              {}
func (a *arena) footprint() (int64, error)          { return a.x.pl.Footprint, nil }
func (a *arena) figures() allocator.Stats           { return allocator.Stats{} }

func (a *arena) at(i plan.InstanceID) (driver.Ptr, int64) {
	in := &a.x.pl.Instances[i]
	return a.base + driver.Ptr(in.Offset), in.Size
}

// requested returns the bytes to ask an online allocator for, which rounds by itself; a workspace has the
// size of its variant.
func (x *execution) requested(i plan.InstanceID) int64 {
	in := &x.pl.Instances[i]
	if x.p.Rounded(in.Buffer) == in.Size {
		return x.p.Buffers[in.Buffer].Size
	}
	return in.Size
}

// borders orders the queues around memory that an online allocator reuses. Its plans are ordered only by
// data. Within a block's home queue that is enough, as for PyTorch's allocator; but if another queue touches
// a block first, that must come after the home queue's earlier work, which may be on the same bytes. One
// event for each instance makes that order.
type borders struct {
	x       *execution
	taken   []driver.Event // of each foreign instance, recorded on its home queue when it was taken
	crossed []uint64       // of each instance, the queues that touched it since, as bits
}

func newBorders(x *execution) borders {
	return borders{x: x, taken: make([]driver.Event, len(x.pl.Instances)),
		crossed: make([]uint64, len(x.pl.Instances))}
}

func (b *borders) take(i plan.InstanceID) error {
	b.crossed[i] = 0
	if !b.x.prog.foreign[i] {
		return nil
	}
	if b.taken[i] == 0 {
		e, err := b.x.led.NewEvent(false)
		if err != nil {
			return err
		}
		b.taken[i] = e
	}
	return b.x.led.Record(b.taken[i], b.x.streams[b.x.prog.home(i)])
}

// cross reports whether a queue touches an instance of another queue for the first time, and makes it wait
// then.
func (b *borders) cross(i plan.InstanceID, queue int16) (bool, error) {
	if queue == b.x.prog.home(i) || b.crossed[i]>>queue&1 == 1 {
		return false, nil
	}
	b.crossed[i] |= 1 << queue
	if b.taken[i] == 0 {
		return true, nil // it existed when the iteration began, which all queues wait for
	}
	return true, b.x.wait(waitTaken, queue, b.taken[i])
}

// async is the driver's stream-ordered allocator with a pool of our own (cuMemAllocFromPoolAsync).
type async struct {
	borders
	addr []driver.Ptr
	end  []plan.InstanceID // by buffer, where it lies now
	done driver.Event
}

func newAsync(x *execution) *async {
	return &async{borders: newBorders(x), addr: make([]driver.Ptr, len(x.pl.Instances)),
		end: make([]plan.InstanceID, len(x.p.Buffers))}
}

func (a *async) alloc(i plan.InstanceID) error {
	a.end[a.x.pl.Instances[i].Buffer] = i
	size := a.x.requested(i)
	if size == 0 {
		return nil
	}
	p, err := a.x.led.AllocAsync(size, a.x.streams[a.x.prog.home(i)])
	if err != nil {
		return err
	}
	a.addr[i] = p
	return a.take(i)
}

// free gives the memory back in its home queue's order, after waiting for the other queues that touched it.
func (a *async) free(i plan.InstanceID) error {
	if a.addr[i] == 0 {
		return nil
	}
	home := a.x.prog.home(i)
	for q := range a.x.streams {
		if a.crossed[i]>>q&1 == 0 {
			continue
		}
		if a.done == 0 {
			var err error
			if a.done, err = a.x.led.NewEvent(false); err != nil {
				return err
			}
		}
		if err := a.x.led.Record(a.done, a.x.streams[q]); err != nil {
			return err
		}
		if err := a.x.wait(waitGiven, home, a.done); err != nil {
			return err
		}
	}
	err := a.x.led.FreeAsync(a.addr[i], a.x.streams[home])
	a.addr[i] = 0
	return err
}

func (a *async) at(i plan.InstanceID) (driver.Ptr, int64) { return a.addr[i], a.x.requested(i) }

func (a *async) touch(i plan.InstanceID, queue int16) error {
	_, err := a.cross(i, queue)
	return err
}

func (a *async) turn() {
	for _, i := range a.x.pl.Resident {
		if last := a.end[a.x.pl.Instances[i].Buffer]; last != i {
			a.addr[i], a.addr[last] = a.addr[last], 0
			a.end[a.x.pl.Instances[i].Buffer] = i
		}
		a.crossed[i] = 0
	}
}

func (a *async) footprint() (int64, error) {
	_, peak, err := a.x.led.Pool(false)
	return peak, err
}

func (a *async) figures() allocator.Stats { return allocator.Stats{} }
