package usdt

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// From events to windows
//
// Events arrive in the order in which the ring buffer gave out space. That is the allocator's order where it
// matters: a block is announced after it is handed out and its free before it is taken back, so of two events
// about one address the earlier comes first. The clock is read a moment before; if two threads overtake each
// other there, the later event's time is raised to the earlier's.
//
// A window is a complete trace: it begins with an allocation, at time 0, of each block known to be alive, so
// that its figures add up. A block from before the probes is unknown until it is freed, and then only its
// address is known: such frees are counted and left out, since an event needs a size.
//
// A driver's allocation is a segment. If PyTorch's own probes are watched too, blocks come from those; if
// not, each driver allocation is a segment with one block that fills it, so that programs without a caching
// allocator have lifetimes to show.
//
// Costs: one map operation for each event, and at a window's start one event for each live block.

// event is what the kernel program reports: struct event of probe.bpf.c.
type event struct {
	time               int64 // CLOCK_MONOTONIC
	addr, size, stream uint64
	thread             uint32
	stack              int32 // negative for none
	result             int32 // of a driver's call: 0 or a CUresult
	device             int32
	site               uint32
}

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// held is memory known to be alive.
type held struct {
	size   int64
	stream uint64
	order  uint64 // of allocation
	stack  int32
	device int16
}

// space distinguishes equal addresses that mean different things.
type space uint8

const (
	blocks space = iota
	segments
	mapped
	physical
	pinned
	spaces
)

// windower turns events into windows.
type windower struct {
	blocksToo bool // PyTorch's probes are watched
	driverToo bool // the driver's are
	epoch     int64
	settings  []traces.Setting
	process   traces.Process
	resolve   func(b *traces.Builder, stack int32) traces.StackID // nil without stacks

	held  [spaces]map[uint64]held
	order uint64
	bytes int64 // of physical memory held

	allocated, reserved level // blocks and segments of device memory, as far as known
	ooms                int64

	b       *traces.Builder
	stream  cached[uint64, traces.StreamID]
	gpu     cached[int32, traces.DeviceID]
	start   int64 // of the window, on the events' clock
	last    int64 // time of the newest event in the window, relative to start
	events  int
	counter traces.Counter
}

// level is an amount and its maximum since the last query.
type level struct{ now, peak int64 }

func (l *level) add(n int64) {
	l.now += n
	l.peak = max(l.peak, l.now)
}

// cached is the last answer of an interning table: most events have the stream and device of the previous
// one.
type cached[K comparable, V any] struct {
	key   K
	value V
	known bool
}

func (c *cached[K, V]) get(key K, ask func(K) V) V {
	if !c.known || c.key != key {
		*c = cached[K, V]{key, ask(key), true}
	}
	return c.value
}

// newWindower returns a windower whose events' clock reads 0 at Unix time epoch, in nanoseconds.
func newWindower(epoch int64, blocksToo bool) *windower {
	w := &windower{blocksToo: blocksToo, epoch: epoch}
	for i := range w.held {
		w.held[i] = map[uint64]held{}
	}
	return w
}

// open begins a window at a moment of the events' clock.
func (w *windower) open(at int64) {
	b := traces.NewBuilder()
	b.T.Source = traces.Source{Format: "probes", Path: "-"}
	b.T.Process, b.T.Settings = w.process, slices.Clone(w.settings)
	// room for as many as the last window had, within limits: a quiet window after a busy one should not keep
	// too much
	b.T.Events.Grow(min(w.events, 1<<16))
	w.stream, w.gpu = cached[uint64, traces.StreamID]{}, cached[int32, traces.DeviceID]{}
	b.T.Clock = traces.Clock{HasTime: true, Resolution: 1, Epoch: w.epoch + at}
	w.b, w.start, w.last, w.events = b, at, 0, 0
	w.counter = traces.Counter{}
	for s := range spaces {
		if s == physical {
			continue
		}
		list := make([]uint64, 0, len(w.held[s]))
		for addr := range w.held[s] {
			list = append(list, addr)
		}
		slices.SortFunc(list, func(a, b uint64) int {
			return cmp.Compare(w.held[s][a].order, w.held[s][b].order)
		})
		for _, addr := range list {
			w.emit(s, true, addr, w.held[s][addr], 0)
		}
	}
}

// take adds an event of a site with that action. open must have been called.
func (w *windower) take(e event, does action) {
	at := max(e.time-w.start, w.last, 1) // time 0 is what was there before
	w.last = at
	w.events++
	if e.result != 0 {
		w.refused(e, does, at)
		return
	}
	switch does {
	case blockAlloc:
		w.alloc(blocks, e, at)
	case blockFree:
		w.free(blocks, e, at)
	case driverAlloc:
		w.alloc(segments, e, at)
	case driverFree:
		if e.addr != 0 { // freeing nothing is allowed
			w.free(segments, e, at)
		}
	case driverMap:
		w.alloc(mapped, e, at)
	case driverUnmap:
		w.unmap(e, at)
	case physicalAlloc:
		w.alloc(physical, e, at)
	case physicalFree:
		w.free(physical, e, at)
	case pinnedAlloc:
		w.alloc(pinned, e, at)
	case pinnedFree:
		w.free(pinned, e, at)
	}
}

func (w *windower) refused(e event, does action, at int64) {
	if e.result == outOfMemory && (does == driverAlloc || does == physicalAlloc) {
		w.ooms++
		w.b.Event(traces.Event{Time: at, Addr: math.MaxUint64, Size: size(e.size), Stack: w.stack(e.stack),
			Stream: w.stream.get(e.stream, w.b.Stream),
			// probes do not see what was still free: negative
			Device: w.device(does == pinnedAlloc, e.device), Action: traces.OOM})
		return
	}
	w.b.Lose("failed_calls", traces.Info, 1,
		"calls of the driver that failed for another reason than memory; they change nothing")
}

