package timeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// trainingTrace makes about n events of a training run: 96 parameters that live throughout, then iterations
// of 48 layers with six temporaries each, activations that the backward pass frees in reverse order, and
// occasional segment events.
func trainingTrace(n int) *traces.Trace {
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	b.T.Events.Grow(n + 4096)
	rng := rand.New(rand.NewPCG(7, 7))
	var stacks []traces.StackID
	for i := range 500 {
		frames := []traces.FrameID{
			b.Frame(traces.Frame{Func: b.String("forward"),
				File: b.String(fmt.Sprintf("/x/layer%d.py", i%40)), Line: int32(i)}),
			b.Frame(traces.Frame{Func: b.String("train"), File: b.String("/x/train.py"), Line: 9}),
		}
		if i%3 == 0 {
			frames[0] = b.Frame(traces.Frame{Func: b.String("torch::autograd::Engine::thread_main(int)"),
				Line: int32(i)})
		}
		stacks = append(stacks, b.Stack(frames))
	}
	next, now := uint64(0x7f0000000000), int64(0)
	free := map[int64][]uint64{}
	emit := func(a traces.Action, addr uint64, size int64, st traces.StackID) {
		now += 1 + rng.Int64N(9000)
		b.Event(traces.Event{Time: now, Addr: addr, Size: size, Stack: st, Action: a, Device: dev})
	}
	type block struct {
		addr uint64
		size int64
		st   traces.StackID
	}
	var segments []block
	alloc := func(size int64, st traces.StackID) block {
		r := (size + 511) &^ 511
		var addr uint64
		if l := free[r]; len(l) > 0 {
			addr, free[r] = l[len(l)-1], l[:len(l)-1]
		} else {
			emit(traces.SegmentAlloc, next, r, st)
			segments = append(segments, block{next, r, st})
			addr, next = next, next+uint64(r)
		}
		emit(traces.Alloc, addr, size, st)
		return block{addr, size, st}
	}
	release := func(x block) {
		emit(traces.FreeRequested, x.addr, x.size, x.st)
		emit(traces.FreeCompleted, x.addr, x.size, x.st)
		r := (x.size + 511) &^ 511
		free[r] = append(free[r], x.addr)
	}
	parameters := map[uint64]int64{}
	for i := range 96 {
		p := alloc(1<<16+rng.Int64N(1<<24), stacks[i])
		parameters[p.addr] = p.size
	}
	for b.T.Events.Len() < n {
		var saved []block
		for l := range 48 {
			for t := range 6 {
				release(alloc(int64(512*(1+l*6+t)*37), stacks[(l*31+t)%500]))
			}
			saved = append(saved, alloc(int64(1<<20*(l+1)), stacks[(l*17)%500]))
		}
		for l := 47; l >= 0; l-- {
			grad := alloc(int64(1<<20*(l+1)), stacks[(l*39)%500])
			release(saved[l])
			release(grad)
		}
	}
	st := &b.T.Final
	st.Known = true
	for i, s := range segments {
		blk := traces.Block{Address: s.addr, Size: s.size, Stack: s.st, Count: 1}
		if size, ok := parameters[s.addr]; ok {
			blk.State, blk.Requested = traces.BlockAllocated, maybe.Known(size)
		}
		st.Blocks = append(st.Blocks, blk)
		st.Segments = append(st.Segments, traces.Segment{
			Address: s.addr, TotalSize: s.size, FirstBlock: int32(i), EndBlock: int32(i + 1), Device: dev,
			Stack: s.st,
		})
	}
	return b.Finish()
}

// crowdedTrace makes n events that leave thousands of small blocks alive at any time.
func crowdedTrace(n, alive int) *traces.Trace {
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	rng := rand.New(rand.NewPCG(5, 5))
	b.T.Events.Grow(n)
	live, next := []uint64{}, uint64(1<<30)
	for i := range n {
		e := traces.Event{Time: int64(i) * 1000, Size: 4096, Stack: traces.NoStack, Action: traces.Alloc,
			Device: dev}
		if len(live) > alive || len(live) > alive/2 && rng.IntN(2) == 0 {
			k := rng.IntN(len(live))
			e.Action, e.Addr = traces.Free, live[k]
			live[k] = live[len(live)-1]
			live = live[:len(live)-1]
		} else {
			e.Addr, next = next, next+4096
			live = append(live, e.Addr)
		}
		b.Event(e)
	}
	return b.Finish()
}

