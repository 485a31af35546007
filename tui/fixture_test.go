package tui

import (
	"context"
	"fmt"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// maker writes a small training run event by event.
type maker struct {
	b    *traces.Builder
	dev  traces.DeviceID
	now  int64
	next uint64
	live map[uint64]int64
}

func newMaker() *maker {
	b := traces.NewBuilder()
	b.T.Source = traces.Source{Format: "gmt", Path: "runs/train.gmt", Bytes: 4096}
	b.T.Process = traces.Process{Host: "node", PID: maybe.Known(7), Rank: maybe.Known(0),
		WorldSize: maybe.Known(1)}
	m := &maker{b: b, dev: b.Device(traces.DeviceGPU, 0), next: 0x7f0000000000, live: map[uint64]int64{}}
	b.T.Devices[m.dev].Name, b.T.Devices[m.dev].TotalBytes = "H100", 80<<30
	return m
}

// stack interns a stack of places "func file:line", innermost first.
func (m *maker) stack(places ...string) traces.StackID {
	var ids []traces.FrameID
	for _, p := range places {
		var fn, file string
		var line int
		if _, err := fmt.Sscanf(p, "%s %s %d", &fn, &file, &line); err != nil {
			panic(err)
		}
		ids = append(ids, m.b.Frame(traces.Frame{Func: m.b.String(fn), File: m.b.String(file),
			Line: int32(line)}))
	}
	return m.b.Stack(ids)
}

func (m *maker) alloc(size int64, cat string, stack traces.StackID) uint64 {
	addr := m.place(size)
	m.now += 1000
	d := traces.Detail{ForwardStack: traces.NoStack}
	if cat != "" {
		d.Category = m.b.String(cat)
	}
	m.b.Event(traces.Event{Time: m.now, Addr: addr, Size: size, Stack: stack, Device: m.dev,
		Action: traces.Alloc, Detail: m.b.Detail(d)})
	m.live[addr] = size
	return addr
}

// place returns the lowest address at which size bytes are free.
func (m *maker) place(size int64) uint64 {
	at := m.next
	for moved := true; moved; {
		moved = false
		for a, n := range m.live {
			if at < a+uint64(n) && a < at+uint64(size) {
				at, moved = a+uint64(n+511)&^511, true
			}
		}
	}
	return at
}

func (m *maker) free(addr uint64) {
	for _, a := range []traces.Action{traces.FreeRequested, traces.FreeCompleted} {
		m.now += 500
		m.b.Event(traces.Event{Time: m.now, Addr: addr, Size: m.live[addr], Stack: traces.NoStack,
			Device: m.dev, Action: a})
	}
	delete(m.live, addr)
}

func (m *maker) segment(addr uint64, size int64) {
	m.now += 1000
	m.b.Event(traces.Event{Time: m.now, Addr: addr, Size: size, Stack: traces.NoStack, Device: m.dev,
		Action: traces.SegmentAlloc})
}

func (m *maker) build(tb testing.TB) *timeline.Timeline {
	tb.Helper()
	t, err := timeline.Build(context.Background(), m.b.Finish(), nil)
	if err != nil {
		tb.Fatalf("build the timeline: %v", err)
	}
	return t
}

// training is three marked iterations of four layers. With extra bytes, the second iteration's first layer
// holds that much more.
func training(tb testing.TB, path string, extra int64) *timeline.Timeline {
	m := newMaker()
	m.b.T.Source.Path = path
	const mib = 1 << 20
	m.segment(m.next, 448*mib+extra)
	module := "_call_impl torch/nn/modules/module.py 1773"
	for layer := range 4 {
		m.alloc(16*mib, "PARAMETER", m.stack(fmt.Sprintf("__init__ model.py %d", 10+layer),
			"main train.py 5"))
	}
	for it := range 3 {
		start := m.now + 1
		var saved []uint64
		for layer := range 4 {
			size := int64(64+layer*8) * mib
			if it == 1 && layer == 0 {
				size += extra
			}
			saved = append(saved, m.alloc(size, "ACTIVATION",
				m.stack(fmt.Sprintf("forward model.py %d", 30+layer), module, "step train.py 22",
					"main train.py 40")))
			m.free(m.alloc(12*mib, "TEMPORARY", m.stack("softmax model.py 51", module, "step train.py 22",
				"main train.py 40")))
			m.now += 2e6
		}
		mid := m.now + 1
		var grads []uint64
		for i := len(saved) - 1; i >= 0; i-- {
			grads = append(grads, m.alloc(16*mib, "GRADIENT",
				m.stack("backward torch/autograd/__init__.py 200", "step train.py 25", "main train.py 40")))
			m.free(saved[i])
			m.now += 3e6
		}
		opt := m.now + 1
		for _, g := range grads {
			m.free(g)
		}
		m.now += 1e6
		m.mark(traces.MarkIteration, traces.PhaseUnknown, fmt.Sprintf("iteration %d", it+1), start, m.now)
		m.mark(traces.MarkPhase, traces.PhaseForward, "forward", start, mid)
		m.mark(traces.MarkPhase, traces.PhaseBackward, "backward", mid, opt)
		m.mark(traces.MarkPhase, traces.PhaseOptimizer, "optimizer", opt, m.now)
	}
	return m.build(tb)
}

func (m *maker) mark(k traces.MarkKind, p traces.Phase, name string, from, to int64) {
	m.b.T.Marks = append(m.b.T.Marks, traces.Mark{Start: from, End: to, Name: m.b.String(name), Kind: k,
		Phase: p, Device: m.dev})
}

// lossy is the training with events lost.
func lossy(tb testing.TB) *timeline.Timeline {
	m := newMaker()
	a := m.alloc(3<<30, "", traces.NoStack)
	m.alloc(1<<20, "", traces.NoStack)
	m.free(a)
	m.free(0xdead0000)
	m.b.Lose("events_overwritten", traces.DataLoss, 1204,
		"the recorder's ring was full and its oldest events are gone")
	return m.build(tb)
}

// moment is a recording of segments and blocks without events.
func moment(tb testing.TB) *timeline.Timeline { return momentOf(newMaker()).build(tb) }

// momentOf adds the state of one moment.
func momentOf(m *maker) *maker {
	m.b.T.Final = traces.State{
		Known: true,
		Segments: []traces.Segment{{Address: 0x1000, TotalSize: 2 << 20, AllocatedSize: 1 << 20,
			ActiveSize: 1 << 20, Wanted: 1 << 20, EndBlock: 2, Stack: traces.NoStack}},
		Blocks: []traces.Block{
			{Address: 0x1000, Size: 1 << 20, Requested: maybe.Known(1 << 20),
				Stack: m.stack("forward model.py 30"), Count: 1, State: traces.BlockAllocated},
			{Address: 0x101000, Size: 1 << 20, Stack: traces.NoStack, Count: 1},
		},
	}
	return m
}

// weights is a recording of one moment: weights that one line allocated, called from two others.
func weights(tb testing.TB) *timeline.Timeline {
	m := newMaker()
	const size, block = 64 << 20, 8 << 20
	m.b.T.Source.Path = "runs/weights.pickle"
	m.b.T.Final = traces.State{Known: true, Segments: []traces.Segment{{Address: 0x7f0000000000,
		TotalSize: size, AllocatedSize: size, ActiveSize: size, Wanted: size, EndBlock: size / block,
		Stack: traces.NoStack}}}
	for i := range size / block {
		caller := "attention model.py 41"
		if i%3 == 2 {
			caller = "mlp model.py 57"
		}
		m.b.T.Final.Blocks = append(m.b.T.Final.Blocks, traces.Block{
			Address: 0x7f0000000000 + uint64(i*block), Size: block, Requested: maybe.Known(block), Count: 1,
			State: traces.BlockAllocated,
			Stack: m.stack("load weights.py 12", caller, "build model.py 80", "main serve.py 9")})
	}
	return m.build(tb)
}

// empty is a recording without any device.
func empty(tb testing.TB) *timeline.Timeline {
	b := traces.NewBuilder()
	b.T.Source.Path = "empty.gmt"
	t, err := timeline.Build(context.Background(), b.Finish(), nil)
	if err != nil {
		tb.Fatalf("build the timeline: %v", err)
	}
	return t
}

// twoDevices is the training with pinned host memory, and a stack whose innermost file is on this machine.
func twoDevices(tb testing.TB) *timeline.Timeline {
	m := newMaker()
	m.b.T.Source.Path = "runs/two.gmt"
	here := m.stack("forward fixture_test.py 12", "main train.py 40")
	for it := range 3 {
		start := m.now + 1
		a := m.alloc(64<<20, "ACTIVATION", here)
		b := m.alloc(32<<20, "ACTIVATION", here)
		m.now += 1e6
		m.free(a)
		m.free(b)
		m.mark(traces.MarkIteration, traces.PhaseUnknown, fmt.Sprintf("iteration %d", it+1), start, m.now)
	}
	gpu := m.dev
	m.dev = m.b.Device(traces.DeviceHost, 0)
	m.alloc(1<<20, "", traces.NoStack)
	m.dev = gpu
	return m.build(tb)
}

// nineRanks is a run of the training, in which the last rank holds more and one cannot be read.
func nineRanks(tb testing.TB) *runs.Run {
	tb.Helper()
	var ranks []runs.RankSummary
	for i := range 9 {
		tl := training(tb, fmt.Sprintf("runs/rank%d.gmt", i), int64(i/8)<<30)
		from, to := tl.Main().Span()
		r, err := runs.Summarise(tb.Context(), tl, from, to, 100)
		if err != nil {
			tb.Fatal(err)
		}
		r.Rank, r.Path = maybe.Known(int64(i)), tl.Trace.Source.Path
		ranks = append(ranks, r)
	}
	ranks[3].Err = errDamaged
	return runs.Build(ranks)
}
