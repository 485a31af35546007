package oracle

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// sample returns a trace of n events on two devices with stacks, details, ops, accesses, marks, counters and
// a final state.
func sample(n int) *traces.Trace {
	r := rand.New(rand.NewPCG(5, 6))
	b := traces.NewBuilder()
	t := &b.T
	t.Source.Format = "gmt"
	gpu, host := b.Device(traces.DeviceGPU, 0), b.Device(traces.DeviceHost, 0)
	stream := b.Stream(math.MaxUint64)
	var stacks []traces.StackID
	for i := range 50 {
		inner := b.Frame(traces.Frame{Func: b.String("fn" + strconv.Itoa(i)), File: b.String("modèle.py"),
			Line: int32(i)})
		outer := b.Frame(traces.Frame{Func: b.String("main"), File: b.String("train.py"), Line: 1})
		stacks = append(stacks, b.Stack([]traces.FrameID{inner, outer}))
	}
	detail := b.Detail(traces.Detail{UserMetadata: b.String("note"), ForwardStack: stacks[3]})
	for i := range n {
		e := traces.Event{Time: int64(i) * 1000, Addr: r.Uint64(), Size: r.Int64(), Stack: stacks[r.IntN(50)],
			Device: gpu, Action: traces.Alloc}
		if i%7 == 0 {
			e.Device, e.Stream, e.Detail, e.Stack = host, stream, detail, traces.NoStack
		}
		b.Event(e)
	}
	for i := range n / 2 {
		t.Ops = append(t.Ops, traces.Op{Start: int64(i), Duration: 5, Name: 1, Parent: traces.NoOp,
			Stack: traces.NoStack})
		t.Accesses = append(t.Accesses, traces.Access{Time: int64(i), Addr: r.Uint64(), Event: int32(i),
			Op: traces.OpID(i), Mode: traces.Write})
	}
	t.Marks = []traces.Mark{{Start: 0, End: 9, Name: 2, Kind: traces.MarkIteration}}
	t.Counters = []traces.Counter{{Name: 1, Time: []int64{1}, Value: []int64{2}, Event: []int32{0}}}
	t.Final = traces.State{Known: true, Segments: []traces.Segment{{Address: 1 << 63, TotalSize: 9,
		EndBlock: 1}},
		Blocks: []traces.Block{{Address: 1 << 63, Size: 9, Requested: maybe.Known(8), Stack: 1, Count: 1,
			State: traces.BlockAllocated}}}
	return b.Finish()
}

func file(t *testing.T, tr *traces.Trace) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := gmt.Write(context.Background(), &b, tr); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// batches calls each with every batch that arrow-go reads from a file.
func batches(t *testing.T, data []byte, each func(arrow.RecordBatch)) *arrow.Schema {
	t.Helper()
	r, err := ipc.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	for {
		rec, err := r.Read()
		if errors.Is(err, io.EOF) {
			return r.Schema()
		}
		if err != nil {
			t.Fatal(err)
		}
		each(rec)
	}
}

func TestArrowGoReadsWhatWeWrite(t *testing.T) {
	want := sample(40_000)
	var got traces.Events
	var texts, stacks []string
	kinds := map[uint8]int{}
	schema := batches(t, file(t, want), func(rec arrow.RecordBatch) {
		kind := rec.Column(4).(*array.Uint8).Uint8Values()
		text := rec.Column(10).(*array.String)
		for i, k := range kind {
			kinds[k]++
			switch k {
			case 201:
				texts = append(texts, strings.Clone(text.Value(i)))
			case 200:
				stacks = append(stacks, strings.Clone(text.Value(i)))
			}
			if k < 100 {
				got.Append(traces.Event{
					Time: rec.Column(0).(*array.Int64).Value(i), Addr: rec.Column(1).(*array.Uint64).Value(i),
					Size: rec.Column(2).(*array.Int64).Value(i), Action: traces.Action(k),
					Device: traces.DeviceID(rec.Column(5).(*array.Uint8).Value(i)),
					Stream: traces.StreamID(rec.Column(6).(*array.Uint16).Value(i)),
					Stack:  traces.StackID(rec.Column(7).(*array.Int32).Value(i)),
					Detail: traces.DetailID(rec.Column(8).(*array.Int32).Value(i)),
				})
			}
		}
	})
	if v, _ := schema.Metadata().GetValue("gmemtop.format"); v != gmt.FormatVersion {
		t.Errorf("gmemtop.format is %q", v)
	}
	if got.Len() != want.Events.Len() {
		t.Fatalf("%d events of %d", got.Len(), want.Events.Len())
	}
	for i := range got.Len() {
		if got.At(i) != want.Events.At(i) {
			t.Fatalf("event %d is %+v, want %+v", i, got.At(i), want.Events.At(i))
		}
	}
	if strings.Join(texts, "\n") != strings.Join(want.Strings, "\n") {
		t.Errorf("strings %q", texts)
	}
	for i, s := range stacks {
		var ids []string
		for _, id := range want.Stacks.At(traces.StackID(i)) {
			ids = append(ids, strconv.Itoa(int(id)))
		}
		if s != strings.Join(ids, " ") {
			t.Fatalf("stack %d is %q, want %q", i, s, ids)
		}
	}
	for k, n := range map[uint8]int{100: 20_000, 111: 20_000, 121: 1, 130: 1, 140: 1, 151: 1, 205: 2, 203: 2,
		220: 1, 224: 1} {
		if kinds[k] != n {
			t.Errorf("%d rows of kind %d, want %d", kinds[k], k, n)
		}
	}
}

func TestArrowGoReadsARecordingAndARepairedOne(t *testing.T) {
	var b bytes.Buffer
	w, err := gmt.NewWriter(&b, traces.Source{}, traces.Process{}, traces.Clock{HasTime: true})
	if err != nil {
		t.Fatal(err)
	}
	dev := w.Device(traces.Device{})
	for i := range 5000 {
		w.Event(traces.Event{Time: int64(i),
			Stack: w.Stack([]traces.FrameID{w.Frame(traces.Frame{Line: int32(i / 10)})}), Device: dev,
			Action: traces.Alloc})
		if i%700 == 0 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(traces.State{}); err != nil {
		t.Fatal(err)
	}
	count := func(data []byte) (events int64) {
		batches(t, data, func(rec arrow.RecordBatch) {
			for _, k := range rec.Column(4).(*array.Uint8).Uint8Values() {
				if k < 100 {
					events++
				}
			}
		})
		return events
	}
	if n := count(b.Bytes()); n != 5000 {
		t.Errorf("%d events", n)
	}
	cut := b.Bytes()[:b.Len()*2/3]
	var repaired bytes.Buffer
	rep, err := gmt.Repair(context.Background(), bytes.NewReader(cut), int64(len(cut)), &repaired)
	if err != nil {
		t.Fatal(err)
	}
	if n := count(repaired.Bytes()); n != rep.Events || n == 0 || n == 5000 {
		t.Errorf("%d events in the repaired file, the report says %d", n, rep.Events)
	}
}

// A stream that arrow-go writes has no checksums, so it is refused.
func TestAStreamThatArrowGoRewroteIsRefused(t *testing.T) {
	var out bytes.Buffer
	var w *ipc.Writer
	batches(t, file(t, sample(100)), func(rec arrow.RecordBatch) {
		if w == nil {
			w = ipc.NewWriter(&out, ipc.WithSchema(rec.Schema()), ipc.WithZstd())
		}
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if tr, err := gmt.Read(context.Background(), &out, nil); !errors.Is(err, traces.ErrFormat) || tr != nil {
		t.Errorf("error %v", err)
	}
}
