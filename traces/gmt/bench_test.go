package gmt

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// trainingTrace synthesises n events of a training run: each iteration allocates and frees blocks of a few
// sizes at addresses that mostly repeat, from some hundred stacks of about thirty frames; clock is its
// resolution in nanoseconds.
func trainingTrace(n int, clock int64) *traces.Trace {
	r := rand.New(rand.NewPCG(1, 2))
	b := traces.NewBuilder()
	b.T.Source.Format = "gmt"
	dev := b.Device(traces.DeviceGPU, 0)
	var frames []traces.FrameID
	for i := range 600 {
		file := b.String("/opt/venv/lib/python3.11/site-packages/torch/nn/modules/file_" +
			string(rune('a'+i%26)) + ".py")
		fn := b.String("fn_" + string(rune('a'+i%25)) + string(rune('a'+i/25)))
		frames = append(frames, b.Frame(traces.Frame{File: file, Func: fn, Line: int32(r.IntN(2000))}))
	}
	var stacks []traces.StackID
	for range 430 {
		ids := make([]traces.FrameID, 20+r.IntN(20))
		for j := range ids {
			ids[j] = frames[(j*17+r.IntN(3))%len(frames)]
		}
		stacks = append(stacks, b.Stack(ids))
	}
	b.T.Events.Grow(n)
	type live struct {
		addr  uint64
		size  int64
		stack traces.StackID
	}
	var held []live
	now := int64(1_700_000_000_000_000)
	for i := 0; i < n; {
		now += clock * (1 + r.Int64N(40))
		if len(held) > 0 && (len(held) > 400 || r.IntN(2) == 0) {
			k := len(held) - 1 - r.IntN(min(8, len(held)))
			h := held[k]
			held = append(held[:k], held[k+1:]...)
			for _, a := range []traces.Action{traces.FreeRequested, traces.FreeCompleted} {
				b.Event(traces.Event{Time: now, Addr: h.addr, Size: h.size, Stack: traces.NoStack,
					Device: dev, Action: a})
				i++
			}
			continue
		}
		h := live{0x7f00_0000_0000 + uint64(r.IntN(480))<<21, 512 << r.IntN(16), stacks[r.IntN(len(stacks))]}
		held = append(held, h)
		b.Event(traces.Event{Time: now, Addr: h.addr, Size: h.size, Stack: h.stack, Device: dev,
			Action: traces.Alloc})
		i++
	}
	return b.Finish()
}

func BenchmarkWrite1M(b *testing.B) {
	tr := trainingTrace(1_000_000, 1000)
	var buf bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		buf.Reset()
		if err := Write(context.Background(), &buf, tr); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(buf.Len())/float64(tr.Events.Len()), "B/event")
}

func BenchmarkRead1M(b *testing.B) {
	tr := trainingTrace(1_000_000, 1000)
	data := written(b, tr)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(context.Background(), bytes.NewReader(data), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(data))/float64(tr.Events.Len()), "B/event")
}

func BenchmarkRecord(b *testing.B) {
	tr := trainingTrace(1_000_000, 1)
	b.ReportAllocs()
	for b.Loop() {
		w, err := NewWriter(io.Discard, tr.Source, tr.Process, tr.Clock)
		if err != nil {
			b.Fatal(err)
		}
		w.Device(tr.Devices[0])
		for i := range tr.Events.Len() {
			e := tr.Events.At(i)
			e.Stack = traces.NoStack
			w.Event(e)
		}
		if err := w.Close(traces.State{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(tr.Events.Len())*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
