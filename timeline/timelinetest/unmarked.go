package timelinetest

import (
	"math/rand"

	"github.com/gmemtop/gmemtop/traces"
)

// Unmarked makes a recording of about n events without marks: steps of 48 layers of seven allocations each,
// saved for backward and freed there, some in changing order; every 40th step is followed by an evaluation.
func Unmarked(n int) *traces.Trace {
	b := traces.NewBuilder()
	rng := rand.New(rand.NewSource(3))
	var stacks [16]traces.StackID
	for i := range stacks {
		f := b.Frame(traces.Frame{Func: b.String("layer"), File: b.String("m.py"), Line: int32(i)})
		stacks[i] = b.Stack([]traces.FrameID{f,
			b.Frame(traces.Frame{Func: b.String("main"), File: b.String("t.py"), Line: 1})})
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
