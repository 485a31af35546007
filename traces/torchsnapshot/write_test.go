package torchsnapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// foreign returns a trace such as other sources make: no final state, several kinds of memory, ops, marks
// that overlap, nanoseconds.
func foreign() *traces.Trace {
	b := traces.NewBuilder()
	b.T.Source.Format = "kineto"
	b.T.Process = traces.Process{Host: "node-7", PID: maybe.Known(41), Rank: maybe.Known(3),
		WorldSize: maybe.Known(8)}
	gpu, cpu, host := b.Device(traces.DeviceGPU, 1), b.Device(traces.DeviceCPU, 0),
		b.Device(traces.DeviceHost, 0)
	fr := b.Frame(traces.Frame{File: b.String("a.py"), Func: b.String("f"), Line: 3})
	op := b.Detail(traces.Detail{Op: b.String("aten::mm"), ForwardStack: b.Stack([]traces.FrameID{fr}),
		HasPool: true, Pool: traces.Pool{First: 1 << 40, Second: -2}})
	for i, d := range []traces.DeviceID{gpu, cpu, host, gpu, cpu} {
		b.Event(traces.Event{
			Time: int64(i) * 1500, Addr: 1<<63 + uint64(i), Size: 512,
			Stack: b.Stack([]traces.FrameID{fr, fr}), Detail: op, Stream: b.Stream(7), Device: d,
			Action: []traces.Action{traces.Alloc, traces.Free}[i/3],
		})
	}
	for _, m := range [][2]int64{{1000, 4000}, {2000, 6000}, {traces.NoTime, 500}, {7000, traces.NoTime}} {
		b.T.Marks = append(b.T.Marks, traces.Mark{Start: m[0], End: m[1], Name: b.String("range"),
			Device: gpu})
	}
	b.T.Ops = []traces.Op{{Start: 1, Duration: 2}}
	return b.Finish()
}

// TestAnyTraceCanBeWritten: what a snapshot has a place for survives, events of every memory included.
func TestAnyTraceCanBeWritten(t *testing.T) {
	var out bytes.Buffer
	if err := Write(context.Background(), &out, foreign()); err != nil {
		t.Fatal(err)
	}
	tr, err := read(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	const want = `format torch_snapshot, kind lifetimes
process {Host:node-7 PID:41 Rank:3 WorldSize:8}
clock epoch 0 resolution 1000 has_time true
device gpu1 events [0, 2)
device gpu2 events [2, 4)
device host0 events [4, 5)
event gpu1 t 0 alloc addr 0x8000000000000000 size 512 stream 0x7 frames <f a.py:3 | f a.py:3> metadata aten::mm pool {1099511627776 -2} forward <f a.py:3 {"formatted":"  File \"a.py\", line 3, in f\n"}>
event gpu1 t 4000 free addr 0x8000000000000003 size 512 stream 0x7 frames <f a.py:3 | f a.py:3> metadata aten::mm pool {1099511627776 -2} forward <f a.py:3 {"formatted":"  File \"a.py\", line 3, in f\n"}>
event gpu2 t 1000 alloc addr 0x8000000000000001 size 512 stream 0x7 frames <f a.py:3 | f a.py:3> metadata aten::mm pool {1099511627776 -2} forward <f a.py:3 {"formatted":"  File \"a.py\", line 3, in f\n"}>
event gpu2 t 6000 free addr 0x8000000000000004 size 512 stream 0x7 frames <f a.py:3 | f a.py:3> metadata aten::mm pool {1099511627776 -2} forward <f a.py:3 {"formatted":"  File \"a.py\", line 3, in f\n"}>
event host0 t 3000 alloc addr 0x8000000000000002 size 512 stream 0x7 frames <f a.py:3 | f a.py:3> metadata aten::mm pool {1099511627776 -2} forward <f a.py:3 {"formatted":"  File \"a.py\", line 3, in f\n"}>
final known false
mark gpu1 kind 0 phase unknown [none, 0) "range"
mark gpu1 kind 0 phase unknown [1000, 4000) "range"
mark gpu1 kind 0 phase unknown [2000, 6000) "range"
mark gpu1 kind 0 phase unknown [7000, none) "range"
`
	if got := dump(tr); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	roundTrip(t, tr)
}

// TestPythonLoadsWhatIsWritten holds for every case, with globals refused.
func TestPythonLoadsWhatIsWritten(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3: what is written is loaded with it")
	}
	const script = `
import pickle, sys
class Plain(pickle.Unpickler):
    def find_class(self, *name): raise Exception(name)
for path in sys.argv[1:]:
    s = Plain(open(path, "rb")).load()
    assert isinstance(s["segments"], list) and isinstance(s["device_traces"], list), path
    for e in [e for t in s["device_traces"] for e in t]:
        assert e.get("stream") is not None and ("addr" in e or "device_free" in e), (path, e)
`
	dir, args := t.TempDir(), []string{"-c", script}
	all := map[string]*traces.Trace{"foreign": foreign()}
	for name, a := range cases(t) {
		for _, data := range encodings(t, a) {
			if all[filepath.Base(name)], err = read(data); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tr := range all {
		var out bytes.Buffer
		if err := Write(context.Background(), &out, tr); err != nil {
			t.Fatal(err)
		}
		args = append(args, filepath.Join(dir, name))
		if err := os.WriteFile(args[len(args)-1], out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestWriteStops when it is cancelled, and when the writer fails.
func TestWriteStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tr, err := read(synthetic(100_000))
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(ctx, io.Discard, tr); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := Write(context.Background(), full{}, tr); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestNumbersAreWrittenAtEveryWidth: a pickle has an opcode for each width of an integer.
func TestNumbersAreWrittenAtEveryWidth(t *testing.T) {
	numbers := "0"
	for bits := range 80 {
		n := new(big.Int).Lsh(big.NewInt(1), uint(bits))
		for _, near := range []int64{-1, 0, 1} {
			v := new(big.Int).Add(n, big.NewInt(near))
			numbers += fmt.Sprintf(",%v,%v", v, new(big.Int).Neg(v))
		}
	}
	b := traces.NewBuilder()
	b.Event(traces.Event{Device: b.Device(traces.DeviceGPU, 0), Action: traces.Alloc, Stack: traces.NoStack})
	b.T.Extra = []traces.Setting{{Key: "numbers", Value: "[" + numbers + "]"}}
	var out bytes.Buffer
	if err := Write(t.Context(), &out, b.Finish()); err != nil {
		t.Fatal(err)
	}
	tr, err := read(out.Bytes())
	if err != nil || tr.Extra[0].Value != "["+numbers+"]" {
		t.Errorf("%v: %s\n are read as %v", err, numbers, tr.Extra)
	}
}

func TestAStringIsInternedOnce(t *testing.T) {
	x, ids := newTexts(), map[string]text{}
	for range 2 {
		for i := range 5000 {
			s := fmt.Sprint("text ", i)
			id, err := x.intern([]byte(s))
			if was, ok := ids[s]; err != nil || ok && was != id || x.string(id) != s {
				t.Fatalf("%q is text %d (%q), and was %d: %v", s, id, x.string(id), was, err)
			}
			ids[s] = id
		}
	}
}
