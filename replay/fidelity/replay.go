package fidelity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// The replay walks the device's events once. Memory events come from the program and go to the emulated
// allocator. Segment events come from the allocator; they are collected until the next memory event, which
// caused them: PyTorch records segment_alloc and segment_map before the alloc they serve.
//
// Three things that decide the outcome are not recorded and have to be inferred. Two are the driver's: the
// addresses of new segments, and refusals of memory (see recordedDriver). The third is that the program
// emptied the cache, which shows as segments returned when no request needs it: before anything but an alloc,
// or before an alloc that the cache could have served or that obtains nothing. In the remaining case,
// segments returned and others obtained before the same alloc, the driver may have refused or the program may
// have emptied the cache. Both leave the same state, because emptying the cache does not help a request that
// the cache cannot serve. Only a range of addresses shows the difference: if one is reserved where another
// was released, the cache had been emptied before.
//
// The rules are those of the release that the recording names. A snapshot from elsewhere names none: then
// each way to choose between blocks of equal size is tried, and the report says which fits. Garbage
// collection needs the memory fraction, which our own recordings hold.
//
// The recording shows when a block freed late came back (free_completed), but not whether PyTorch found it by
// polling, before it searched for a hole, or by waiting, after the driver refused. If segments are returned
// for a request, the replay assumes that PyTorch waited: had it polled, the search failed anyway.
//
// The replay runs freely: after a difference it goes on from its own state, not from the recorded one, so the
// score is that of a prediction. O(n log n) for n events.
//
// Rejected: resetting the emulation to the recorded state after each difference. That would count each wrong
// decision once, and say little about how far to trust a prediction.

// tickEvents is how many events are replayed between checks of the context.
const tickEvents = 4096

// Replay replays a device's recording through the emulated caching allocator and compares. The error is a
// *Refusal if the recording cannot be simulated, and the context's if that is cancelled.
func Replay(ctx context.Context, d *timeline.Device) (*Report, error) {
	return run(ctx, d, nil)
}

// runAs is run with the rules of one release, up to an event.
func runAs(
	ctx context.Context, d *timeline.Device, torch allocator.Version, program *Program, end int,
) (*Report, error) {
	r := &replay{
		d: d, tr: d.Timeline().Trace, live: map[uint64]heldBlock{}, waiting: map[uint64]delayedFree{},
		program: program, torch: torch, end: end,
	}
	if program != nil {
		program.Steps = slices.Grow(program.Steps, end) // a step an event, or fewer
	}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if err := r.each(ctx, end, r.step); err != nil {
		return nil, err
	}
	if err := r.settle(timeline.Moment(end)); err != nil {
		return nil, err
	}
	if program != nil {
		program.Blocks = int(r.blocks)
	}
	return r.finish(), nil
}

// each calls f with every event before end until it fails or ctx is cancelled.
func (r *replay) each(ctx context.Context, end int, f func(timeline.Moment, traces.Event) error) error {
	for m := range end {
		if m%tickEvents == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := f(timeline.Moment(m), r.d.Event(timeline.Moment(m))); err != nil {
			return fmt.Errorf("replay event %d: %w", m, err)
		}
	}
	return nil
}

// refuseDevice returns why a device cannot be replayed at all, nil if it can.
func refuseDevice(d *timeline.Device) error {
	t, tr := &d.Totals, d.Timeline().Trace
	segmentEvents := 0
	for m := range d.Len() {
		switch d.Event(timeline.Moment(m)).Action {
		case traces.SegmentAlloc, traces.SegmentFree, traces.SegmentMap, traces.SegmentUnmap:
			segmentEvents++
		}
	}
	switch {
	case d.Info.Kind != traces.DeviceGPU:
		return refuse(NotCachingAllocator, nil, "the memory of %s is not handed out by the caching allocator",
			d.Label())
	case tr.Source.SyntheticAddresses:
		return refuse(NotCachingAllocator, nil,
			"its addresses are made up by the reader of %s; record a memory snapshot", tr.Source.Format)
	case t.Allocations == 0:
		return refuse(NoAllocations, nil,
			"it has no alloc events; record with torch.cuda.memory._record_memory_history()")
	case !t.FinalKnown && segmentEvents == 0:
		return refuse(NoSegments, nil, "it has no segments to compare with; record a memory snapshot")
	case !t.FinalKnown && !t.BeginsEmpty:
		return refuse(BeginningLost, nil,
			"it begins in the middle and has no final state to rebuild the beginning from; record from the "+
				"start")
	case t.LawAllocated != 0 || t.LawActive != 0 || t.LawReserved != 0:
		return refuse(EventsMissing, nil,
			"its events do not lead to its final state (%s); record with more max_entries", t.Reason)
	}
	return nil
}