func size(v uint64) int64 { return int64(min(v, math.MaxInt64)) }

func (w *windower) alloc(s space, e event, at int64) {
	if e.addr == 0 && s != physical { // an empty tensor has no memory
		return
	}
	h := held{size: size(e.size), stream: e.stream, order: w.order, stack: e.stack,
		device: int16(min(max(e.device, 0), math.MaxInt16))}
	w.order++
	if old, known := w.held[s][e.addr]; known { // its free was lost, or bypassed the probes
		w.b.Lose("missed_frees", traces.DataLoss, 1,
			"memory was allocated again without a free in between; it is shown as freed at that moment")
		old.stack = -1
		w.count(s, old.size, -1)
		w.release(s, e.addr, old, at)
	}
	w.held[s][e.addr] = h
	w.count(s, h.size, 1)
	w.emit(s, true, e.addr, h, at)
	if s == physical {
		w.sample(h.size, at)
	}
}

// count tracks how much is held; sign is 1 for an allocation, -1 for a free. Probes see a block's requested
// size, and allocated is what PyTorch rounds it to by default. Physical memory without an address counts once
// it is mapped, and pinned memory belongs to the host.
func (w *windower) count(s space, size, sign int64) {
	switch s {
	case blocks:
		var rule torchalloc.Rounding
		w.allocated.add(sign * rule.Round(size))
	case segments, mapped:
		w.reserved.add(sign * size)
	}
}

func (w *windower) free(s space, e event, at int64) {
	h, known := w.held[s][e.addr]
	if !known {
		w.b.Lose("freed_unknown", traces.DataLoss, 1,
			"memory was freed that had been allocated before the probes were attached: its size is not "+
				"known, and the free is left out")
		return
	}
	delete(w.held[s], e.addr)
	h.stack = e.stack
	w.count(s, h.size, -1)
	w.release(s, e.addr, h, at)
}

func (w *windower) release(s space, addr uint64, h held, at int64) {
	w.emit(s, false, addr, h, at)
	if s == physical {
		w.sample(-h.size, at)
	}
}

// unmap removes a range, which may span several whole mappings.
func (w *windower) unmap(e event, at int64) {
	n := size(e.size)
	if _, whole := w.held[mapped][e.addr]; whole {
		for addr, end := e.addr, e.addr+uint64(n); addr < end; {
			h, known := w.held[mapped][addr]
			if !known || h.size <= 0 {
				break
			}
			delete(w.held[mapped], addr)
			h.stack = e.stack
			w.count(mapped, h.size, -1)
			w.release(mapped, addr, h, at)
			addr += uint64(h.size)
		}
		return
	}
	// from before the probes: here the size is known
	h := held{size: n, stream: e.stream, stack: e.stack, device: int16(max(e.device, 0))}
	w.emit(mapped, false, e.addr, h, at)
}

// actions of each space, for allocations and frees: the segment's and then the block's, ActionUnknown for
// none.
func (w *windower) actions(s space, alloc bool) (segment, block traces.Action) {
	switch {
	case s == blocks && alloc, s == pinned && alloc:
		return traces.ActionUnknown, traces.Alloc
	case s == blocks, s == pinned:
		return traces.ActionUnknown, traces.Free
	case s == segments && alloc:
		segment, block = traces.SegmentAlloc, traces.Alloc
	case s == segments:
		segment, block = traces.SegmentFree, traces.Free
	case s == mapped && alloc:
		segment, block = traces.SegmentMap, traces.Alloc
	case s == mapped:
		segment, block = traces.SegmentUnmap, traces.Free
	}
	if w.blocksToo {
		block = traces.ActionUnknown
	}
	return segment, block
}

func (w *windower) emit(s space, alloc bool, addr uint64, h held, at int64) {
	segment, block := w.actions(s, alloc)
	e := traces.Event{Time: at, Addr: addr, Size: h.size, Stack: w.stack(h.stack),
		Stream: w.stream.get(h.stream, w.b.Stream), Device: w.device(s == pinned, int32(h.device))}
	first, second := segment, block
	if !alloc {
		first, second = block, segment
	}
	for _, a := range [...]traces.Action{first, second} {
		if a != traces.ActionUnknown {
			e.Action = a
			w.b.Event(e)
		}
	}
}

func (w *windower) device(isPinned bool, ordinal int32) traces.DeviceID {
	if isPinned {
		return w.b.Device(traces.DeviceHost, 0)
	}
	return w.gpu.get(max(ordinal, 0), func(i int32) traces.DeviceID {
		return w.b.Device(traces.DeviceGPU, int(i))
	})
}

func (w *windower) stack(id int32) traces.StackID {
	if id < 0 || w.resolve == nil {
		return traces.NoStack
	}
	return w.resolve(w.b, id)
}

// sample notes a change of the physical memory that the process holds without an address.
func (w *windower) sample(delta, at int64) {
	w.bytes += delta
	w.counter.Time, w.counter.Value = append(w.counter.Time, at), append(w.counter.Value, w.bytes)
}

// close ends the window and returns its trace, nil if it is empty.
func (w *windower) close() *traces.Trace {
	b := w.b
	w.b = nil
	if w.events == 0 || b.T.Events.Len()+len(b.T.Losses)+len(w.counter.Time) == 0 {
		return nil
	}
	if len(w.counter.Time) > 0 {
		w.counter.Name, w.counter.Device = b.String("driver_physical"), b.Device(traces.DeviceGPU, 0)
		b.T.Counters = append(b.T.Counters, w.counter)
	}
	return b.Finish()
}
