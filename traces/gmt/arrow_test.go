package gmt

import (
	"bytes"
	"errors"
	goflag "flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/traces"
)

var updateArrow = goflag.Bool("update-arrow", false, "write testdata/arrow again, with pyarrow")

// rewrite writes run.gmt again in every form that pyarrow has, as FORM.arrow.
const rewrite = `
import pyarrow as pa
from pyarrow import feather, ipc
with open("run.gmt", "rb") as f:
    t = ipc.open_stream(f).read_all()
forms = {"stream": ipc.new_stream, "file": ipc.new_file}
for form, open_writer in forms.items():
    for codec in (None, "lz4", "zstd"):
        with open(f"{form}-{codec or 'none'}.arrow", "wb") as f, \
                open_writer(f, t.schema, options=ipc.IpcWriteOptions(compression=codec)) as w:
            w.write_table(t)
with open("pieces.arrow", "wb") as f, ipc.new_stream(f, t.schema) as w:
    w.write_table(t.combine_chunks(), max_chunksize=100)
with open("slices.arrow", "wb") as f, ipc.new_stream(f, t.schema) as w:
    whole = t.combine_chunks()
    for i in range(0, len(t), 77):
        w.write_table(whole.slice(i, 77))
with open("bare.arrow", "wb") as f, ipc.new_stream(f, t.schema.remove_metadata()) as w:
    w.write_table(t.replace_schema_metadata(None))
feather.write_feather(t, "feather.arrow")
`

// rewritten returns what pyarrow makes of a recording, by form.
func rewritten(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	program := rewrite + `
import base64, glob
for name in sorted(glob.glob("*.arrow")):
    with open(name, "rb") as f:
        print(name, base64.b16encode(f.read()).decode())
`
	out := map[string][]byte{}
	for line := range strings.Lines(runPython(t, python(t, "pyarrow"), program, data)) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		var b []byte
		if _, err := fmt.Sscanf(digits, "%X", &b); err != nil {
			t.Fatal(err)
		}
		out[name] = b
	}
	return out
}

// checkArrow reads a rewritten recording, which must be the trace that our own file gives.
func checkArrow(t *testing.T, name string, data, ours []byte) {
	t.Helper()
	want, err := read(ours)
	if err != nil {
		t.Fatal(err)
	}
	if !SniffArrow(data[:min(len(data), 64<<10)]) || Sniff(data) {
		t.Errorf("%s: it is not recognised", name)
	}
	got, err := ReadArrow(t.Context(), bytes.NewReader(data), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: another trace", name)
	}
}

func TestWhatPyarrowWritesAgainIsTheSameRecording(t *testing.T) {
	for name, tr := range map[string]*traces.Trace{"every table": randomTrace(4, 3000),
		"a training": trainingTrace(40_000, 1)} {
		ours := written(t, tr)
		forms := rewritten(t, ours)
		if len(forms) != 10 {
			t.Errorf("%s: pyarrow wrote %d forms", name, len(forms))
		}
		for form, data := range forms {
			checkArrow(t, name+" as "+form, data, ours)
		}
	}
}

// TestKeptFilesOfPyarrow needs no pyarrow: testdata/arrow has what it wrote.
func TestKeptFilesOfPyarrow(t *testing.T) {
	ours := written(t, randomTrace(6, 40))
	if *updateArrow {
		forms := rewritten(t, ours)
		for _, name := range []string{"file-lz4.arrow", "stream-none.arrow", "stream-zstd.arrow",
			"slices.arrow"} {
			data := forms[name]
			if err := os.WriteFile(filepath.Join("testdata", "arrow", name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, data := range kept(t) {
		checkArrow(t, name, data, ours)
	}
}

// kept returns the files of testdata/arrow.
func kept(t testing.TB) map[string][]byte {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("testdata", "arrow", "*.arrow"))
	if len(files) == 0 {
		t.Fatal("testdata/arrow is empty")
	}
	out := map[string][]byte{}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(path)] = b
	}
	return out
}

// TestDamagedFilesOfPyarrowAreErrors cuts and changes them: each is read in full, in part with an error, or
// refused.
func TestDamagedFilesOfPyarrowAreErrors(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, sound := range kept(t) {
		refused := 0
		for i := range 300 {
			b := bytes.Clone(sound)
			if i%2 == 0 {
				b = b[:random.IntN(len(b))]
			} else {
				for range 1 + random.IntN(8) {
					b[random.IntN(len(b))] = byte(random.Uint32())
				}
			}
			tr, err := ReadArrow(t.Context(), bytes.NewReader(b), nil)
			if err != nil && !errors.Is(err, traces.ErrFormat) && !errors.Is(err, traces.ErrUnsupported) {
				t.Fatalf("%s, damage %d: %v", name, i, err)
			}
			if tr == nil && err == nil {
				t.Fatalf("%s, damage %d: neither a trace nor an error", name, i)
			}
			if err != nil {
				refused++
			}
		}
		if refused < 100 {
			t.Errorf("%s: only %d of 300 were noticed", name, refused)
		}
	}
}

// TestRowsInAnotherOrderAreRefused: numbers of definitions follow from their order.
func TestRowsInAnotherOrderAreRefused(t *testing.T) {
	program := `
import base64, pyarrow as pa
from pyarrow import ipc
with open("run.gmt", "rb") as f:
    t = ipc.open_stream(f).read_all()
sink = pa.BufferOutputStream()
with ipc.new_stream(sink, t.schema) as w:
    w.write_table(t.sort_by("kind"))
print(base64.b16encode(sink.getvalue().to_pybytes()).decode())
`
	var b []byte
	out := runPython(t, python(t, "pyarrow"), program, written(t, randomTrace(4, 300)))
	if _, err := fmt.Sscanf(out, "%X", &b); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadArrow(t.Context(), bytes.NewReader(b), nil); !errors.Is(err, traces.ErrFormat) ||
		!strings.Contains(err.Error(), "keep all rows in their order") {
		t.Errorf("sorted by kind: %v", err)
	}
}

func FuzzReadArrow(f *testing.F) {
	for _, b := range kept(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		SniffArrow(b)
		tr, err := ReadArrow(t.Context(), bytes.NewReader(b), nil)
		if tr == nil && err == nil {
			t.Error("neither a trace nor an error")
		}
	})
}