// replay is one replay under way.
type replay struct {
	d      *timeline.Device
	tr     *traces.Trace
	torch  allocator.Version // whose rules are followed
	end    int               // the event before which the replay ends
	report Report
	alloc  *allocator.Caching
	driver *recordedDriver
	events allocator.ManualEvents

	program *Program // logs what the process does, nil if not wanted
	blocks  BlockID  // handed out so far

	live      map[uint64]heldBlock   // by recorded address
	waiting   map[uint64]delayedFree // freed, not completed, by recorded address
	completed []delayedFree          // completed since the last memory event
	idle      []allocator.Stream     // streams made up for delayed frees and free again
	lastIdle  allocator.Stream
	rank      []allocator.Stream // of the trace's streams, by handle
	// where recorded private pools lie, by address, for traces whose events do not name them
	private   []poolRange
	maps      map[rangeKey][]mapped    // segment_map events in order, once they are asked for
	recorded  []allocator.SegmentEvent // since the last memory event
	emulated  []allocator.SegmentEvent // of the request under way
	strangers int                      // frees of unknown blocks
}

type heldBlock struct {
	allocator.Block
	id BlockID
}

type delayedFree struct {
	event  allocator.Event
	stream allocator.Stream
	id     BlockID
}

type mapped struct {
	at   timeline.Moment
	addr uint64
}

type poolRange struct {
	from, until uint64
	pool        traces.Pool
}

// firstMadeUp is above every rank: from here on streams represent "some other stream" in delayed frees.
const firstMadeUp allocator.Stream = 1 << 20

// prepare reads the settings and builds the allocator in the state at the start.
func (r *replay) prepare(ctx context.Context) error {
	settings, known, err := allocator.SnapshotSettings(r.torch, r.tr.Setting)
	if err != nil {
		return refuse(SettingsUnknown, err, "its allocator settings are not understood")
	}
	total, fraction := allocator.DeviceOf(r.tr.Setting, r.d.Info.Ordinal)
	if fraction > 0 {
		settings.MemoryFraction = fraction
	}
	if r.d.Info.TotalBytes > 0 {
		total = r.d.Info.TotalBytes
	}
	if total == 0 {
		settings.MemoryFraction = 0 // a share of an unknown size
	}
	r.report.Settings, r.report.SettingsRecorded, r.report.FromEmpty = settings, known, r.d.Totals.BeginsEmpty
	r.caveats()
	r.rankStreams()
	for _, seg := range r.tr.Final.Segments {
		if p := seg.Pool; seg.Device == r.d.ID && p != (traces.Pool{}) {
			r.private = append(r.private, poolRange{seg.Address, seg.Address + uint64(seg.TotalSize), p})
		}
	}
	slices.SortFunc(r.private, func(x, y poolRange) int { return cmp.Compare(x.from, y.from) })
	r.driver = &recordedDriver{ctx: ctx, SimDriver: allocator.NewDriver(0), total: total}
	r.lastIdle = firstMadeUp
	r.alloc, err = allocator.NewCaching(allocator.Config{
		Driver: r.driver, Events: &r.events, Settings: settings,
		OnSegment: func(e allocator.SegmentEvent) { r.emulated = append(r.emulated, e) },
	})
	if err != nil {
		return refuse(SettingsUnknown, err, "its allocator is not emulated")
	}
	if r.report.FromEmpty {
		return nil
	}
	return r.restore(ctx)
}

func (r *replay) caveats() {
	note := func(format string, args ...any) {
		r.report.Caveats = append(r.report.Caveats, fmt.Sprintf(format, args...))
	}
	if !r.report.SettingsRecorded {
		note("the recording has no allocator settings: PyTorch's defaults are assumed")
	}
	if r.report.Settings.GarbageCollectionThreshold > 0 && r.report.Settings.MemoryFraction == 0 {
		note("garbage_collection_threshold is a share of a memory fraction that is not recorded: garbage " +
			"collection is not replayed")
	}
	if r.d.Totals.RequestedExactness != timeline.Exact {
		note("%s", r.d.Totals.Reason)
	}
	if len(r.report.Settings.Unmodelled) > 0 {
		note("not emulated: %s", strings.Join(r.report.Settings.Unmodelled, ", "))
	}
}

