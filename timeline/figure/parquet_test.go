package figure_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/figure"
	"github.com/gmemtop/gmemtop/traces"
)

// compareTables reads both tables with pyarrow and Python's csv and prints the number of rows when every cell
// agrees.
const compareTables = `
import csv, sys
import pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
table.validate(full=True)
want = list(csv.DictReader(open(sys.argv[2], newline="", encoding="utf-8")))
assert table.num_rows == len(want), (table.num_rows, len(want))
assert table.column_names == list(want[0]) if want else True
for name in table.column_names:
    for i, got in enumerate(table.column(name).to_pylist()):
        text = want[i][name]
        if name == "address":
            text = str(int(text, 16))
        shown = "" if got is None else str(got).lower() if isinstance(got, bool) else str(got)
        assert shown == text, (name, i, got, text)
print(table.num_rows)
`

func TestPyarrowReadsTheSameFromParquetAsFromCSV(t *testing.T) {
	python := os.Getenv("GMEMTOP_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow.parquet").Run(); err != nil {
		t.Skipf("needs the Python package %s: %s lacks it (GMEMTOP_PYTHON names another)", "pyarrow", python)
	}
	for name, n := range map[string]int{"no rows": 0, "one row": 1, "more than a row group": 1<<17 + 77} {
		t.Run(name, func(t *testing.T) {
			d := manyBlocks(t, n)
			dir := t.TempDir()
			files := map[string]func(context.Context, *bytes.Buffer) error{
				"t.parquet": func(ctx context.Context, b *bytes.Buffer) error {
					return figure.Parquet(ctx, b, d, figure.Options{})
				},
				"t.csv": func(ctx context.Context, b *bytes.Buffer) error {
					return figure.CSV(ctx, b, d, figure.Options{})
				},
			}
			for file, write := range files {
				var b bytes.Buffer
				if err := write(context.Background(), &b); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), b.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command(python, "-c", compareTables, filepath.Join(dir, "t.parquet"),
				filepath.Join(dir, "t.csv")).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// manyBlocks is a device with n allocations: every third is never freed, the first predates the recording,
// names are not ASCII.
func manyBlocks(t *testing.T, n int) *timeline.Device {
	t.Helper()
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	stack := b.Stack([]traces.FrameID{b.Frame(traces.Frame{File: b.String("modèle.py"),
		Func: b.String("forward"), Line: 7})})
	for i := range n {
		addr := uint64(i+1)<<9 | 1<<63
		if i > 0 {
			b.Event(traces.Event{Time: int64(2 * i), Action: traces.Alloc, Addr: addr, Size: int64(i % 4096),
				Stack: stack, Device: dev})
		}
		if i%3 != 1 {
			b.Event(traces.Event{Time: int64(2*i + 1), Action: traces.Free, Addr: addr, Size: int64(i % 4096),
				Stack: stack, Device: dev})
		}
	}
	tl, err := timeline.Build(context.Background(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Devices[0]
}
