package pipedream_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/internal/tracetext"
	"github.com/gmemtop/gmemtop/traces/pipedream"
)

func TestCases(t *testing.T) { tracetext.RunCases(t, pipedream.Read) }

func TestSniff(t *testing.T) {
	tracetext.RunSniff(t, pipedream.Sniff, map[string]bool{
		"node1 -- Input -- forward_compute_time=1, x=2\n": true,
		"\tnode1 -- node2\n":                              true,
		"node1 -- Input\n":                                false,
		"node -- node2\n":                                 false,
		"id,lower,upper,size":                             false,
		"":                                                false,
	})
}

// figure is what a Python script, written from the package comment, says about a real profile.
type figure struct {
	ops                 int
	time                int64 // of the whole iteration, ns
	weights             int64 // bytes
	activations         int64 // bytes of all activation buffers, in-place layers not counted
	peak                int64
	kind                traces.Kind
	allocated, atTheEnd int
}

var figures = map[figure]bool{
	{ops: 43, time: 85321000, weights: 244403360, activations: 610115584, peak: 1264442432,
		kind: traces.Dataflow, allocated: 43, atTheEnd: 8}: true,
	{ops: 691, time: 411092000, weights: 178196640, activations: 8362911744, peak: 8253104192,
		kind: traces.Dataflow, allocated: 841, atTheEnd: 209}: true,
	{ops: 351, time: 443419000, weights: 102228128, activations: 11485040640, peak: 11003048000,
		kind: traces.Dataflow, allocated: 433, atTheEnd: 107}: true,
	{ops: 79, time: 672535000, weights: 553430176, activations: 7728779264, peak: 8911803456,
		kind: traces.Dataflow, allocated: 79, atTheEnd: 16}: true,
}

func TestRealProfiles(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: real profiles")
	}
	files, err := filepath.Glob(filepath.Join(root, "measurements", "*_graph.txt"))
	if err != nil || len(files) != len(figures) {
		t.Fatalf("%d profiles under GMEMTOP_TRACES, %d known: %v", len(files), len(figures), err)
	}
	for i, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		tr, err := pipedream.Read(t.Context(), f, nil)
		if err != nil {
			t.Errorf("profile %d: %v", i, err)
			continue
		}
		if got := count(tr); !figures[got] {
			t.Errorf("profile %d has the figures %+v, which are not among the known ones", i, got)
		}
		checkAccesses(t, tr)
	}
}

func count(tr *traces.Trace) figure {
	f := figure{ops: len(tr.Ops), kind: tr.Kind()}
	last := tr.Ops[len(tr.Ops)-1]
	f.time = last.Start + last.Duration
	live := int64(0)
	for i := range tr.Events.Len() {
		e := tr.Events.At(i)
		if e.Action == traces.Free {
			live -= e.Size
			f.atTheEnd--
			continue
		}
		f.allocated++
		f.atTheEnd++
		switch tr.Text(tr.DetailOf(i).Category) {
		case "parameter":
			f.weights += e.Size
		case "activation":
			f.activations += e.Size
		}
		live += e.Size
		f.peak = max(f.peak, live)
	}
	return f
}

// Every access finds its buffer live, and a buffer's first access after its allocation writes it, except for
// blocks that were there before.
func checkAccesses(t *testing.T, tr *traces.Trace) {
	t.Helper()
	live, written := map[uint64]bool{}, map[uint64]bool{}
	at := 0
	for i, a := range tr.Accesses {
		for ; at < int(a.Event); at++ {
			e := tr.Events.At(at)
			live[e.Addr] = e.Action == traces.Alloc
			c := tr.Text(tr.DetailOf(at).Category)
			written[e.Addr] = c == "parameter" || c == "input"
		}
		if !live[a.Addr] {
			t.Fatalf("access %d of op %d touches a buffer that does not exist", i, a.Op)
		}
		if a.Mode == traces.Write {
			written[a.Addr] = true
		}
		if !written[a.Addr] {
			t.Fatalf("access %d of op %d reads a buffer before any write", i, a.Op)
		}
	}
}

func FuzzRead(f *testing.F) {
	tracetext.Fuzz(f, pipedream.Sniff, pipedream.Read, func(t *testing.T, tr *traces.Trace, _ error) {
		checkAccesses(t, tr)
	})
}
