package viewtest

import (
	"context"
	"fmt"
	"sort"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Training describes a small made-up training for tests. Its figures are fixed, so that goldens are.
type Training struct {
	Iterations int
	Layers     int
	// Odd is the iteration (counted from 1) that allocates a larger batch, 0 for none.
	Odd int
	// Leak keeps a block of every iteration.
	Leak bool
	// OOM ends with a failed allocation.
	OOM bool
	// Expandable makes the allocator map runs of one range of addresses; Pools puts the gradients into a
	// private pool on a stream of its own, where their frees wait.
	Expandable, Pools bool
	// Scale multiplies every size, 1 where 0.
	Scale int64
	Rank  int
	Path  string
	// NoClock and NoSegments make a poorer recording; Losses makes a damaged one.
	NoClock, NoSegments, Losses bool
}

const (
	mib = int64(1) << 20
	kib = int64(1) << 10
)

// Timeline returns the timeline of the training's trace.
func (o Training) Timeline(t testing.TB) *timeline.Timeline {
	t.Helper()
	tl, err := timeline.Build(context.Background(), o.trace(), func(int64, int64) {})
	if err != nil {
		t.Fatalf("build the timeline: %v", err)
	}
	return tl
}

// trace returns the training's trace.
func (o Training) trace() *traces.Trace {
	r := newRecorder(o)
	layers := max(o.Layers, 4)
	scale := max(o.Scale, 1)
	var params []uint64
	for i := range layers {
		params = append(params, r.alloc(4*mib*scale, "__init__", "model.py", 10+i, "nn/modules/linear.py"))
	}
	for it := 1; it <= o.Iterations; it++ {
		start := r.now
		batch := scale
		if it == o.Odd {
			batch *= 2
		}
		input := r.alloc(2*mib*batch, "next_batch", "data.py", 7, "")
		var saved, grads []uint64
		for i := range layers {
			scratch := r.alloc(1*mib*batch+300, "forward", "model.py", 40, "nn/functional.py")
			saved = append(saved, r.alloc(6*mib*batch-100*kib, "forward", "model.py", 41+i,
				"nn/modules/linear.py"))
			r.free(scratch)
		}
		logits := r.alloc(24*mib*batch, "loss", "train.py", 52, "nn/functional.py")
		if o.OOM && it == o.Iterations {
			r.oom(96 * mib * scale)
			break
		}
		for i := layers - 1; i >= 0; i-- {
			grads = append(grads, r.allocOn(o.Pools, 4*mib*scale, "backward", "train.py", 60,
				"autograd/graph.py"))
			r.free(saved[i])
		}
		r.free(logits)
		for range params {
			if it == 1 {
				r.alloc(8*mib*scale, "step", "train.py", 70, "optim/adamw.py")
			}
			r.now += 20_000
		}
		for _, g := range grads {
			r.free(g)
		}
		r.free(input)
		if o.Leak {
			r.alloc(512*kib*scale, "log_loss", "train.py", 75, "")
		}
		r.mark(fmt.Sprintf("ProfilerStep#%d", it), start)
		r.now += 100_000
	}
	return r.finish()
}

// recorder is a caching allocator small enough to read: best fit within segments, splitting and merging.
type recorder struct {
	o      Training
	b      *traces.Builder
	device traces.DeviceID
	now    int64
	next   uint64
	stream traces.StreamID
	segs   []*segment
}

type segment struct {
	addr   uint64
	size   int64
	side   bool // the side stream's private pool
	blocks []piece
	stack  traces.StackID
}

type piece struct {
	addr      uint64
	size      int64
	requested int64
	used      bool
	stack     traces.StackID
}

func newRecorder(o Training) *recorder {
	r := &recorder{o: o, b: traces.NewBuilder(), next: 0x7f0000000000}
	r.device = r.b.Device(traces.DeviceGPU, 0)
	r.b.T.Devices[r.device].TotalBytes = 256 * mib * max(o.Scale, 1)
	r.b.T.Source = traces.Source{Format: "torch_snapshot", Path: "snapshot.pickle", Bytes: 123_456}
	if o.Path != "" {
		r.b.T.Source.Path = o.Path
	}
	r.b.T.Process = traces.Process{Host: "node1", PID: maybe.Known(4242),
		Rank: maybe.Known(int64(o.Rank)), WorldSize: maybe.Known(8)}
	r.b.T.Clock = traces.Clock{Epoch: 1_700_000_000_000_000_000, Resolution: 1000, HasTime: !o.NoClock}
	r.b.T.Settings = []traces.Setting{{Key: "expandable_segments", Value: fmt.Sprint(o.Expandable)},
		{Key: "max_split_size", Value: "-1"}}
	if o.Pools {
		r.stream = r.b.Stream(0x55aa00)
	}
	return r
}

func (r *recorder) stack(fn, file string, line int, library string) traces.StackID {
	var ids []traces.FrameID
	frame := func(fn, file string, line int) {
		ids = append(ids, r.b.Frame(traces.Frame{File: r.b.String(file), Func: r.b.String(fn),
			Line: int32(line)}))
	}
	if library != "" {
		frame("forward", "/usr/lib/python3/site-packages/torch/"+library, 100)
		if library == "optim/adamw.py" {
			ids = ids[:0]
			frame("_init_group", "/usr/lib/python3/site-packages/torch/optim/adamw.py", 120)
			frame("step", "/usr/lib/python3/site-packages/torch/optim/adamw.py", 220)
		}
	}
	frame(fn, "/home/user/run/"+file, line)
	frame("main", "/home/user/run/train.py", 99)
	return r.b.Stack(ids)
}

func (r *recorder) event(a traces.Action, addr uint64, size int64, side bool, stack traces.StackID) {
	r.now += 5_000
	e := traces.Event{Time: r.now, Addr: addr, Size: size, Stack: stack, Device: r.device, Action: a}
	if side {
		e.Stream = r.stream
		e.Detail = r.b.Detail(traces.Detail{Pool: traces.Pool{Second: 1}, HasPool: true,
			ForwardStack: traces.NoStack})
	}
	if r.o.NoClock {
		e.Time = int64(r.b.T.Events.Len())
	}
	r.b.Event(e)
}

func (r *recorder) alloc(size int64, fn, file string, line int, library string) uint64 {
	return r.allocOn(false, size, fn, file, line, library)
}

func (r *recorder) allocOn(side bool, size int64, fn, file string, line int, library string) uint64 {
	stack := r.stack(fn, file, line, library)
	rounded := (size + 511) / 512 * 512
	seg, at := r.fit(side, rounded)
	if seg == nil {
		seg, at = r.grow(side, rounded, stack), 0
	}
	if seg.blocks[at].used {
		at = len(seg.blocks) - 1
	}
	b := seg.blocks[at]
	used := piece{b.addr, rounded, size, true, stack}
	seg.blocks[at] = used
	if rest := b.size - rounded; rest > 0 {
		seg.blocks = append(seg.blocks[:at+1], append([]piece{{addr: b.addr + uint64(rounded), size: rest}},
			seg.blocks[at+1:]...)...)
	}
	r.event(traces.Alloc, used.addr, size, side, stack)
	return used.addr
}

// fit returns the smallest hole that holds size, nil if there is none.
func (r *recorder) fit(side bool, size int64) (best *segment, at int) {
	room := int64(1) << 62
	for _, s := range r.segs {
		if s.side != side {
			continue
		}
		for i, b := range s.blocks {
			if !b.used && b.size >= size && b.size < room {
				best, at, room = s, i, b.size
			}
		}
	}
	return best, at
}

// grow gets a segment from the driver, or maps another run of the expandable one.
func (r *recorder) grow(side bool, size int64, stack traces.StackID) *segment {
	bytes := (size + 2*mib - 1) / (2 * mib) * 2 * mib
	if !r.o.Expandable {
		bytes = max(bytes, 20*mib)
	}
	action := traces.SegmentAlloc
	if r.o.Expandable {
		action = traces.SegmentMap
	}
	s := &segment{addr: r.next, size: bytes, side: side, stack: stack,
		blocks: []piece{{addr: r.next, size: bytes}}}
	r.next += uint64(bytes)
	if !r.o.Expandable {
		r.next += uint64(64 * mib)
	} else if len(r.segs)%3 == 2 {
		r.next += uint64(4 * mib) // an unmapped run in between
	}
	r.segs = append(r.segs, s)
	r.event(action, s.addr, bytes, side, stack)
	return s
}

func (r *recorder) free(addr uint64) {
	for _, s := range r.segs {
		for i, b := range s.blocks {
			if b.addr != addr || !b.used {
				continue
			}
			r.event(traces.FreeRequested, addr, b.requested, s.side, b.stack)
			if s.side {
				r.now += 40_000
			}
			r.event(traces.FreeCompleted, addr, b.requested, s.side, b.stack)
			s.blocks[i] = piece{addr: b.addr, size: b.size}
			s.merge()
			return
		}
	}
}

func (s *segment) merge() {
	out := s.blocks[:0]
	for _, b := range s.blocks {
		if n := len(out); n > 0 && !out[n-1].used && !b.used {
			out[n-1].size += b.size
			continue
		}
		out = append(out, b)
	}
	s.blocks = out
}

func (r *recorder) oom(size int64) {
	stack := r.stack("loss", "train.py", 53, "nn/functional.py")
	r.now += 5_000
	r.b.Event(traces.Event{Time: r.now, Addr: uint64(8 * mib), Size: size, Stack: stack, Device: r.device,
		Action: traces.OOM})
}

func (r *recorder) mark(name string, start int64) {
	if r.o.NoClock {
		return
	}
	r.b.T.Marks = append(r.b.T.Marks, traces.Mark{
		Start: start, End: r.now + 1, Name: r.b.String(name), Kind: traces.MarkIteration, Device: r.device,
	})
}

func (r *recorder) finish() *traces.Trace {
	if r.o.Losses {
		r.b.Lose("trace_alloc_overflowed", traces.DataLoss, 1200,
			"the ring buffer was full: raise max_entries")
		r.b.Lose("unknown_action", traces.Info, 3, "kept as they are")
		r.b.T.Extra = []traces.Setting{{Key: "vendor", Value: `{"name":"x"}`}}
	}
	if r.o.NoSegments {
		return r.b.Finish()
	}
	sort.Slice(r.segs, func(i, j int) bool { return r.segs[i].addr < r.segs[j].addr })
	f := &r.b.T.Final
	f.Known = true
	for _, s := range r.segs {
		seg := traces.Segment{
			Address: s.addr, TotalSize: s.size, FirstBlock: int32(len(f.Blocks)), Device: r.device,
			Stack:      s.stack,
			Expandable: r.o.Expandable, HasPool: true,
		}
		if s.side {
			seg.Stream, seg.Pool = r.stream, traces.Pool{Second: 1}
		}
		for _, b := range s.blocks {
			block := traces.Block{Address: b.addr, Size: b.size, Requested: maybe.Known(b.requested),
				Stack: b.stack, Count: 1}
			if b.used {
				block.State = traces.BlockAllocated
				seg.AllocatedSize += b.size
				seg.ActiveSize += b.size
				seg.Wanted += b.requested
			} else {
				block.Stack = traces.NoStack
			}
			f.Blocks = append(f.Blocks, block)
		}
		seg.EndBlock = int32(len(f.Blocks))
		f.Segments = append(f.Segments, seg)
	}
	return r.b.Finish()
}
