package whatif

import (
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// tickSteps is how many steps are played between checks of the context.
const tickSteps = 4096

// device is a simulated device of which only a part is available; others use the rest. Its limit can change,
// so that a recorded state can be restored before the limit applies.
type device struct {
	*allocator.SimDriver
	ctx     context.Context
	limit   int64 // 0 for none
	total   int64 // 0 for the simulated device's own
	created int
}

// MemInfo implements allocator.Driver.
func (d *device) MemInfo() (free, total int64) {
	free, total = d.SimDriver.MemInfo()
	if d.total > 0 {
		total = d.total
	}
	if d.limit > 0 {
		free = max(d.limit-d.Held(), 0)
	}
	return free, total
}

func (d *device) grant(size int64) error {
	size = (size + torchalloc.Granularity - 1) / torchalloc.Granularity * torchalloc.Granularity
	if d.limit > 0 && size > d.limit-d.Held() {
		return fmt.Errorf("%d bytes of %d are held, %d asked for: %w", d.Held(), d.limit, size,
			allocator.ErrOutOfMemory)
	}
	return nil
}

// Alloc implements allocator.Driver.
func (d *device) Alloc(size int64) (uint64, error) {
	if err := d.grant(size); err != nil {
		return 0, err
	}
	return d.SimDriver.Alloc(size)
}

// Create implements allocator.Driver.
func (d *device) Create(size int64) (allocator.Handle, error) {
	if d.created++; d.created%tickSteps == 0 && d.ctx.Err() != nil {
		return 0, d.ctx.Err() // one request can ask for very many pages
	}
	if err := d.grant(size); err != nil {
		return 0, err
	}
	return d.SimDriver.Create(size)
}

// player plays a program under settings and limits.
type player struct {
	program *fidelity.Program
	total   int64           // memory of the recorded device, 0 if unknown
	failed  timeline.Moment // where a play ends, timeline.Start for the end

	tail *tail // whose state the next play captures, nil for none

	blocks []allocator.Block // scratch, by id
	events []allocator.Event
}

// played is the outcome of one play.
type played struct {
	completes bool
	failsAt   timeline.Moment // the first request that was not served
	served    bool            // the request at player.failed
	regained  int             // recorded failures before it that were served in the play
	stats     allocator.Stats // of the play alone, except that peaks include the start
	steps     int64
}

// play plays the program once. A request that is not served ends it. Other errors come from the callers or
// the context.
func (p *player) play(ctx context.Context, settings allocator.Settings, limit int64) (played, error) {
	out := played{failsAt: timeline.Start}
	settings.GarbageCollectionThreshold = 0 // see the comment in whatif.go
	d := &device{SimDriver: allocator.NewDriver(0), ctx: ctx, total: p.total}
	events := new(allocator.ManualEvents)
	a, err := allocator.NewCaching(allocator.Config{Driver: d, Events: events, Settings: settings})
	if err != nil {
		return out, err
	}
	if p.blocks == nil {
		p.blocks, p.events = make([]allocator.Block, p.program.Blocks),
			make([]allocator.Event, p.program.Blocks)
	}
	begun, ok, err := p.begin(a, d, limit)
	if err != nil || !ok {
		return out, err
	}
	for i := range p.program.Steps {
		if i%tickSteps == 0 && ctx.Err() != nil {
			return out, ctx.Err()
		}
		out.steps++
		if p.tail != nil && i == p.tail.from {
			p.tail.take(a, p.blocks)
		}
		s := &p.program.Steps[i]
		if s.Kind == fidelity.Fail && s.At == p.failed {
			out.completes = true
			out.served, err = p.ask(a, s)
			out.stats = since(a.Stats(), begun)
			return out, err
		}
		if err := p.step(a, events, s, &out); err != nil {
			out.stats = since(a.Stats(), begun)
			if errors.Is(err, allocator.ErrOutOfMemory) {
				out.failsAt = s.At
				return out, nil
			}
			return out, err
		}
	}
	out.completes, out.stats = true, since(a.Stats(), begun)
	return out, nil
}

// begin restores the initial state in the allocator; ok is false if the limit does not allow it.
func (p *player) begin(a *allocator.Caching, d *device, limit int64) (begun allocator.Stats, ok bool,
	err error) {
	if p.program.Start != nil {
		blocks, err := a.Restore(p.program.Start)
		if err != nil {
			return begun, false, err
		}
		copy(p.blocks, blocks)
		d.limit = limit
		begun = a.Stats()
		if limit > 0 && d.Held() > limit { // a run under this limit would have released its cache before
			if err := a.EmptyCache(); err != nil || d.Held() > limit {
				return begun, false, err
			}
		}
	}
	d.limit = limit
	return begun, true, nil
}

func notOutOfMemory(err error) error {
	if errors.Is(err, allocator.ErrOutOfMemory) {
		return nil
	}
	return err
}

// since subtracts the counts up to the start; byte figures stay.
func since(s, begun allocator.Stats) allocator.Stats {
	s.DriverMallocs -= begun.DriverMallocs
	s.DriverFrees -= begun.DriverFrees
	s.Maps -= begun.Maps
	s.Unmaps -= begun.Unmaps
	return s
}

// ask repeats a request that failed in the recording, and frees the block again if it is served.
func (p *player) ask(a *allocator.Caching, s *fidelity.Step) (bool, error) {
	b, err := p.malloc(a, s)
	if err != nil {
		return false, notOutOfMemory(err)
	}
	return true, a.Free(b)
}

func (p *player) malloc(a *allocator.Caching, s *fidelity.Step) (allocator.Block, error) {
	return a.MallocFrom(p.program.Pools[s.Pool], s.Size, s.Stream)
}

func (p *player) step(a *allocator.Caching, events *allocator.ManualEvents, s *fidelity.Step,
	out *played) (err error) {
	switch s.Kind {
	case fidelity.Malloc:
		p.blocks[s.Block], err = p.malloc(a, s)
	case fidelity.Free:
		err = a.Free(p.blocks[s.Block])
	case fidelity.FreeLater:
		if err = a.RecordStream(p.blocks[s.Block], s.Stream); err == nil {
			err = a.Free(p.blocks[s.Block])
		}
		p.events[s.Block] = events.Last()
	case fidelity.Complete:
		events.Complete(p.events[s.Block])
	case fidelity.ProcessEvents:
		a.ProcessEvents()
	case fidelity.EmptyCache:
		err = a.EmptyCache()
	case fidelity.Fail:
		var served bool
		if served, err = p.ask(a, s); served {
			out.regained++
		}
	}
	return err
}
