package kineto_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/internal/tracetext"
	"github.com/gmemtop/gmemtop/traces/kineto"
)

func TestCases(t *testing.T) { tracetext.RunCases(t, kineto.Read) }

func input(t testing.TB, name string) []byte {
	t.Helper()
	ar, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	return ar.Files[0].Data
}

func dump(t *testing.T, r io.Reader) string {
	t.Helper()
	tr, err := kineto.Read(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	tracetext.Write(&out, tr)
	return out.String()
}

// The window's borders must not show: any chopping of the input gives the same trace.
func TestChoppingTheInputChangesNothing(t *testing.T) {
	data := input(t, "new_schema")
	want := dump(t, bytes.NewReader(data))
	if got := dump(t, iotest.OneByteReader(bytes.NewReader(data))); got != want {
		t.Errorf("byte by byte:\n%s\nat once:\n%s", got, want)
	}
	if got := dump(t, iotest.DataErrReader(iotest.HalfReader(bytes.NewReader(data)))); got != want {
		t.Errorf("in halves:\n%s\nat once:\n%s", got, want)
	}
}

// A value longer than the window, both one that is needed and one that is skipped as it streams by.
func TestLongValues(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"metadata": {"x": "` + strings.Repeat(`\"`, 3<<20) + `"}, "traceEvents": [`)
	fmt.Fprintf(&b,
		`{"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":1,"args":{"pad":%q,"Device Type":1,"Device Id":0,"Addr":1,"Bytes":64}}]}`, strings.Repeat("x", 1<<20))
	tr, err := kineto.Read(t.Context(), &b, nil)
	if err != nil || tr.Events.Len() != 1 {
		t.Fatalf("got %v, %v", tr, err)
	}
}

func TestEveryPrefixIsAnErrorAndNeverAPanic(t *testing.T) {
	data := bytes.TrimSpace(input(t, "new_schema"))
	last := 0
	for n := range data {
		tr, err := kineto.Read(t.Context(), bytes.NewReader(data[:n]), nil)
		if err == nil {
			t.Fatalf("the first %d of %d bytes were accepted", n, len(data))
		}
		if !errors.Is(err, traces.ErrFormat) {
			t.Fatalf("the first %d bytes: %v is not an ErrFormat", n, err)
		}
		if tr != nil {
			if tr.Events.Len() < last {
				t.Fatalf("%d bytes give %d events, fewer bytes gave %d", n, tr.Events.Len(), last)
			}
			last = tr.Events.Len()
		}
	}
	if last != 6 {
		t.Fatalf("the longest prefix gives %d events, want 6", last)
	}
}

func TestSniff(t *testing.T) {
	tracetext.RunSniff(t, kineto.Sniff, map[string]bool{
		`{"schemaVersion": 1,`:                            true,
		"\xef\xbb\xbf \n[{\"name\": \"x\", \"ph\": \"X\"": true,
		`[[-1, 1, 4096, 0]`:                               true,
		`{"segments": [], "traceEvents": 1}`:              false,
		`[{"device": 0, "address": 12}]`:                  false,
		`{"id": 1}`:                                       false,
		``:                                                false,
		`id,lower,upper,size`:                             false,
	})
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kineto.Read(ctx, bytes.NewReader(input(t, "new_schema")), nil); !errors.Is(err,
		context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

// figures are what a Python script, independent of this reader, counted in real profiles, by the number of
// memory events.
var figures = map[int]struct {
	ops, steps            int
	allocs                int
	gpuAlloc, gpuFree     int64
	firstTotal, lastTotal int64
	rank                  int
	synthetic             bool
}{
	2450: {ops: 5893, steps: 1, allocs: 1225, gpuAlloc: 21375221248, gpuFree: 21375221248,
		firstTotal: 1003059712, lastTotal: 984742400, rank: -1, synthetic: false},
	236: {ops: 540, steps: 1, allocs: 118, gpuAlloc: 47460864, gpuFree: 47460864, firstTotal: 91505152,
		lastTotal: 91360768, rank: -1, synthetic: false},
	28010: {ops: 81000, steps: 5, allocs: 14005, gpuAlloc: 52469120000, gpuFree: 52469120000,
		firstTotal: 4121780224, lastTotal: 4096614400, rank: 1, synthetic: false},
	12838: {ops: 32736, steps: 6, allocs: 6420, gpuAlloc: 63689511936, gpuFree: 63689511936, firstTotal: 0,
		lastTotal: 0, rank: -1, synthetic: true},
}

func TestRealProfiles(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: real profiles")
	}
	files, err := filepath.Glob(filepath.Join(root, "kineto", "*.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no profiles under GMEMTOP_TRACES: %v", err)
	}
	seen, without := 0, 0
	for i, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := kineto.Read(t.Context(), z, nil)
		if errors.Is(err, traces.ErrUnsupported) {
			without++
			continue
		}
		if err != nil {
			t.Errorf("profile %d: %v", i, err)
			continue
		}
		seen++
		checkProfile(t, tr)
	}
	if seen != len(figures) || without != 1 {
		t.Errorf("%d profiles with memory events and %d without, want %d and 1", seen, without, len(figures))
	}
}

func checkProfile(t *testing.T, tr *traces.Trace) {
	t.Helper()
	n := tr.Events.Len()
	want, ok := figures[n]
	if !ok {
		t.Errorf("a profile has %d memory events, a number that is not among the known ones", n)
		return
	}
	got := want
	got.ops, got.steps, got.allocs, got.gpuAlloc, got.gpuFree = len(tr.Ops), 0, 0, 0, 0
	got.rank, got.synthetic = int(tr.Process.Rank.Or(-1)), tr.Source.SyntheticAddresses
	for _, m := range tr.Marks {
		if m.Kind == traces.MarkIteration {
			got.steps++
		}
	}
	for i := range n {
		e := tr.Events.At(i)
		gpu := tr.Devices[e.Device].Kind == traces.DeviceGPU
		switch {
		case e.Action == traces.Alloc:
			got.allocs++
			if gpu {
				got.gpuAlloc += e.Size
			}
		case gpu:
			got.gpuFree += e.Size
		}
	}
	for _, c := range tr.Counters {
		if tr.Text(c.Name) == traces.CounterAllocated && tr.Devices[c.Device].Kind == traces.DeviceGPU {
			got.firstTotal, got.lastTotal = c.Value[0], c.Value[len(c.Value)-1]
			checkChain(t, tr, c)
		}
	}
	if got != want {
		t.Errorf("profile of %d events:\n got %+v\nwant %+v", n, got, want)
	}
	for i, op := range tr.Ops {
		if i > 0 && op.Start < tr.Ops[i-1].Start || op.Parent != traces.NoOp && int(op.Parent) >= i {
			t.Fatalf("profile of %d events: op %d is out of order", n, i)
		}
	}
}

// checkChain: each total is the one before plus the event's bytes, which holds only in the true order of
// events.
func checkChain(t *testing.T, tr *traces.Trace, c traces.Counter) {
	t.Helper()
	for i := 1; i < len(c.Value); i++ {
		e := tr.Events.At(int(c.Event[i]))
		d := e.Size
		if e.Action == traces.Free {
			d = -d
		}
		if c.Value[i-1]+d != c.Value[i] {
			t.Fatalf("profile of %d events: sample %d: %d%+d is not %d", tr.Events.Len(), i, c.Value[i-1], d,
				c.Value[i])
		}
	}
}

func FuzzRead(f *testing.F) {
	tracetext.Fuzz(f, kineto.Sniff, kineto.Read, func(t *testing.T, tr *traces.Trace, _ error) {
		tracetext.Write(io.Discard, tr)
		for i, op := range tr.Ops {
			if op.Parent != traces.NoOp && int(op.Parent) >= i {
				t.Fatalf("op %d runs inside of op %d", i, op.Parent)
			}
		}
	})
}

// BenchmarkRead reads 20,000 copies of an op, a Python frame and two memory events: the mix and the sizes of
// real profiles.
func BenchmarkRead(b *testing.B) {
	var in bytes.Buffer
	in.WriteString(`{"schemaVersion": 1, "traceEvents": [`)
	for i := range 20000 {
		at := i * 10
		fmt.Fprintf(&in, `
  {
    "ph": "X", "cat": "python_function", "name": "net.py(%d): forward", "pid": 1, "tid": 1,
    "ts": %d.100, "dur": 9.500,
    "args": {
      "Python parent id": 1,"Python id": %d,"Ev Idx": %d
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
    "ts": %d.200, "dur": 9.100,
    "args": {
      "External id": %d,"Record function id": 0, "Concrete Inputs": ["", "", "-1", "False"], "Input type": ["c10::BFloat16", "long int", "Scalar"], "Input Strides": [[1024, 1], [559, 1], [], []], "Input Dims": [[151936, 1024], [16, 559], [], []], "Ev Idx": %d
    }
  },`, i%50, at, i, i, at, i, i)
		for j, bytes := range []int{512, -512} {
			fmt.Fprintf(&in, `
  {
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1,
    "ts": %d.%d00,
    "args": {
      "Total Reserved": 2629828608,"Total Allocated": %d,"Bytes": %d,"Addr": 137877174353920,"Device Id": 0,"Device Type": 1, "Ev Idx": %d
    }
  },`, at, j+3, 512-512*j, bytes, i)
		}
	}
	in.WriteString(`{}]}`)
	b.SetBytes(int64(in.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := kineto.Read(b.Context(), bytes.NewReader(in.Bytes()), nil); err != nil {
			b.Fatal(err)
		}
	}
}
