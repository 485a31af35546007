package gmt

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// randomTrace returns a trace in which every table and every field is used. The same seed gives the same
// trace.
func randomTrace(seed uint64, events int) *traces.Trace {
	r := rand.New(rand.NewPCG(seed, 1))
	b := traces.NewBuilder()
	t := &b.T
	t.Source = traces.Source{Format: "torch_snapshot", Path: "a\xffb=\U0010FE41", Bytes: 1 << 40,
		Tool: "torch 2.9", SyntheticAddresses: seed%2 == 0}
	t.Process = traces.Process{Host: "n\xc3(01", PID: maybe.Known(123456789012),
		Rank: maybe.Known(3), WorldSize: maybe.Known(8)}
	t.Clock = traces.Clock{Epoch: 1_700_000_000_000_000_000, Resolution: 1000, HasTime: true}
	stacks := internRandom(r, b)
	devices := []traces.DeviceID{b.Device(traces.DeviceGPU, 0), b.Device(traces.DeviceHost, 0),
		b.Device(traces.DeviceGPU, 5)}
	t.Devices[0].Name, t.Devices[0].TotalBytes = "NVIDIA \xff H200", 150_000_000_000
	streams := []traces.StreamID{0, b.Stream(math.MaxUint64), b.Stream(0x7fff_0000_1234)}
	now := int64(0)
	for range events {
		now += r.Int64N(2000) - 3
		e := traces.Event{Time: now, Addr: r.Uint64(), Size: r.Int64() - math.MaxInt64/2,
			Stack: stacks[r.IntN(len(stacks))], Stream: streams[r.IntN(3)], Device: devices[r.IntN(3)],
			Action: traces.Action(r.IntN(12))}
		if r.IntN(10) == 0 {
			e.Detail = traces.DetailID(r.IntN(len(t.Details)))
		}
		b.Event(e)
	}
	work(r, b, stacks, int32(events))
	state(r, b, stacks)
	t.Settings = []traces.Setting{{Key: "a=b", Value: `{"x": [1, 2]}`}, {Key: "", Value: ""},
		{Key: "k\xfe", Value: "\xff\xfe"}}
	t.Extra = []traces.Setting{{Key: "unknown", Value: `"\u2028"`}}
	b.Lose("ring_wrapped", traces.DataLoss, 7, "the ring: it wrapped")
	b.Lose("odd: name", traces.Fault, math.MinInt64, "")
	return b.Finish()
}

// internRandom fills the interned tables and returns stacks to choose from, NoStack among them.
func internRandom(r *rand.Rand, b *traces.Builder) []traces.StackID {
	words := []string{"", "forward", "a/b c.py", "\xff\xff", "новый\tфайл", "\U0010FE00", "x;y\n\x00"}
	for i := range 50 {
		words = append(words, fmt.Sprintf("fn_%d", i))
	}
	str := func() traces.StringID { return b.String(words[r.IntN(len(words))]) }
	var frames []traces.FrameID
	for range 60 {
		frames = append(frames, b.Frame(traces.Frame{File: str(), Func: str(), Line: int32(r.Uint32()),
			Extra: str()}))
	}
	stacks := []traces.StackID{traces.NoStack}
	for range 40 {
		ids := make([]traces.FrameID, r.IntN(30))
		for i := range ids {
			ids[i] = frames[r.IntN(len(frames))]
		}
		stacks = append(stacks, b.Stack(ids))
	}
	for range 20 {
		b.Detail(traces.Detail{Action: str(), CompileContext: str(), UserMetadata: str(), Category: str(),
			Op: str(), Extra: str(), Pool: traces.Pool{First: r.Int64() - r.Int64(),
				Second: int64(r.IntN(3))}, HasPool: r.IntN(2) == 0,
			ForwardStack: stacks[r.IntN(len(stacks))]})
	}
	return stacks
}

