package fidelity_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// recorder runs a random program against the emulated allocator and records it as PyTorch records the real
// one. The replay of such a recording has to recover every input that a recording lacks: the driver's
// answers, when the cache was emptied, which event released a block.
type recorder struct {
	t      testing.TB
	rng    *rand.Rand
	b      *traces.Builder
	dev    traces.DeviceID
	alloc  *allocator.Caching
	now    int64
	live   []allocator.Block
	pools  []traces.Pool
	inPool map[uint64]traces.Pool // of live and pending blocks
	named  bool                   // events say their pool

	freeing allocator.Block
	done    []bool
	owner   []allocator.Block // of event i+1
	left    map[uint64]int    // events outstanding, by address
	ready   int               // events up to here are done on the device
}

// shift moves the simulated driver's addresses into the range of a real driver's.
const shift = 1<<48 - 1<<40

func newRecorder(t testing.TB, conf string, capacity int64, seed uint64) *recorder {
	return newRecorderOf(t, allocator.Version{}, conf, capacity, seed)
}

// newRecorderOf records an allocator that follows the rules of a release.
func newRecorderOf(t testing.TB, torch allocator.Version, conf string, capacity int64,
	seed uint64) *recorder {
	if capacity == 0 {
		capacity = 64 << 30
	}
	settings, err := allocator.ParseSettingsOf(torch, conf)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), b: traces.NewBuilder(), left: map[uint64]int{},
		inPool: map[uint64]traces.Pool{},
	}
	r.b.Stream(0x9000) // handles appear out of order
	r.dev = r.b.Device(traces.DeviceGPU, 0)
	r.b.T.Source = traces.Source{Format: "test", Path: "test"}
	r.b.T.Settings = snapshotOf(conf, settings)
	r.alloc, err = allocator.NewCaching(allocator.Config{
		Driver: allocator.NewDriver(capacity), Events: r, Settings: settings, OnSegment: r.segment,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// snapshotOf writes settings as PyTorch does: the text, and the values in force.
func snapshotOf(conf string, s allocator.Settings) []traces.Setting {
	split := int64(-1)
	if s.MaxSplitSize > 0 {
		split = s.MaxSplitSize
	}
	steps := map[string]int64{}
	for i, n := range s.RoundupPower2Divisions {
		steps[strconv.Itoa(1<<i)] = n
	}
	var all []traces.Setting
	for _, v := range []struct {
		key   string
		value any
	}{
		{"PYTORCH_CUDA_ALLOC_CONF", conf}, {"max_split_size", split},
		{"garbage_collection_threshold", s.GarbageCollectionThreshold},
		{"expandable_segments", s.ExpandableSegments}, {"roundup_power2_divisions", steps},
	} {
		text, err := json.Marshal(v.value)
		if err != nil {
			panic(err)
		}
		all = append(all, traces.Setting{Key: v.key, Value: string(text)})
	}
	return all
}

func handle(stream allocator.Stream) uint64 { return uint64(stream) * 0x3000 }

func (r *recorder) event(a traces.Action, addr uint64, size int64, stream allocator.Stream,
	pool traces.Pool) {
	r.now += 1000
	e := traces.Event{
		Time: r.now, Addr: addr - shift, Size: size, Stack: traces.NoStack,
		Stream: r.b.Stream(handle(stream)), Device: r.dev, Action: a,
	}
	if a == traces.OOM {
		e.Addr = 0
	}
	if r.named {
		e.Detail = r.b.Detail(traces.Detail{
			ForwardStack: traces.NoStack, HasPool: true,
			Pool: traces.Pool{First: pool.First, Second: pool.Second},
		})
	}
	r.b.Event(e)
}

func (r *recorder) segment(e allocator.SegmentEvent) {
	r.event([...]traces.Action{traces.SegmentAlloc, traces.SegmentFree, traces.SegmentMap,
		traces.SegmentUnmap}[e.Action], e.Addr, e.Size, e.Stream, e.Pool)
}

// Record, Done and Wait implement allocator.Events; with a block's last event PyTorch records free_completed.
func (r *recorder) Record(allocator.Stream) allocator.Event {
	r.done, r.owner = append(r.done, false), append(r.owner, r.freeing)
	r.left[r.freeing.Addr]++
	return allocator.Event(len(r.done))
}

func (r *recorder) Done(e allocator.Event) bool {
	if int(e) > r.ready {
		return false
	}
	r.Wait(e)
	return true
}

func (r *recorder) Wait(e allocator.Event) {
	if r.done[e-1] {
		return
	}
	r.done[e-1] = true
	b := r.owner[e-1]
	if r.left[b.Addr]--; r.left[b.Addr] == 0 {
		r.event(traces.FreeCompleted, b.Addr, b.Requested, b.Stream, r.inPool[b.Addr])
	}
}

func (r *recorder) malloc(size int64, stream allocator.Stream) {
	var pool traces.Pool
	if len(r.pools) > 0 && r.rng.IntN(3) == 0 {
		pool = r.pools[r.rng.IntN(len(r.pools))]
	}
	b, err := r.alloc.MallocFrom(pool, size, stream)
	if errors.Is(err, allocator.ErrOutOfMemory) {
		r.event(traces.OOM, 0, size, stream, pool)
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.event(traces.Alloc, b.Addr, size, stream, pool)
	r.inPool[b.Addr] = pool
	r.live = append(r.live, b)
}

func (r *recorder) free(i int, delayed bool) {
	b := r.live[i]
	r.live[i] = r.live[len(r.live)-1]
	r.live = r.live[:len(r.live)-1]
	if delayed {
		for _, s := range []allocator.Stream{(b.Stream + 1) % 4, (b.Stream + 2) % 4}[:1+r.rng.IntN(2)] {
			if err := r.alloc.RecordStream(b, s); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.freeing = b
	r.event(traces.FreeRequested, b.Addr, b.Requested, b.Stream, r.inPool[b.Addr])
	if err := r.alloc.Free(b); err != nil {
		r.t.Fatal(err)
	}
	if !delayed {
		r.event(traces.FreeCompleted, b.Addr, b.Requested, b.Stream, r.inPool[b.Addr])
	}
}

// program runs n random steps: growing and shrinking working sets of sizes from a few classes, as in
// training.
func (r *recorder) program(n int) {
	sizes := make([]int64, 40)
	for i := range sizes {
		switch r.rng.IntN(4) {
		case 0:
			sizes[i] = 1 + r.rng.Int64N(4<<10)
		case 1:
			sizes[i] = 1 + r.rng.Int64N(1<<20)
		case 2:
			sizes[i] = 1<<20 + r.rng.Int64N(9<<20)
		default:
			sizes[i] = 10<<20 + r.rng.Int64N(30<<20)
		}
	}
	for range n {
		switch k := r.rng.IntN(100); {
		case k < 50:
			r.malloc(sizes[r.rng.IntN(len(sizes))], allocator.Stream(r.rng.IntN(2)*r.rng.IntN(3)))
		case k < 97 && len(r.live) > 0:
			r.free(r.rng.IntN(len(r.live)), r.rng.IntN(8) == 0)
		case k == 98:
			r.ready = len(r.done) - r.rng.IntN(3)
		case k == 99 && r.rng.IntN(8) == 0:
			if err := r.alloc.EmptyCache(); err != nil {
				r.t.Fatal(err)
			}
			r.event(traces.Snapshot, shift, 0, 0, traces.Pool{})
		}
	}
}

// device ends the recording with the final state and returns the timeline's device. The first skip events are
// lost.
func (r *recorder) device(skip int) *timeline.Device {
	final := &r.b.T.Final
	final.Known = true
	for _, seg := range r.alloc.Segments() {
		s := traces.Segment{
			Address: seg.Addr - shift, TotalSize: seg.Size, Pool: seg.Pool, HasPool: true,
			Expandable: seg.Expandable, Small: seg.Small, Stream: r.b.Stream(handle(seg.Stream)),
			Device: r.dev, Stack: traces.NoStack, FirstBlock: int32(len(final.Blocks)),
		}
		for _, b := range seg.Blocks {
			state := [...]traces.BlockState{traces.BlockInactive, traces.BlockAllocated,
				traces.BlockPendingFree}[b.State]
			final.Blocks = append(final.Blocks, traces.Block{
				Address: b.Addr - shift, Size: b.Size, Requested: maybe.Known(b.Requested),
				Stack: traces.NoStack,
				Count: 1, State: state,
			})
			if state == traces.BlockAllocated {
				s.AllocatedSize += b.Size
			}
			if state != traces.BlockInactive {
				s.ActiveSize += b.Size
				s.Wanted += b.Requested
			}
		}
		s.EndBlock = int32(len(final.Blocks))
		final.Segments = append(final.Segments, s)
	}
	tr := r.b.Finish()
	if skip > 0 {
		tr = lose(tr, skip)
	}
	return build(r.t, tr)
}

// lose returns the trace without its first events, as a ring buffer that overflowed leaves it.
func lose(tr *traces.Trace, skip int) *traces.Trace {
	b := traces.NewBuilder()
	for _, s := range tr.Streams {
		b.Stream(s)
	}
	for _, d := range tr.Devices {
		b.Device(d.Kind, d.Ordinal)
	}
	b.T.Source, b.T.Settings, b.T.Final = tr.Source, tr.Settings, tr.Final
	for i := skip; i < tr.Events.Len(); i++ {
		e := tr.Events.At(i)
		e.Detail = b.Detail(tr.DetailOf(i))
		b.Event(e)
	}
	return b.Finish()
}

func build(t testing.TB, tr *traces.Trace) *timeline.Device {
	tl, err := timeline.Build(context.Background(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Devices[0]
}
