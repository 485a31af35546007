package perfetto_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/perfetto"
)

// field is one field of a protobuf message: a number or bytes.
type field struct {
	number int
	value  uint64
	bytes  []byte
}

// fields decodes a message.
func fields(t *testing.T, m []byte) []field {
	t.Helper()
	var out []field
	for len(m) > 0 {
		number, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		m = m[n:]
		f := field{number: int(number)}
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(m)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(m)
		default:
			t.Fatalf("wire type %d", kind)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		m, out = m[n:], append(out, f)
	}
	return out
}

func get(fs []field, number int) field {
	for _, f := range fs {
		if f.number == number {
			return f
		}
	}
	return field{}
}

// row is a track as a trace processor would rebuild it.
type row struct {
	name    string
	parent  uint64
	events  []string
	open    []string
	last    uint64
	counter bool
}

// parse rebuilds the tracks and checks what Perfetto demands: tracks described before use, interned ids
// defined, slices that nest, and time that runs forward on each track.
func parse(t *testing.T, data []byte) []*row {
	t.Helper()
	rows := map[uint64]*row{}
	var order []*row
	names, texts := map[uint64]string{}, map[uint64]string{}
	for i, p := range fields(t, data) {
		if p.number != 1 {
			t.Fatalf("field %d where a packet is expected", p.number)
		}
		packet := fields(t, p.bytes)
		if get(packet, 10).value != 1 || (get(packet, 13).value == 1) != (i == 0) {
			t.Fatalf("packet %d: sequence %d, flags %d", i, get(packet, 10).value, get(packet, 13).value)
		}
		if in := get(packet, 12); in.bytes != nil {
			for _, e := range fields(t, in.bytes) {
				entry := fields(t, e.bytes)
				table := map[int]map[uint64]string{2: names, 29: texts}[e.number]
				table[get(entry, 1).value] = string(get(entry, 2).bytes)
			}
		}
		if d := get(packet, 60); d.bytes != nil {
			desc := fields(t, d.bytes)
			r := &row{name: string(get(desc, 2).bytes), parent: get(desc, 5).value,
				counter: get(desc, 8).bytes != nil}
			if pr := get(desc, 3); pr.bytes != nil {
				r.name = string(get(fields(t, pr.bytes), 6).bytes)
			}
			if r.parent != 0 && rows[r.parent] == nil {
				t.Fatalf("track %s has an unknown parent", r.name)
			}
			rows[get(desc, 1).value] = r
			order = append(order, r)
		}
		if e := get(packet, 11); e.bytes != nil {
			ev := fields(t, e.bytes)
			r := rows[get(ev, 11).value]
			if r == nil {
				t.Fatalf("an event is on an unknown track")
			}
			addEvent(t, r, get(packet, 8).value, ev, names, texts)
		}
	}
	for _, r := range order {
		if len(r.open) > 0 {
			t.Errorf("track %s ends with %v open", r.name, r.open)
		}
	}
	return order
}

func addEvent(t *testing.T, r *row, at uint64, ev []field, names, texts map[uint64]string) {
	t.Helper()
	if at < r.last {
		t.Fatalf("track %s: time %d after %d", r.name, at, r.last)
	}
	r.last = at
	name, ok := names[get(ev, 10).value]
	kind := get(ev, 9).value
	if !ok && (kind == 1 || kind == 3) {
		t.Fatalf("track %s: an event without a name", r.name)
	}
	switch kind {
	case 1:
		r.open = append(r.open, name)
		r.events = append(r.events, fmt.Sprintf("%d begin %s%s", at, name, notes(t, ev, texts)))
	case 2:
		if len(r.open) == 0 {
			t.Fatalf("track %s: an end without a begin", r.name)
		}
		r.open = r.open[:len(r.open)-1]
		r.events = append(r.events, fmt.Sprintf("%d end", at))
	case 3:
		r.events = append(r.events, fmt.Sprintf("%d instant %s%s", at, name, notes(t, ev, texts)))
	case 4:
		r.events = append(r.events, fmt.Sprintf("%d = %d", at, int64(get(ev, 30).value)))
	default:
		t.Fatalf("event type %d", kind)
	}
}

