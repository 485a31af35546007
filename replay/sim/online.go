package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
)

// Online allocators.
//
// An online allocator runs on the host, in program order, and needs no time to decide. Its driver calls cost
// time, and so do waits for the device: an allocation that the driver refuses makes it release its cache,
// which is only safe when all work is done. The first iterations fill its cache, so the timed iteration is
// the one after them.
//
// Footprint: without pressure, an allocator with a cache holds more than it needs. Its need is the smallest
// cap under which the iteration completes, between the peak of live bytes and the uncapped size
// (allocator.SmallestCap). For allocators without a cache the peak is the footprint.
//
// Complexity: O(steps log blocks) a run, and at most a dozen runs. Rejected: counting the first iteration (a
// program trains for thousands).

// warmUp is how many iterations run before the timed one.
const warmUp = 2

// unlimited is the memory of a device without a limit, in bytes; an allocator may reserve as many addresses,
// so sums of such sizes must not overflow.
const unlimited = int64(1) << 44

// host is an online allocator with the blocks that the program holds.
type host struct {
	r      *run
	a      allocator.Allocator
	blocks []allocator.Block // by buffer
}

func newHost(r *run, limit int64) (*host, error) {
	capacity := limit
	if capacity <= 0 {
		capacity = unlimited
	}
	a, err := allocator.New(r.online, allocator.Config{Driver: allocator.NewDriver(capacity),
		Settings: r.settings})
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	h := &host{r: r, a: a, blocks: make([]allocator.Block, len(r.p.Buffers))}
	for _, i := range r.pl.Resident {
		if err := h.malloc(i); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *host) malloc(i plan.InstanceID) error {
	x := &h.r.pl.Instances[i]
	size := x.Size
	if b := &h.r.p.Buffers[x.Buffer]; h.r.p.Rounded(x.Buffer) == size {
		size = b.Size // the allocator rounds by itself
	}
	if size == 0 {
		h.blocks[x.Buffer] = allocator.Block{}
		return nil
	}
	b, err := h.a.Malloc(size, int32(h.r.p.Buffers[x.Buffer].Stream))
	if err != nil {
		return err
	}
	h.blocks[x.Buffer] = b
	return nil
}

func (h *host) free(i plan.InstanceID) error {
	b := h.r.pl.Instances[i].Buffer
	block := h.blocks[b]
	if block.Size == 0 {
		return nil
	}
	h.blocks[b] = allocator.Block{}
	return h.a.Free(block)
}

// iterate runs the allocator through one iteration. each, if not nil, gets the figures before and after each
// call.
func (h *host) iterate(ctx context.Context, each func(step int, before, after allocator.Stats)) error {
	for s := range h.r.pl.Steps {
		if s%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		st := &h.r.pl.Steps[s]
		var before allocator.Stats
		if each != nil {
			before = h.a.Stats()
		}
		var err error
		switch st.Kind {
		case plan.Alloc:
			err = h.malloc(st.Instance)
		case plan.Free:
			err = h.free(st.Instance)
		}
		if err != nil {
			return err
		}
		if each != nil {
			each(s, before, h.a.Stats())
		}
	}
	return nil
}

// completes reports whether n iterations in a row complete under a cap, and returns the allocator afterwards.
func (r *run) completes(ctx context.Context, limit int64, n int) (*host, bool, error) {
	h, err := newHost(r, limit)
	for k := 0; err == nil && k < n; k++ {
		err = h.iterate(ctx, nil)
	}
	switch {
	case errors.Is(err, allocator.ErrOutOfMemory):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return h, true, nil
}

// byPolicy simulates a plan whose memory the online allocator of its policy serves.
func (r *run) byPolicy(ctx context.Context) error {
	r.online = r.pl.Policy.Name
	var err error
	if r.settings, err = allocator.ParseSettings(r.pl.Policy.Settings); err != nil {
		return fmt.Errorf("simulate the allocator %q: %w", r.online, err)
	}
	if r.online == plan.PolicyAsync {
		return errors.New("the rules of the driver's own pool are not public, so it is not simulated: " +
			"--target cuda measures it")
	}
	for i := range r.pl.Absences {
		if r.pl.Absences[i].How == plan.Swap {
			return fmt.Errorf("simulate: copies under the online allocator %q are not "+
				"emulated: place the plan", r.online)
		}
	}
	held, need, err := r.needs(ctx)
	if err != nil {
		return err
	}
	r.m.Reserved = held
	limit := int64(0)
	if r.opt.Cap > 0 && held > r.opt.Cap && allocator.Caches(r.online) {
		limit = max(r.opt.Cap, need) // if it needs more than the cap, time it where it just completes
	}
	r.m.Footprint = need
	return r.timed(ctx, limit)
}

// needs returns the most that the allocator holds without a limit, and the smallest cap.
func (r *run) needs(ctx context.Context) (held, smallest int64, err error) {
	free, ok, err := r.completes(ctx, 0, warmUp)
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("simulate without a cap: %w", err)
	case !ok:
		return 0, 0, fmt.Errorf("simulate: the iteration needs more than the %d TiB of the largest device "+
			"that is simulated, so that no allocator can serve it: %w", unlimited>>40,
			allocator.ErrOutOfMemory)
	}
	held = free.a.Stats().PeakReserved
	smallest, err = r.smallestCap(ctx, held)
	return held, smallest, err
}

// CachingNeeds returns the smallest memory, in bytes, in which PyTorch's caching allocator with these
// settings serves iterations of a placed plan, whose addresses it ignores. It allocates and frees in the
// order of the plan's steps. It does not model the time of copies, so delays that they cause on a device are
// not included.
func CachingNeeds(ctx context.Context, p *plan.Problem, pl *plan.Plan, s allocator.Settings) (int64, error) {
	if pl.SectionBytes != 0 {
		return 0, errors.New("simulate: PyTorch's allocator has no sections of a tensor: plan without them")
	}
	p, err := pl.Of(p)
	if err != nil {
		return 0, err
	}
	r := &run{p: p, pl: pl, online: "caching", settings: s}
	_, need, err := r.needs(ctx)
	return need, err
}

func orOutOfMemory(err error) error {
	if err == nil {
		return allocator.ErrOutOfMemory
	}
	return err
}

// smallestCap returns the smallest cap at which the iteration was seen to complete.
func (r *run) smallestCap(ctx context.Context, held int64) (int64, error) {
	if !allocator.Caches(r.online) {
		return held, nil
	}
	low, _ := r.pl.PeakLive()
	return allocator.SmallestCap(low, held, func(limit int64) (int64, bool, error) {
		_, ok, err := r.completes(ctx, limit, warmUp+1)
		return limit, ok, err
	})
}

// timed runs the warm-up iterations under a cap and then the timed one; the host waits for the device
// whenever the allocator does.
func (r *run) timed(ctx context.Context, limit int64) error {
	h, ok, err := r.completes(ctx, limit, warmUp)
	if err != nil || !ok {
		return fmt.Errorf("simulate with a cap of %d bytes: %w", limit, orOutOfMemory(err))
	}
	hw := &r.p.Hardware
	var now int64
	return h.iterate(ctx, func(s int, before, after allocator.Stats) {
		if after.Synchronisations > before.Synchronisations {
			for _, at := range r.ready {
				now = max(now, at)
			}
		}
		mallocs, frees := after.DriverMallocs-before.DriverMallocs, after.DriverFrees-before.DriverFrees
		maps := after.Maps - before.Maps + after.Unmaps - before.Unmaps
		now += mallocs*hw.MallocTime + frees*hw.FreeTime + maps*hw.MapTime + r.launch(&r.pl.Steps[s])
		r.m.DriverCalls += mallocs + frees + maps
		r.m.Retries += after.Retries - before.Retries
		r.issue[s] = now
		r.step(s)
	})
}