// rankStreams numbers streams in the order of their handles, which is the order of PyTorch's sets.
func (r *replay) rankStreams() {
	handles := slices.Clone(r.tr.Streams)
	slices.Sort(handles)
	r.rank = make([]allocator.Stream, len(handles))
	for i, h := range r.tr.Streams {
		k, _ := slices.BinarySearch(handles, h)
		r.rank[i] = allocator.Stream(k)
	}
}

// step replays one event.
func (r *replay) step(m timeline.Moment, e traces.Event) error {
	switch e.Action {
	case traces.SegmentAlloc:
		r.record(e, allocator.SegmentAlloc)
	case traces.SegmentFree:
		r.record(e, allocator.SegmentFree)
	case traces.SegmentMap:
		r.record(e, allocator.SegmentMap)
	case traces.SegmentUnmap:
		r.record(e, allocator.SegmentUnmap)
	case traces.Alloc:
		return r.malloc(m, e)
	case traces.OOM:
		return r.outOfMemory(m, e)
	case traces.FreeRequested, traces.Free:
		if err := r.settle(m); err != nil {
			return err
		}
		return r.free(e.Addr, e.Action == traces.FreeRequested && !r.completesAt(m+1, e.Addr))
	case traces.FreeCompleted: // if the request came just before, the block is already free
		if w, ok := r.waiting[e.Addr]; ok {
			r.completed = append(r.completed, w)
			delete(r.waiting, e.Addr)
		}
	}
	return nil
}

// completesAt reports whether event m is the completion of the free of addr.
func (r *replay) completesAt(m timeline.Moment, addr uint64) bool {
	if int(m) >= r.d.Len() {
		return false
	}
	e := r.d.Event(m)
	return e.Action == traces.FreeCompleted && e.Addr == addr
}

func (r *replay) record(e traces.Event, action allocator.SegmentAction) {
	r.recorded = append(r.recorded, allocator.SegmentEvent{
		Action: action, Addr: e.Addr, Size: e.Size, Stream: r.rank[e.Stream], Pool: r.poolOf(e),
	})
}

// poolOf returns the private pool of an event: as recorded, else the pool of the final segment that holds it.
func (r *replay) poolOf(e traces.Event) traces.Pool {
	if int(e.Detail) < len(r.tr.Details) && r.tr.Details[e.Detail].HasPool {
		return r.tr.Details[e.Detail].Pool
	}
	i := sort.Search(len(r.private), func(i int) bool { return r.private[i].from > e.Addr }) - 1
	if i >= 0 && e.Addr < r.private[i].until {
		return r.private[i].pool
	}
	return traces.Pool{}
}

// free frees a block; with delay it stays active until its free_completed.
func (r *replay) free(addr uint64, delay bool) error {
	b, ok := r.live[addr]
	if !ok {
		r.strangers++
		return nil
	}
	delete(r.live, addr)
	if !delay {
		r.program.note(Step{Kind: Free, Block: b.id})
		return r.alloc.Free(b.Block)
	}
	// Each delayed free gets its own stream: the recording gives the order in which streams finish, and the
	// order within them follows.
	stream := r.lastIdle
	if n := len(r.idle); n > 0 {
		stream, r.idle = r.idle[n-1], r.idle[:n-1]
	} else {
		r.lastIdle++
	}
	r.program.note(Step{Kind: FreeLater, Block: b.id, Stream: stream})
	if err := r.alloc.RecordStream(b.Block, stream); err != nil {
		return err
	}
	if err := r.alloc.Free(b.Block); err != nil {
		return err
	}
	r.waiting[addr] = delayedFree{r.events.Last(), stream, b.id}
	return nil
}

// settle empties the cache if segments were returned, or events completed, before anything but a request, and
// compares.
func (r *replay) settle(m timeline.Moment) error {
	if len(r.recorded)+len(r.completed) == 0 {
		return nil
	}
	if givenBack(r.recorded) > 0 {
		if err := r.emptyCache(); err != nil {
			return err
		}
	}
	r.complete()
	r.program.note(Step{Kind: ProcessEvents})
	r.alloc.ProcessEvents()
	r.compareSegments(m)
	return nil
}

// complete marks the events of the recorded completions as done.
func (r *replay) complete() {
	for _, w := range r.completed {
		r.program.note(Step{Kind: Complete, Block: w.id})
		r.events.Complete(w.event)
		r.idle = append(r.idle, w.stream)
	}
	r.completed = r.completed[:0]
}

func (r *replay) emptyCache() error {
	r.program.note(Step{Kind: EmptyCache})
	r.report.EmptiedCaches++
	r.driver.expect(nil, false)
	return r.alloc.EmptyCache()
}