var (
	million    = sync.OnceValue(func() *traces.Trace { return trainingTrace(1_000_000) })
	tenMillion = sync.OnceValue(func() *traces.Trace { return trainingTrace(10_000_000) })
	bigDevice  = sync.OnceValue(func() *timeline.Device { return mustBuild(tenMillion()) })
	crowd      = sync.OnceValue(func() *timeline.Device { return mustBuild(crowdedTrace(1_000_000, 5000)) })
)

func mustBuild(tr *traces.Trace) *timeline.Device {
	tl, err := timeline.Build(context.Background(), tr, nil)
	if err != nil {
		panic(err)
	}
	return tl.Devices[0]
}

func benchmarkBuild(b *testing.B, tr *traces.Trace) {
	b.ReportAllocs()
	for b.Loop() {
		mustBuild(tr)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(tr.Events.Len()), "ns/event")
}

func BenchmarkBuild1M(b *testing.B)  { benchmarkBuild(b, million()) }
func BenchmarkBuild10M(b *testing.B) { benchmarkBuild(b, tenMillion()) }

// zooms are windows of a recording: all of it, a thousandth and a hundred-thousandth around its middle.
func zooms(d *timeline.Device) map[string]timeline.Window {
	full := d.Full(timeline.AxisTime)
	out := map[string]timeline.Window{}
	for name, part := range map[string]int64{"all": 1, "thousandth": 1000, "hundredthousandth": 100_000} {
		width := max((full.To-full.From)/part, 1)
		from := full.From + (full.To-full.From-width)/2
		out[name] = timeline.Window{timeline.AxisTime, from, from + width}
	}
	return out
}

func BenchmarkColumns240Of10M(b *testing.B) {
	d := bigDevice()
	for name, w := range zooms(d) {
		b.Run(name, func(b *testing.B) {
			var dst []timeline.Column
			for b.Loop() {
				dst = d.Columns(d.Allocated, w, 240, dst[:0])
			}
		})
	}
}

func BenchmarkCategoryColumns240Of10M(b *testing.B) {
	d := bigDevice()
	if _, err := timeline.CategoryColumns(context.Background(), d, d.Full(timeline.AxisTime),
		1); err != nil { // computed once, outside the timing
		b.Fatal(err)
	}
	for name, w := range zooms(d) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := timeline.CategoryColumns(context.Background(), d, w, 240); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBands240(b *testing.B) {
	for name, d := range map[string]*timeline.Device{"10M": bigDevice(), "crowd5000": crowd()} {
		for zoom, w := range zooms(d) {
			b.Run(name+"/"+zoom, func(b *testing.B) {
				least := d.Totals.PeakAllocated / 200
				for b.Loop() {
					if _, err := timeline.Bands(context.Background(), d, w, 240, least); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkLiveAt(b *testing.B) {
	for name, d := range map[string]*timeline.Device{"10M": bigDevice(), "crowd5000": crowd()} {
		b.Run(name, func(b *testing.B) {
			var dst []timeline.AllocID
			rng := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				dst = d.LiveAt(randomMoment(rng, d), dst[:0])
			}
			b.ReportMetric(float64(len(dst)), "alive")
		})
	}
}

func BenchmarkBreakdown10M(b *testing.B) {
	d := bigDevice()
	for by := range sites.NumBy {
		b.Run(by.String(), func(b *testing.B) {
			for b.Loop() {
				sites.Breakdown(d, d.Totals.PeakAt, by)
			}
		})
	}
}

func BenchmarkStateAt10M(b *testing.B) {
	d := bigDevice()
	for b.Loop() {
		if _, err := timeline.StateAt(context.Background(), d, d.Totals.PeakAt); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSearch10M(b *testing.B) {
	d := bigDevice()
	for _, text := range []string{"layer7 size>1MiB", "sort:-size", "size>1MiB sort:life"} {
		b.Run(text, func(b *testing.B) {
			q, err := sites.ParseQuery(text)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := sites.Search(context.Background(), d, q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
