package timeline

import (
	"context"
	"math/rand"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// unmarkedTrace makes a recording of about n events without marks: steps of 48 layers of seven allocations,
// saved for backward and freed there, some freed in an order that changes; every 40th step evaluates in
// between.
func unmarkedTrace(n int) *traces.Trace {
	b := traces.NewBuilder()
	rng := rand.New(rand.NewSource(3))
	var stacks [16]traces.StackID
	for i := range stacks {
		f := b.Frame(traces.Frame{Func: b.String("layer"), File: b.String("m.py"), Line: int32(i)})
		stacks[i] = b.Stack([]traces.FrameID{f, b.Frame(traces.Frame{Func: b.String("main"), File: b.String("t.py"), Line: 1})})
	}
	dev := b.Device(traces.DeviceGPU, 0)
	now, next := int64(0), uint64(1<<32)
	emit := func(a traces.Action, addr uint64, size int64, st traces.StackID) {
		now += 1000
		b.Event(traces.Event{Time: now, Addr: addr, Size: size, Stack: st, Device: dev, Action: a})
	}
	type block struct {
		addr uint64
		size int64
		st   traces.StackID
	}
	alloc := func(size int64, s int) block {
		x := block{next, size, stacks[s]}
		next += uint64(size)
		emit(traces.Alloc, x.addr, size, x.st)
		return x
	}
	free := func(x block) {
		emit(traces.FreeRequested, x.addr, x.size, x.st)
		emit(traces.FreeCompleted, x.addr, x.size, x.st)
	}
	for step := 0; b.T.Events.Len() < n; step++ {
		var saved []block
		for range 48 {
			for k := range 5 {
				saved = append(saved, alloc(int64(1+k)<<16, k))
			}
			free(alloc(1<<20, 5))
			free(alloc(1<<19, 6))
		}
		head := alloc(1<<24, 7)
		if step%40 == 20 {
			for range 10 {
				free(alloc(1<<21, 8))
			}
		}
		for i := len(saved) - 1; i > 1; i -= 2 {
			g := alloc(saved[i].size, 9)
			if rng.Intn(2) == 0 {
				saved[i], saved[i-1] = saved[i-1], saved[i]
			}
			free(saved[i])
			free(saved[i-1])
			free(g)
		}
		free(saved[1])
		free(saved[0])
		free(head)
	}
	return b.Finish()
}

func TestIterationsOfAMillionEventsAreAllFoundAlthoughFreesMove(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: it builds a million events")
	}
	d := builtDevice(t, unmarkedTrace(1_000_000))
	it := d.Iterations()
	odd, blocks := 0, 0
	for _, x := range it.List {
		if x.Odd {
			odd++
		}
		blocks += x.Blocks
	}
	// 457 allocations a step: 48*7 + 1 + 120; ten more in every fortieth.
	if it.Source != FromPeriodicity || blocks != d.Allocs.Len() {
		t.Fatalf("%v: %d allocations of %d are in iterations", it.Source, blocks, d.Allocs.Len())
	}
	steps := len(it.List)
	if want := (steps + 19) / 40; odd != want {
		t.Errorf("%d odd iterations of %d, want %d", odd, steps, want)
	}
	if it.Steady != 0 || it.Differs != 20 || it.Trend.Leaking {
		t.Errorf("steady from %d, differs at %d, trend %+v", it.Steady, it.Differs, it.Trend)
	}
}

func BenchmarkIterationsOfAMillionEvents(b *testing.B) {
	tl, err := Build(context.Background(), unmarkedTrace(1_000_000), nil)
	if err != nil {
		b.Fatal(err)
	}
	d := tl.Main()
	b.ReportAllocs()
	b.ReportMetric(float64(d.Len()), "events")
	for b.Loop() {
		if it := d.findIterations(); it.Source != FromPeriodicity {
			b.Fatal(it.Source)
		}
	}
}

func BenchmarkPhasesOfAMillionEvents(b *testing.B) {
	tl, err := Build(context.Background(), unmarkedTrace(1_000_000), nil)
	if err != nil {
		b.Fatal(err)
	}
	d := tl.Main()
	for b.Loop() {
		d.findPhases()
	}
}

func BenchmarkAutopsyOfAMillionEvents(b *testing.B) {
	tl, err := Build(context.Background(), unmarkedTrace(1_000_000), nil)
	if err != nil {
		b.Fatal(err)
	}
	d := tl.Main()
	for b.Loop() {
		if _, err := d.Autopsy(context.Background(), IEC); err != nil {
			b.Fatal(err)
		}
	}
}
