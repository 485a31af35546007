package nsys_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/nsys"
)

// export writes a database of the statements and returns its path. The folder's name is one that a URI has to
// quote.
func export(t testing.TB, sql ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a b?c#d%41")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "report.sqlite")
	conn, err := sqlite.OpenConn("report.sqlite", sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenMemory)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, s := range sql {
		if err := sqlitex.ExecuteScript(conn, s, nil); err != nil {
			t.Fatal(err)
		}
	}
	b, err := conn.Serialize("main")
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func training(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("testdata/training.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// stack returns a stack's functions, innermost first.
func stack(tr *traces.Trace, id traces.StackID) string {
	var names []string
	for _, f := range tr.Stacks.At(id) {
		fn, _, _ := tr.FrameText(f)
		names = append(names, fn)
	}
	return strings.Join(names, " < ")
}

// lines describes the events of a trace, a line each.
func lines(tr *traces.Trace) string {
	var b strings.Builder
	for i := range tr.Events.Len() {
		e := tr.Events.At(i)
		d, dev := tr.DetailOf(i), tr.Devices[e.Device]
		fmt.Fprintf(&b, "%s%d %d %s %x %d", dev.Kind, dev.Ordinal, e.Time, e.Action, e.Addr, e.Size)
		if d.UserMetadata != 0 {
			fmt.Fprintf(&b, " %q", tr.Text(d.UserMetadata))
		}
		if d.HasPool {
			fmt.Fprintf(&b, " pool %x stream %d", d.Pool.Second, tr.Streams[e.Stream])
		}
		if s := stack(tr, e.Stack); s != "" {
			fmt.Fprintf(&b, " [%s]", s)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

const wantLines = `gpu0 0 alloc 7f0000000000 4096 "lookup_table"
gpu0 1000 alloc 7f0000200000 2097152 [aten::empty < aten::addmm < forward]
gpu0 4000 alloc 7f0000400000 8388608 [libcublas.so.12 < cublasCreate_v2 < aten::addmm < forward]
gpu0 5000 alloc 7f0001000000 4194304 pool 5555 stream 7 [forward]
gpu0 6000 free 7f0001000000 4194304 pool 5555 stream 7 [forward]
gpu0 8000 free 7f0000200000 2097152 [forward]
host0 2000 alloc 7f1000000000 1048576 [forward]
`

func TestAnExportIsReadAsWhatTheDriverWasAskedFor(t *testing.T) {
	tr, err := nsys.ReadFile(t.Context(), export(t, training(t)))
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(tr); got != wantLines {
		t.Errorf("events:\n%s\nwant\n%s", got, wantLines)
	}
	d := tr.Devices[0]
	if d.Name != "NVIDIA H100 80GB HBM3" || d.TotalBytes != 85031714816 || len(tr.Devices) != 2 {
		t.Errorf("devices are %+v", tr.Devices)
	}
	if tr.Process.PID != maybe.Known(4242) || tr.Process.Host != "node-7" ||
		tr.Source.Tool != "Nsight Systems 2026.1.1.100" ||
		tr.Clock.Epoch != 1790000000000000000+1000 {
		t.Errorf("process %+v, tool %q, epoch %d", tr.Process, tr.Source.Tool, tr.Clock.Epoch)
	}
	var ops, marks []string
	for _, op := range tr.Ops {
		parent := ""
		if op.Parent != traces.NoOp {
			parent = " in " + tr.Text(tr.Ops[op.Parent].Name)
		}
		ops = append(ops, fmt.Sprintf("%d+%d %s on %d%s", op.Start, op.Duration, tr.Text(op.Name),
			tr.Streams[op.Stream], parent))
	}
	wantOps := []string{"700+400 aten::addmm on 0", "750+300 aten::empty on 0 in aten::addmm",
		"1500+400 void gemm<float, 128>(float*, float*) on 7", "3700+400 aten::addmm on 0",
		"4200+700 void gemm<float, 128>(float*, float*) on 7", "6600+100 Memcpy Host-to-Device on 14",
		"6800+10 Memset on 7", "7200+700 void gemm<float, 128>(float*, float*) on 7"}
	if !slices.Equal(ops, wantOps) {
		t.Errorf("ops:\n%s\nwant\n%s", strings.Join(ops, "\n"), strings.Join(wantOps, "\n"))
	}
	for _, m := range tr.Marks {
		marks = append(marks, fmt.Sprintf("%d %s", m.Start, tr.Text(m.Name)))
	}
	wantMarks := []string{"500 step 1", "600 forward", "3500 step 2", "3600 forward", "5600 step 3",
		"5700 forward",
		"8900 cudaMalloc found no memory"}
	if !slices.Equal(marks, wantMarks) {
		t.Errorf("marks: %q, want %q", marks, wantMarks)
	}
	lost := map[string]int64{}
	for _, l := range tr.Losses {
		lost[l.Name] = l.Count
	}
	if lost["other_processes"] != 1 || lost["events_unknown"] != 1 || len(lost) != 2 {
		t.Errorf("losses are %v", lost)
	}
}

func TestTheTimelineOfAnExport(t *testing.T) {
	tr, err := load.Open(t.Context(), export(t, training(t)), load.Options{NoCache: true})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := timeline.Build(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := tl.Main()
	if want := int64(4096 + 2097152 + 8388608 + 4194304); d.Totals.PeakAllocated != want ||
		d.Info.Name == "" {
		t.Errorf("the peak is %d, want %d, on %q", d.Totals.PeakAllocated, want, d.Info.Name)
	}
	if tr.Kind() != traces.Lifetimes || !strings.Contains(tr.Missing(), "asks the driver for") ||
		tr.OfPyTorch() {
		t.Errorf("kind %s, missing %q, of PyTorch %t", tr.Kind(), tr.Missing(), tr.OfPyTorch())
	}
	if got := len(steps.Of(d).List); got != 3 {
		t.Errorf("%d steps, want 3", got)
	}
}

// TestOlderAndLeanerExports: exports differ by version and by what was traced.
func TestOlderAndLeanerExports(t *testing.T) {
	for name, c := range map[string]struct{ change, want string }{
		"without optional tables": {`DROP TABLE StringIds; DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME;
			DROP TABLE NVTX_EVENTS; DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; DROP TABLE
			CUPTI_ACTIVITY_KIND_MEMCPY;
			DROP TABLE CUPTI_ACTIVITY_KIND_MEMSET; DROP TABLE TARGET_INFO_SESSION_START_TIME;
			DROP TABLE ENUM_CUDA_MEM_KIND; DROP TABLE ENUM_CUDA_DEV_MEM_EVENT_OPER; DROP TABLE
			META_DATA_EXPORT`,
			"gpu0 1000 alloc 7f0000200000 2097152\n"},
		"with other numbers for the enumerations": {`UPDATE ENUM_CUDA_MEM_KIND SET id = id + 70;
			UPDATE ENUM_CUDA_DEV_MEM_EVENT_OPER SET id = 14 - id; UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS
			SET memKind = memKind + 70, memoryOperationType = 14 - memoryOperationType`,
			"gpu0 1000 alloc 7f0000200000 2097152 [aten::empty < aten::addmm < forward]\n"},
		"with labels alone": {`UPDATE ENUM_CUDA_MEM_KIND SET name = NULL;
			UPDATE ENUM_CUDA_DEV_MEM_EVENT_OPER SET name = NULL`, "host0 2000 alloc 7f1000000000 1048576"},
		"before pools and processes": {`DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME;
			DELETE FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE bytes = 1000000;
			CREATE TABLE old AS SELECT start, bytes, memKind, memoryOperationType, address, deviceId
			FROM CUDA_GPU_MEMORY_USAGE_EVENTS; DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS;
			ALTER TABLE old RENAME TO CUDA_GPU_MEMORY_USAGE_EVENTS`, "gpu0 6000 free 7f0001000000 4194304\n"},
		"without ranges and backtraces": {`DROP TABLE NVTX_EVENTS; DROP TABLE CUDA_CALLCHAINS`,
			"gpu0 8000 free 7f0000200000 2097152 [cudaFree]\n"},
		"with frees that do not say a size": {`UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET bytes = 0
			WHERE memoryOperationType = 1`, "gpu0 8000 free 7f0000200000 2097152"},
	} {
		tr, err := nsys.ReadFile(t.Context(), export(t, training(t), c.change))
		if err != nil || !strings.Contains(lines(tr), c.want) {
			t.Errorf("%s: %v:\n%s\nwant among them\n%s", name, err, lines(tr), c.want)
		}
	}
}

func TestTheBusiestProcessIsShown(t *testing.T) {
	tr, err := nsys.ReadFile(t.Context(), export(t, training(t),
		`UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET bytes = bytes << 6, deviceId = 1 WHERE globalPid = 5151 <<
		24`))
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(tr); got != "gpu1 1500 alloc 7f0000200000 64000000\n" ||
		tr.Process.PID != maybe.Known(5151) {
		t.Errorf("process %v:\n%s", tr.Process.PID, got)
	}
}

func TestOtherDatabasesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ sql, want string }{
		"of another program": {`CREATE TABLE experiments (id INTEGER)`,
			"not one that Nsight Systems exported"},
		"without memory events": {`CREATE TABLE StringIds (id INTEGER, value TEXT)`,
			"--cuda-memory-usage=true"},
		"with an empty table": {training(t) + `DELETE FROM CUDA_GPU_MEMORY_USAGE_EVENTS`,
			"--cuda-memory-usage=true"},
		"without a column": {`CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER)`,
			"has no column bytes"},
		"a view that runs for ever": {`CREATE TABLE StringIds (id INTEGER, value TEXT);
			CREATE VIEW CUDA_GPU_MEMORY_USAGE_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT
			start FROM n)
			SELECT start, 1 AS bytes, 2 AS memKind, 0 AS memoryOperationType, 1 AS address FROM n`,
			"--cuda-memory-usage=true"},
		"a column that is computed": {`CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, memKind
		INTEGER,
			memoryOperationType INTEGER, address INTEGER, bytes INTEGER AS (length(hex(zeroblob(10000000)))));
			INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (1, 2, 0, 1)`, "has no column bytes"},
	} {
		tr, err := load.Open(t.Context(), export(t, c.sql), load.Options{NoCache: true})
		if tr != nil || err == nil || !strings.Contains(err.Error(), c.want) ||
			!errors.Is(err, traces.ErrFormat) && !errors.Is(err, traces.ErrUnsupported) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if (name == "of another program") != load.IsNoTrace(err) {
			t.Errorf("%s: no trace is %t", name, load.IsNoTrace(err))
		}
	}
}

func TestPackedExportsAndNothingBesideThem(t *testing.T) {
	path := export(t, training(t))
	plain, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	plain[18], plain[19] = 2, 2 // as if it had been written with a write-ahead log
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(plain)
	z.Close()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for name, b := range map[string][]byte{"plain": plain, "packed": packed.Bytes()} {
		if err := os.WriteFile(path, b, 0o400); err != nil {
			os.Remove(path)
			if err := os.WriteFile(path, b, 0o400); err != nil {
				t.Fatal(err)
			}
		}
		tr, err := load.Open(t.Context(), path, load.Options{NoCache: true})
		if err != nil || lines(tr) != wantLines {
			t.Errorf("%s: %v", name, err)
		}
		beside, _ := os.ReadDir(filepath.Dir(path))
		left, _ := os.ReadDir(dir)
		if len(beside) != 1 || len(left) != 0 {
			t.Errorf("%s: files left: %v, %v", name, beside, left)
		}
		os.Chmod(path, 0o600)
	}
}

// TestDamagedExportsAreErrors damages copies of an export in many ways: each is read, in full or up to the
// damage, or refused.
func TestDamagedExportsAreErrors(t *testing.T) {
	path := export(t, training(t))
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	refused, partial := 0, 0
	for i := range 600 {
		b := bytes.Clone(sound)
		if i%3 == 0 {
			b = b[:random.IntN(len(b))]
		} else {
			for range 1 + random.IntN(40) {
				b[16+random.IntN(len(b)-16)] = byte(random.Uint32())
			}
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		tr, err := nsys.ReadFile(t.Context(), path)
		switch {
		case err != nil && !errors.Is(err, traces.ErrFormat) && !errors.Is(err, traces.ErrUnsupported):
			t.Fatalf("damage %d: %v", i, err)
		case tr == nil && err == nil:
			t.Fatalf("damage %d: neither a trace nor an error", i)
		case tr == nil:
			refused++
		case err != nil:
			partial++
			if !tr.Cut() {
				t.Errorf("damage %d: %v, and the trace does not say so", i, err)
			}
		}
	}
	if refused < 100 || partial < 50 {
		t.Errorf("%d refused and %d read in part: too few to show anything", refused, partial)
	}
}

func TestReadingEndsWhenItIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if tr, err := nsys.ReadFile(ctx, export(t, training(t))); tr != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", tr, err)
	}
}

func FuzzRead(f *testing.F) {
	b, err := os.ReadFile(export(f, training(f)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		tr, err := nsys.Read(t.Context(), bytes.NewReader(b), nil)
		if tr == nil && err == nil {
			t.Error("neither a trace nor an error")
		}
	})
}