// work adds ops, accesses, marks and counters.
func work(r *rand.Rand, b *traces.Builder, stacks []traces.StackID, events int32) {
	t := &b.T
	for i := range int(events / 3) {
		t.Ops = append(t.Ops, traces.Op{Start: int64(i) * 100, Duration: r.Int64N(1000) - 1,
			Name: traces.StringID(r.IntN(len(t.Strings))), Module: traces.StringID(r.IntN(len(t.Strings))),
			Stack: stacks[r.IntN(len(stacks))], Parent: traces.OpID(r.IntN(i+1) - 1),
			Thread: int32(r.Uint32()) >> r.IntN(32), Stream: traces.StreamID(r.IntN(len(t.Streams))),
			Device: traces.DeviceID(r.IntN(3)), Phase: traces.Phase(r.IntN(4)), Rerunnable: r.IntN(2) == 0,
			Again: r.IntN(2) == 0})
	}
	for i := range events {
		t.Accesses = append(t.Accesses, traces.Access{Time: int64(i), Addr: r.Uint64(), Size: r.Int64(),
			Event: i, Op: traces.OpID(r.IntN(len(t.Ops)+1) - 1), Device: traces.DeviceID(r.IntN(3)),
			Mode: traces.AccessMode(r.IntN(5))})
	}
	for i := range 30 {
		m := traces.Mark{Start: int64(i), End: r.Int64(), Name: traces.StringID(r.IntN(len(t.Strings))),
			Kind: traces.MarkKind(r.IntN(3)), Phase: traces.Phase(r.IntN(4)),
			Device: traces.DeviceID(r.IntN(3))}
		if i%7 == 0 {
			m.Start, m.End = traces.NoTime, int64(i)
		}
		t.Marks = append(t.Marks, m)
	}
	free := traces.Counter{Name: b.String("free"), Device: 1}
	tied := traces.Counter{Name: b.String(traces.CounterAllocated), Device: 0}
	for i := range events {
		free.Time, free.Value = append(free.Time, int64(i)), append(free.Value, r.Int64())
		tied.Time, tied.Value, tied.Event = append(tied.Time, int64(i)), append(tied.Value, -r.Int64()),
			append(tied.Event, i)
	}
	t.Counters = []traces.Counter{free, tied}
}

// state adds a final state.
func state(r *rand.Rand, b *traces.Builder, stacks []traces.StackID) {
	f := &b.T.Final
	f.Known = true
	for i := range 40 {
		first := int32(len(f.Blocks))
		for range r.IntN(5) {
			f.Blocks = append(f.Blocks, traces.Block{Address: r.Uint64(), Size: r.Int64(),
				Stack: stacks[r.IntN(len(stacks))], Count: int32(r.IntN(9)),
				State: traces.BlockState(r.IntN(3)), Extra: traces.StringID(r.IntN(9))})
		}
		f.Segments = append(f.Segments, traces.Segment{Address: r.Uint64(), TotalSize: r.Int64(),
			AllocatedSize: r.Int64(), ActiveSize: r.Int64(),
			Wanted: -r.Int64(), FirstBlock: first, EndBlock: int32(len(f.Blocks)),
			Pool: traces.Pool{First: int64(i), Second: -1}, HasPool: i%2 == 0, Expandable: i%3 == 0,
			Small: i%5 == 0, Stream: traces.StreamID(r.IntN(3)), Device: traces.DeviceID(r.IntN(3)),
			Stack: stacks[r.IntN(len(stacks))], Extra: traces.StringID(r.IntN(9))})
	}
}

// written returns t as a file.
func written(t testing.TB, tr *traces.Trace) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(context.Background(), &b, tr); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// dump prints a table; an empty one is the same as none.
func dump(v reflect.Value) string { return strings.ReplaceAll(fmt.Sprintf("%#v", v), "(nil)", "{}") }

// sameTrace fails where two traces differ in any field, and names the first table that does.
func sameTrace(t testing.TB, got, want *traces.Trace) {
	t.Helper()
	g, w := reflect.ValueOf(*got), reflect.ValueOf(*want)
	for i := range g.NumField() {
		a, b := dump(g.Field(i)), dump(w.Field(i))
		if a != b {
			at := 0
			for at < min(len(a), len(b)) && a[at] == b[at] {
				at++
			}
			t.Fatalf("%s differs: got ...%.200s, want ...%.200s", g.Type().Field(i).Name, a[max(0, at-60):],
				b[max(0, at-60):])
		}
	}
}