// givenBack counts the segments given back among events.
func givenBack(events []allocator.SegmentEvent) int {
	n := 0
	for _, e := range events {
		if e.Action == allocator.SegmentFree || e.Action == allocator.SegmentUnmap {
			n++
		}
	}
	return n
}

// malloc replays a request and compares the result.
func (r *replay) malloc(m timeline.Moment, e traces.Event) error {
	pool, stream := r.poolOf(e), r.rank[e.Stream]
	back := givenBack(r.recorded)
	if back > 0 && r.report.Settings.GarbageCollectionThreshold > 0 && len(r.completed) > 0 {
		r.complete() // PyTorch polls before it collects garbage
		r.alloc.ProcessEvents()
	}
	if back > 0 {
		back = max(0, back-r.alloc.Garbage(pool, e.Size, stream)) // those need no refusal
	}
	refusals := back > 0 && back < len(r.recorded) && !r.alloc.Cached(pool, e.Size, stream)
	if back > 0 && !refusals {
		if err := r.emptyCache(); err != nil {
			return err
		}
	}
	if !refusals {
		r.complete()
	}
	r.driver.expect(r.recorded, refusals)
	b, err := r.alloc.MallocFrom(pool, e.Size, stream)
	if errors.Is(err, errTaken) {
		if err := r.emptyCache(); err != nil {
			return err
		}
		r.complete()
		r.driver.expect(r.recorded, false)
		b, err = r.alloc.MallocFrom(pool, e.Size, stream)
	}
	if errors.Is(err, allocator.ErrOutOfMemory) && r.driver.waiting > 0 {
		r.driver.waiting = 0 // fewer were returned than recorded: a difference, but no reason to stop
		b, err = r.alloc.MallocFrom(pool, e.Size, stream)
	}
	if err != nil {
		return err
	}
	id := r.blocks
	r.blocks++
	r.program.note(Step{Kind: Malloc, Block: id, Size: e.Size, Stream: stream,
		Pool: r.program.poolIndex(pool), At: m})
	r.complete()
	r.report.Allocations++
	r.compareSegments(m)
	if b.Addr == e.Addr {
		r.report.SamePlace++
	} else if r.report.First == nil {
		r.report.First = r.misplaced(m, e, b)
	}
	if old, ok := r.live[e.Addr]; ok { // its free is missing
		r.program.note(Step{Kind: Free, Block: old.id})
		if err := r.alloc.Free(old.Block); err != nil {
			return err
		}
	}
	r.live[e.Addr] = heldBlock{b, id}
	return nil
}

// outOfMemory replays a request that failed: the driver refuses, however much is returned.
func (r *replay) outOfMemory(m timeline.Moment, e traces.Event) error {
	pool := r.poolOf(e)
	stream := r.rank[e.Stream]
	r.program.note(Step{Kind: Fail, Size: e.Size, Stream: stream, Pool: r.program.poolIndex(pool), At: m})
	r.driver.expect(nil, false)
	r.driver.waiting = 1 << 30
	r.driver.later = func() (uint64, bool) { return r.laterMap(m, e, pool) }
	b, err := r.alloc.MallocFrom(pool, e.Size, stream)
	r.driver.waiting, r.driver.later = 0, nil
	r.complete()
	r.compareSegments(m)
	if err == nil { // the emulation had a hole for it
		if r.report.First == nil {
			r.report.First = &Divergence{At: m, Recorded: "out of memory",
				Emulated: fmt.Sprintf("a block at %#x", b.Addr), Why: "a hole is there " +
					"that PyTorch did not have, or the device failed for another reason"}
		}
		return r.alloc.Free(b)
	}
	if !errors.Is(err, allocator.ErrOutOfMemory) {
		return err
	}
	return nil
}

// laterMap returns the address of the next segment_map after m for the pool and the stream of a request. A
// new range is reserved only if the pool has none with room on that stream, so this is the beginning of the
// range.
func (r *replay) laterMap(m timeline.Moment, request traces.Event, pool traces.Pool) (uint64, bool) {
	if r.maps == nil {
		r.maps = map[rangeKey][]mapped{}
		for k := range r.d.Len() {
			if e := r.d.Event(timeline.Moment(k)); e.Action == traces.SegmentMap {
				key := r.keyOf(e)
				r.maps[key] = append(r.maps[key], mapped{timeline.Moment(k), e.Addr})
			}
		}
	}
	_, small := r.report.Settings.SegmentFor(r.report.Settings.Round(request.Size))
	later := r.maps[rangeKey{r.rank[request.Stream], pool, small}]
	i := sort.Search(len(later), func(i int) bool { return later[i].at > m })
	if i == len(later) {
		return 0, false
	}
	return later[i].addr, true
}