func notes(t *testing.T, ev []field, texts map[uint64]string) string {
	s := ""
	for _, f := range ev {
		if f.number != 4 {
			continue
		}
		a := fields(t, f.bytes)
		value := fmt.Sprint(int64(get(a, 4).value))
		if id := get(a, 17).value; id != 0 {
			value = texts[id]
			if value == "" {
				t.Fatalf("text %d is not defined", id)
			}
		} else if p := get(a, 7); p.number != 0 {
			value = fmt.Sprintf("%#x", p.value)
		}
		s += fmt.Sprintf(" %s=%s", get(a, 10).bytes, strings.ReplaceAll(value, "\n", "<"))
	}
	return s
}

// sample is a trace with one of everything.
func sample() *traces.Trace {
	b := traces.NewBuilder()
	b.T.Source.Format = "test"
	gpu, cpu := b.Device(traces.DeviceGPU, 0), b.Device(traces.DeviceCPU, 0)
	stack := b.Stack([]traces.FrameID{
		b.Frame(traces.Frame{Func: b.String("mm"), File: b.String("a.py"), Line: 3}),
		b.Frame(traces.Frame{Func: b.String("main")})})
	add := func(at int64, a traces.Action, d traces.DeviceID, addr uint64, size int64, s traces.StackID) {
		b.Event(traces.Event{Time: at, Action: a, Device: d, Addr: addr, Size: size, Stack: s})
	}
	add(1000, traces.SegmentAlloc, gpu, 0x1000, 4096, traces.NoStack)
	add(1010, traces.Alloc, gpu, 0x1000, 600, stack)
	add(1020, traces.Alloc, gpu, 0x1400, 700, stack)
	add(1030, traces.FreeRequested, gpu, 0x1000, 600, traces.NoStack)
	add(1030, traces.Alloc, gpu, 0x1000, 512, traces.NoStack)
	add(1035, traces.FreeCompleted, gpu, 0x1000, 600, traces.NoStack)
	add(1040, traces.Free, gpu, 0x9000, 80, traces.NoStack) // older than the trace
	add(1050, traces.OOM, gpu, 0, 1<<30, stack)
	add(1005, traces.Alloc, cpu, 1, 8, traces.NoStack)
	b.T.Final = traces.State{Known: true,
		Segments: []traces.Segment{{Address: 0x1000, TotalSize: 5120, EndBlock: 3, Device: gpu,
			Stack: traces.NoStack}},
		Blocks: []traces.Block{{Address: 0x1000, Size: 512, Requested: maybe.Known(512),
			State: traces.BlockAllocated,
			Count: 1, Stack: traces.NoStack},
			{Address: 0x1400, Size: 1024, Requested: maybe.Known(700), State: traces.BlockAllocated, Count: 1,
				Stack: traces.NoStack},
			{Address: 0x1800, Size: 3584, Requested: maybe.Known(3000), State: traces.BlockAllocated,
				Count: 1,
				Stack: traces.NoStack}}}
	op := func(start, duration int64, name string, thread int32, parent traces.OpID) {
		b.T.Ops = append(b.T.Ops, traces.Op{Start: start, Duration: duration, Name: b.String(name),
			Thread: thread, Parent: parent, Stack: traces.NoStack, Phase: traces.PhaseForward, Device: gpu})
	}
	op(1000, 30, "outer", 7, traces.NoOp)
	op(1010, 25, "inner", 7, 0) // seems to end behind its parent
	op(1012, 10, "kernel", -1, traces.NoOp)
	op(1015, 10, "kernel", -1, traces.NoOp)
	b.T.Marks = []traces.Mark{{Start: 1000, End: traces.NoTime, Name: b.String("step 1"),
		Kind: traces.MarkIteration, Device: gpu}}
	b.T.Counters = []traces.Counter{{Name: b.String("nvml_used"), Device: gpu, Time: []int64{1001},
		Value: []int64{-5}}}
	return b.Finish()
}

