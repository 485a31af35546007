package whatif_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// recorder runs a program, one statement a line, against the emulated allocator on a device of some capacity,
// and records it as PyTorch records the real one:
//
//	conf SETTINGS     capacity SIZE     others SIZE (held by other processes)
//	malloc NAME SIZE  [stream=N]        free NAME          later NAME (in use on another stream until: done)
//	done              empty_cache       lose N (the first N events)
//	at FUNCTION       (where what follows is called)
//	from SIZE to SIZE by SIZE: NAME     (a growing block, freed before the next is asked for)
//
// A request that fails is recorded as an oom event with what the device has left. Sizes take k, m and g
// (binary).
type recorder struct {
	b        *traces.Builder
	dev      traces.DeviceID
	settings allocator.Settings
	conf     string
	capacity int64
	others   int64
	driver   *allocator.SimDriver
	alloc    *allocator.Caching
	owner    []allocator.Block // of event i+1
	over     []bool
	ready    int // events up to here are over on the device
	freeing  allocator.Block
	live     map[string]allocator.Block
	refused  map[string]bool
	now      int64
	lose     int
	stack    traces.StackID // of what follows
}

// shift moves the simulated driver's addresses to where a real driver's lie.
const shift = 1<<48 - 1<<40

func newRecorder() *recorder {
	r := &recorder{b: traces.NewBuilder(), live: map[string]allocator.Block{}, refused: map[string]bool{},
		capacity: 64 << 30,
		stack:    traces.NoStack}
	r.dev = r.b.Device(traces.DeviceGPU, 0)
	r.b.T.Source = traces.Source{Format: "test", Path: "test"}
	return r
}

func bytesOf(s string) (int64, error) {
	units := map[string]int64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
	unit, ok := units[s[len(s)-1:]]
	if !ok {
		return strconv.ParseInt(s, 10, 64)
	}
	n, err := strconv.ParseInt(s[:len(s)-1], 10, 64)
	return n * unit, err
}

func (r *recorder) start() (err error) {
	if r.alloc != nil {
		return nil
	}
	if r.settings, err = allocator.ParseSettings(r.conf); err != nil {
		return err
	}
	text, err := json.Marshal(r.conf)
	if err != nil {
		return err
	}
	r.b.T.Settings = []traces.Setting{{Key: "PYTORCH_CUDA_ALLOC_CONF", Value: string(text)}}
	r.driver = allocator.NewDriver(r.capacity - r.others)
	r.alloc, err = allocator.NewCaching(allocator.Config{Driver: r.driver, Events: r, Settings: r.settings,
		OnSegment: func(e allocator.SegmentEvent) {
			r.event([...]traces.Action{traces.SegmentAlloc, traces.SegmentFree, traces.SegmentMap,
				traces.SegmentUnmap}[e.Action], e.Addr, e.Size, e.Stream)
		}})
	return err
}

func (r *recorder) event(a traces.Action, addr uint64, size int64, stream allocator.Stream) {
	r.now += 1000
	e := traces.Event{Time: r.now, Addr: addr - shift, Size: size, Stack: r.stack,
		Stream: r.b.Stream(uint64(stream) * 0x3000), Device: r.dev, Action: a}
	if a == traces.OOM {
		free, _ := r.driver.MemInfo()
		e.Addr = uint64(free)
	}
	r.b.Event(e)
}

func (r *recorder) malloc(name string, size int64, stream allocator.Stream) error {
	b, err := r.alloc.Malloc(size, stream)
	if errors.Is(err, allocator.ErrOutOfMemory) {
		r.refused[name] = true
		r.event(traces.OOM, 0, size, stream)
		return nil
	}
	if err != nil {
		return err
	}
	r.event(traces.Alloc, b.Addr, size, stream)
	r.live[name] = b
	return nil
}

func (r *recorder) free(name string, later bool) error {
	b, ok := r.live[name]
	if !ok && r.refused[name] {
		return nil
	}
	if !ok {
		return fmt.Errorf("no block %s", name)
	}
	delete(r.live, name)
	if later {
		if err := r.alloc.RecordStream(b, b.Stream+1); err != nil {
			return err
		}
	}
	r.freeing = b
	r.event(traces.FreeRequested, b.Addr, b.Requested, b.Stream)
	if err := r.alloc.Free(b); err != nil {
		return err
	}
	if !later {
		r.event(traces.FreeCompleted, b.Addr, b.Requested, b.Stream)
	}
	return nil
}

