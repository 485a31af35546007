package gmt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

// python returns the interpreter that has the Arrow readers, GMEMTOP_PYTHON or python3, and skips where a
// module is missing.
func python(t *testing.T, modules ...string) string {
	t.Helper()
	name := os.Getenv("GMEMTOP_PYTHON")
	if name == "" {
		name = "python3"
	}
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("needs python3: there is no %s (GMEMTOP_PYTHON names another)", name)
	}
	for _, m := range modules {
		if err := exec.Command(name, "-c", "import "+m).Run(); err != nil {
			t.Skipf("needs the Python package %s: %s lacks it (GMEMTOP_PYTHON names another)", m, name)
		}
	}
	return name
}

// runPython runs a program in a folder that holds data as run.gmt and returns what it prints.
func runPython(t *testing.T, interpreter, program string, data []byte) string {
	t.Helper()
	cmd := exec.Command(interpreter, "-c", program)
	cmd.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(cmd.Dir, "run.gmt"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// documented returns the Python programs of docs/format.md, in order.
func documented(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "format.md"))
	if err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, m := range regexp.MustCompile("(?s)```python\n(.*?)```").FindAllSubmatch(doc, -1) {
		programs = append(programs, string(m[1]))
	}
	if len(programs) != 3 {
		t.Fatalf("docs/format.md has %d programs", len(programs))
	}
	return programs
}

func TestTheDocumentedPandasProgramFindsThePeak(t *testing.T) {
	interpreter := python(t, "pyarrow", "pandas")
	tr := trainingTrace(40_000, 1)
	sum, peak, at := int64(0), int64(-1), 0
	for i := range tr.Events.Len() {
		e := tr.Events.At(i)
		switch {
		case e.Action == traces.Alloc:
			sum += e.Size
		case e.Action.IsFreeRequest():
			sum -= e.Size
		}
		if sum > peak {
			peak, at = sum, i
		}
	}
	var frames []string
	for _, id := range tr.Stacks.At(tr.Events.Stack[at]) {
		fn, file, line := tr.FrameText(id)
		frames = append(frames, fmt.Sprintf("%s (%s:%d)", fn, file, line))
	}
	want := fmt.Sprintf("%d %d %s\n", tr.Events.Len(), peak, strings.Join(frames, ";"))
	if got := runPython(t, interpreter, documented(t)[0], written(t, tr)); got != want {
		t.Errorf("pandas says %q, want %q", got, want)
	}
}

func TestTheDocumentedPolarsProgramSumsByDevice(t *testing.T) {
	interpreter := python(t, "polars")
	tr := randomTrace(3, 40_000)
	var count, sum [3]int64
	for i, a := range tr.Events.Action {
		tr.Events.Size[i] >>= 20 // polars sums in 64 bits
		if a == traces.Alloc {
			count[tr.Events.Device[i]]++
			sum[tr.Events.Device[i]] += tr.Events.Size[i]
		}
	}
	want := ""
	for d := range count {
		want += fmt.Sprintln(d, count[d], sum[d])
	}
	if got := runPython(t, interpreter, documented(t)[1], written(t, tr)); got != want {
		t.Errorf("polars says %q, want %q", got, want)
	}
}

func TestTheDocumentedDuckDBProgramCountsKinds(t *testing.T) {
	interpreter := python(t, "duckdb", "pyarrow")
	tr := randomTrace(3, 40_000)
	var count, first, last [12]int64
	for i, a := range tr.Events.Action {
		now := tr.Events.Time[i]
		if count[a] == 0 {
			first[a], last[a] = now, now
		}
		count[a]++
		first[a], last[a] = min(first[a], now), max(last[a], now)
	}
	want := ""
	for a := range count {
		want += fmt.Sprintln(a, count[a], first[a], last[a])
	}
	if got := runPython(t, interpreter, documented(t)[2], written(t, tr)); got != want {
		t.Errorf("DuckDB says %q, want %q", got, want)
	}
}

// A recording has batches of every class and size, and a repaired one ends with a chunk that the recorder did
// not write.
func TestPyarrowAndPolarsReadEveryRowOfARecordingAndOfARepairedOne(t *testing.T) {
	interpreter := python(t, "pyarrow", "polars")
	data := recorded(t, randomTrace(5, 3000), 170)
	var repaired bytes.Buffer
	if _, err := Repair(t.Context(), bytes.NewReader(data), int64(len(data)*2/3), &repaired); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"recorded": data, "repaired": repaired.Bytes()} {
		rows := 0
		for _, c := range scan(data).chunks {
			rows += c.rows
		}
		tr, err := read(data)
		if err != nil {
			t.Fatal(err)
		}
		sum := uint64(0)
		for _, a := range tr.Events.Addr {
			sum += a >> 20
		}
		program := `
import pyarrow as pa, polars as pl
with open("run.gmt", "rb") as f:
    t = pa.ipc.open_stream(f).read_all()
t.validate(full=True)
k, a = t["kind"].to_numpy(), t["address"].to_numpy()
print(t.num_rows, (a[k < 100] >> 20).sum(), "".join(s for s, i in zip(t["text"].to_pylist(), k) if i == 201))
p = pl.read_ipc_stream("run.gmt")
e = p.filter(pl.col("kind") < 100)
print(p.height, (e["address"] // 1048576).sum(), "".join(p.filter(pl.col("kind") == 201)["text"]))
`
		var text strings.Builder
		for _, s := range tr.Strings {
			text.WriteString(escape(s))
		}
		want := fmt.Sprintln(rows, sum, text.String())
		if got := runPython(t, interpreter, program, data); got != want+want {
			t.Errorf("%s: got %.300q, want %.300q twice", name, got, want)
		}
	}
}