const want = `gmemtop: test
 gpu 0
  allocated: 0 = 3080, 10 = 3680, 20 = 4380, 30 = 3780, 30 = 4292, 40 = 4212
  reserved: 0 = 1024, 0 = 5120
  nvml_used: 1 = -5
  iterations: 0 begin step 1, 50 end
  out of memory: 50 instant out of memory requested_bytes=1073741824 stack=mm (a.py:3)<main
  blocks
   2 KiB and more: 1 blocks
    2 KiB: 0 begin block bytes=3000 address=0x1800 allocated=before the recording began freed=not before the recording ended, 50 end
   512 B and more: 3 blocks
    512 B: 10 begin mm (a.py:3) bytes=600 address=0x1000 stack=mm (a.py:3)<main, 30 end, ` +
	`30 begin block bytes=512 address=0x1000 freed=not before the recording ended, 50 end
    512 B: 20 begin mm (a.py:3) bytes=700 address=0x1400 stack=mm (a.py:3)<main freed=not before the recording ended, 50 end
   64 B and more: 1 blocks
    64 B: 0 begin block bytes=80 address=0x9000 allocated=before the recording began, 40 end
 cpu 0
  allocated: 0 = 0, 5 = 8
  blocks
   8 B and more: 1 blocks
    8 B: 5 begin block bytes=8 address=0x1 freed=not before the recording ended, 50 end
 thread 7: 0 begin outer phase=forward, 10 begin inner phase=forward, 30 end, 30 end
 gpu 0 stream 0: 12 begin kernel phase=forward, 22 end
 gpu 0 stream 0: 15 begin kernel phase=forward, 25 end
`

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	if err := perfetto.Write(t.Context(), &out, sample()); err != nil {
		t.Fatal(err)
	}
	if got := table(parse(t, out.Bytes())); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// table prints the tracks indented below their parents.
func table(rows []*row) string {
	depth := make([]int, len(rows)+1)
	var b strings.Builder
	for i, r := range rows {
		if r.parent != 0 {
			depth[i+1] = depth[r.parent] + 1
		}
		fmt.Fprintf(&b, "%s%s", strings.Repeat(" ", depth[i+1]), r.name)
		if len(r.events) > 0 {
			fmt.Fprintf(&b, ": %s", strings.Join(r.events, ", "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestManyLiveBlocksOfOneSizeAreCutAndCounted(t *testing.T) {
	b := traces.NewBuilder()
	d := b.Device(traces.DeviceGPU, 0)
	for i := range 300 {
		b.Event(traces.Event{Time: int64(i), Action: traces.Alloc, Device: d, Addr: uint64(i), Size: 64,
			Stack: traces.NoStack})
	}
	var out bytes.Buffer
	if err := perfetto.Write(t.Context(), &out, b.Finish()); err != nil {
		t.Fatal(err)
	}
	rows := parse(t, out.Bytes())
	// The last block begins where the recording, and with it all others, ends.
	if !slices.ContainsFunc(rows, func(r *row) bool {
		return r.name == "64 B and more: 300 blocks, 43 of "+
			"them not shown"
	}) {
		t.Errorf("no group counts what is left out; there are %q",
			[]string{rows[2].name, rows[3].name, rows[4].name})
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := traces.NewBuilder()
	d := b.Device(traces.DeviceGPU, 0)
	for i := range 5000 {
		b.Event(traces.Event{Time: int64(i), Action: traces.Alloc, Device: d, Addr: uint64(i), Size: 64,
			Stack: traces.NoStack})
	}
	if err := perfetto.Write(ctx, &bytes.Buffer{}, b.Finish()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Real traces of every kind come out as tracks that nest, and their allocated counters end where the events
// do.
func TestRealTraces(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: real traces to write")
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for i, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > 500_000 {
			continue // the small ones cover every format
		}
		tr, err := load.Open(t.Context(), file, load.Options{NoCache: true})
		if err != nil {
			continue
		}
		var out bytes.Buffer
		if err := perfetto.Write(t.Context(), &out, tr); err != nil {
			t.Errorf("file %d: %v", i, err)
		}
		counters := 0
		for _, r := range parse(t, out.Bytes()) {
			if r.counter && r.name == "allocated" {
				counters++
			}
		}
		if counters != len(tr.Devices) {
			t.Errorf("file %d: %d counters of allocated bytes for %d devices", i, counters, len(tr.Devices))
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	bl := traces.NewBuilder()
	d := bl.Device(traces.DeviceGPU, 0)
	stack := bl.Stack([]traces.FrameID{bl.Frame(traces.Frame{Func: bl.String("f")})})
	for i := range 100_000 {
		a := traces.Alloc
		if i%2 == 1 {
			a = traces.Free
		}
		bl.Event(traces.Event{Time: int64(i), Action: a, Device: d, Addr: uint64(i / 2),
			Size: int64(512 + i/2%100*512), Stack: stack})
	}
	tr := bl.Finish()
	b.ReportAllocs()
	for b.Loop() {
		var out bytes.Buffer
		if err := perfetto.Write(b.Context(), &out, tr); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(out.Len()))
	}
}