// Record, Done and Wait implement allocator.Events.
func (r *recorder) Record(allocator.Stream) allocator.Event {
	r.owner, r.over = append(r.owner, r.freeing), append(r.over, false)
	return allocator.Event(len(r.over))
}

func (r *recorder) Done(e allocator.Event) bool {
	if int(e) <= r.ready {
		r.Wait(e)
	}
	return r.over[e-1]
}

func (r *recorder) Wait(e allocator.Event) {
	if b := r.owner[e-1]; !r.over[e-1] {
		r.over[e-1] = true
		r.event(traces.FreeCompleted, b.Addr, b.Requested, b.Stream)
	}
}

func (r *recorder) run(line string) error {
	f := strings.Fields(line)
	if len(f) == 0 || f[0] == "#" {
		return nil
	}
	var err error
	switch f[0] {
	case "conf":
		r.conf = f[1]
		return nil
	case "capacity":
		r.capacity, err = bytesOf(f[1])
		return err
	case "others":
		r.others, err = bytesOf(f[1])
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	switch f[0] {
	case "malloc":
		n, err := bytesOf(f[2])
		if err != nil {
			return err
		}
		stream := 0
		if len(f) > 3 {
			if stream, err = strconv.Atoi(strings.TrimPrefix(f[3], "stream=")); err != nil {
				return err
			}
		}
		return r.malloc(f[1], n, allocator.Stream(stream))
	case "free", "later":
		return r.free(f[1], f[0] == "later")
	case "done":
		r.ready = len(r.over)
		r.alloc.ProcessEvents()
	case "empty_cache":
		return r.alloc.EmptyCache()
	case "lose":
		r.lose, err = strconv.Atoi(f[1])
		return err
	case "at":
		frame := traces.Frame{Func: r.b.String(f[1]), File: r.b.String("train.py")}
		r.stack = r.b.Stack([]traces.FrameID{r.b.Frame(frame)})
	case "from":
		return r.grow(f)
	default:
		return fmt.Errorf("no statement %q", f[0])
	}
	return nil
}

func (r *recorder) grow(f []string) error {
	var n [3]int64
	for i := range n {
		var err error
		if n[i], err = bytesOf(strings.TrimSuffix(f[2*i+1], ":")); err != nil {
			return err
		}
	}
	name := f[6]
	for size := n[0]; size <= n[1]; size += n[2] {
		if _, ok := r.live[name]; ok {
			if err := r.free(name, false); err != nil {
				return err
			}
		}
		if err := r.malloc(name, size, 0); err != nil {
			return err
		}
	}
	return nil
}

// trace ends the recording with the final state.
func (r *recorder) trace() *traces.Trace {
	final := &r.b.T.Final
	final.Known = true
	for _, seg := range r.alloc.Segments() {
		s := traces.Segment{
			Address: seg.Addr - shift, TotalSize: seg.Size, Expandable: seg.Expandable, Small: seg.Small,
			Device: r.dev, Stack: traces.NoStack,
			Stream: r.b.Stream(uint64(seg.Stream) * 0x3000), FirstBlock: int32(len(final.Blocks)),
		}
		for _, b := range seg.Blocks {
			state := [...]traces.BlockState{traces.BlockInactive, traces.BlockAllocated,
				traces.BlockPendingFree}[b.State]
			final.Blocks = append(final.Blocks, traces.Block{Address: b.Addr - shift, Size: b.Size,
				Requested: maybe.Known(b.Requested), Stack: traces.NoStack, Count: 1, State: state})
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
	if r.lose == 0 {
		return tr
	}
	b := traces.NewBuilder()
	for _, s := range tr.Streams {
		b.Stream(s)
	}
	b.Device(traces.DeviceGPU, 0)
	b.T.Source, b.T.Settings, b.T.Final = tr.Source, tr.Settings, tr.Final
	for i := r.lose; i < tr.Events.Len(); i++ {
		b.Event(tr.Events.At(i))
	}
	return b.Finish()
}

// record runs a program and returns the device of its recording.
func record(t testing.TB, program string) *timeline.Device {
	t.Helper()
	r := newRecorder()
	for line := range strings.Lines(program) {
		if err := r.run(line); err != nil {
			t.Fatalf("%s: %v", strings.TrimSpace(line), err)
		}
	}
	tl, err := timeline.Build(context.Background(), r.trace(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Devices[0]
}
