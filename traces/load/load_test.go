package load_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/load"
)

const problem = "id,lower,upper,size\na,0,4,100\nb,2,6,50\n"

func gz(t testing.TB, data string) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := io.WriteString(z, data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func zst(t testing.TB, data string) string {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return string(z.EncodeAll([]byte(data), nil))
}

func zipped(t testing.TB, members map[string]string) string {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for name, data := range members {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func native(t testing.TB) string {
	t.Helper()
	tr, err := load.Open(context.Background(), "-", load.Options{Stdin: strings.NewReader(problem)})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := gmt.Write(context.Background(), &out, tr); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func write(t testing.TB, path, data string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheContentDecidesNotTheName(t *testing.T) {
	for name, c := range map[string]struct {
		data   string
		format string
		events int
	}{
		"plain.pickle": {problem, "minimalloc_csv", 4},
		"gzip.csv":     {gz(t, problem), "minimalloc_csv", 4},
		"zstd":         {zst(t, problem), "minimalloc_csv", 4},
		"gzip in gzip": {gz(t, gz(t, problem)), "minimalloc_csv", 4},
		"zip": {zipped(t, map[string]string{"README": "hello", "d/p": problem}),
			"minimalloc_csv", 4},
		"gzip in zip": {zipped(t, map[string]string{"p.gz": gz(t, problem), "__MACOSX/p": problem}),
			"minimalloc_csv", 4},
		"native":         {native(t), "minimalloc_csv", 4},
		"native in zstd": {zst(t, native(t)), "minimalloc_csv", 4},
		"profile.csv":    {`[[-1, 1, 4096, 0], [5, 2, 512, 3]]`, "memory_timeline", 2},
		"layers": {"node1 -- A -- forward_compute_time=1, backward_compute_time=2, " +
			"activation_size=100, parameter_size=0\n", "pipedream", 4},
		"operations.jsonl": {"Malloc 0x1 2 1529635706083534856\n", "smartpool_text", 1},
		"a page.txt": {"<!DOCTYPE html>\nconst local_files = [{\"base64\": \"" +
			base64.StdEncoding.EncodeToString([]byte(`{"device_traces": [[{"action": "alloc"}]]}`)) +
			"\"}]", "torch_snapshot", 1},
		"snapshot.csv": {`{"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 2, ` +
			`"stream": 0, "time_us": 1}]]}`, "torch_snapshot", 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, filepath.Join(t.TempDir(), name), c.data)
			tr, err := load.Open(t.Context(), path, load.Options{NoCache: true})
			if err != nil {
				t.Fatal(err)
			}
			if tr.Source.Format != c.format || tr.Events.Len() != c.events || tr.Source.Path != path ||
				tr.Source.Bytes != int64(len(c.data)) {
				t.Errorf("got %+v with %d events; want %s with %d, %d bytes", tr.Source, tr.Events.Len(),
					c.format, c.events, len(c.data))
			}
			tr, err = load.Open(t.Context(), "-", load.Options{Stdin: strings.NewReader(c.data)})
			if err != nil {
				t.Fatalf("from standard input: %v", err)
			}
			if tr.Source.Path != "-" || tr.Events.Len() != c.events || tr.Source.Bytes != int64(len(c.data)) {
				t.Errorf("from standard input: %+v with %d events", tr.Source, tr.Events.Len())
			}
		})
	}
}

func TestBadInputGetsOneSentence(t *testing.T) {
	cut := gz(t, problem+strings.Repeat("c,0,1,8\n", 10000))
	for name, c := range map[string]struct {
		data string
		want string
		is   error
	}{
		"empty":         {"", "the file is empty", traces.ErrFormat},
		"empty in gzip": {gz(t, ""), "the file is empty", traces.ErrFormat},
		"noise":         {"\x00\xff\x13\x37noise", `begins with "\x00\xff\x137noise"`, traces.ErrFormat},
		"lfs": {"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n",
			"git lfs pull", traces.ErrFormat},
		"two in a zip": {zipped(t, map[string]string{"a": problem, "b": problem}),
			"holds 2 traces where one is expected", traces.ErrFormat},
		"a checkpoint": {zipped(t, map[string]string{"ckpt/data.pkl": "x", "ckpt/data/0": "y"}),
			"; torch.cuda.memory._dump_snapshot writes", traces.ErrFormat},
		"none in a zip": {zipped(t, map[string]string{"a": "hello"}), "the archive holds no trace",
			traces.ErrFormat},
		"cut zip":  {zipped(t, map[string]string{"a": problem})[:60], "cannot be unpacked", traces.ErrFormat},
		"cut gzip": {cut[:len(cut)-20], "cut or damaged", traces.ErrFormat},
		"cut zstd": {zst(t, problem)[:12], "cut or damaged", traces.ErrFormat},
		"arrow's file": {"ARROW1\x00\x00\xff\xff\xff\xff",
			"Apache Arrow, but not like a gmemtop recording", traces.ErrFormat},
		"a usage report": {"Memory Space: default\n", "ends in buffer-assignment.txt", traces.ErrFormat},
		"a web page": {"<!DOCTYPE html>\n<html><body><img src=\"data:image/png;base64,iVBO\"></body></html>",
			"a web page without a memory snapshot", traces.ErrFormat},
		"a pickle": {"\x80\x04}\x94\x8c\x05epochK\x03s.", "a Python pickle, but not a memory snapshot",
			traces.ErrFormat},
		"a small bomb": {gz(t, "id,lower,upper,size\n"+strings.Repeat(" \n", 9<<20)),
			"set " + load.MaxBytesVariable, traces.ErrFormat},
		"four layers": {gz(t, gz(t, gz(t, gz(t, problem)))), "compressed more than three times",
			traces.ErrFormat},
		"no memory": {`{"schemaVersion": 1, "traceEvents": []}`, "profile_memory=True",
			traces.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load.Open(t.Context(), write(t, filepath.Join(t.TempDir(), "f"), c.data),
				load.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.is) {
				t.Fatalf("got %v; want a %v with %q", err, c.is, c.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			if strings.HasSuffix(name, "in a zip") && strings.Contains(err.Error(), "fetch it again") {
				t.Errorf("a sound archive is reported as cut: %v", err)
			}
		})
	}
}

func TestMissingFoldersAndPermission(t *testing.T) {
	dir := t.TempDir()
	if _, err := load.Open(t.Context(), filepath.Join(dir, "none"), load.Options{}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := load.Open(t.Context(), dir, load.Options{}); !errors.Is(err, traces.ErrUnsupported) {
		t.Errorf("a folder: %v", err)
	}
	closed := write(t, filepath.Join(dir, "closed"), problem)
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(closed); err == nil {
		f.Close()
		t.Skip("needs a user other than root: root may read every file")
	}
	if _, err := load.Open(t.Context(), closed, load.Options{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a file without permission: %v", err)
	}
}

func TestBombsAreRefusedAndTheOverrideIsNamed(t *testing.T) {
	bomb := gz(t, `{"schemaVersion": `+strings.Repeat(" ", 80<<20)+`1, "traceEvents": []}`)
	path := write(t, filepath.Join(t.TempDir(), "bomb"), bomb)
	_, err := load.Open(t.Context(), path, load.Options{})
	if !errors.Is(err, traces.ErrFormat) || !strings.Contains(err.Error(), load.MaxBytesVariable) {
		t.Errorf("an 80 MiB bomb of %d bytes: %v", len(bomb), err)
	}
	t.Setenv(load.MaxBytesVariable, "100000000")
	if _, err := load.Open(t.Context(), path, load.Options{}); !errors.Is(err, traces.ErrUnsupported) {
		t.Errorf("with the override: %v", err)
	}
	t.Setenv(load.MaxBytesVariable, "1000")
	if _, err := load.Open(t.Context(), path, load.Options{}); !errors.Is(err, traces.ErrFormat) {
		t.Errorf("with an override of 1000 bytes: %v", err)
	}
	t.Setenv(load.MaxBytesVariable, "many")
	if _, err := load.Open(t.Context(), path, load.Options{}); err == nil ||
		!strings.Contains(err.Error(), `"many"`) {
		t.Errorf("with a senseless override: %v", err)
	}
}

func TestAWrongChecksumAfterTheTraceIsDetected(t *testing.T) {
	snapshot :=
		`{"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 2, ` +
			`"stream": 0, "time_us": 1}]]}`
	packed := []byte(gz(t, snapshot))
	packed[len(packed)-8] ^= 1 // of the checksum at the end
	tr, err := load.Open(t.Context(), write(t, filepath.Join(t.TempDir(), "f"), string(packed)),
		load.Options{})
	if !errors.Is(err, traces.ErrFormat) || tr == nil || tr.Events.Len() != 1 {
		t.Fatalf("got %v, %v; want the trace beside an error", tr, err)
	}
}

func TestTornInputGivesTheSoundPart(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "torn"), problem+"c,0,")
	tr, err := load.Open(t.Context(), path, load.Options{})
	if !errors.Is(err, traces.ErrFormat) || tr == nil || tr.Events.Len() != 4 || tr.Source.Path != path {
		t.Fatalf("got %v, %v", tr, err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := write(t, filepath.Join(t.TempDir(), "p"), problem)
	if _, err := load.Open(ctx, path, load.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	if _, err := load.OpenRun(ctx, []string{filepath.Dir(path)}, load.Options{}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("OpenRun: %v", err)
	}
}

func TestProgressEndsAtTheFilesSize(t *testing.T) {
	data := gz(t, problem+strings.Repeat("c,0,1,8\n", 100000))
	path := write(t, filepath.Join(t.TempDir(), "p"), data)
	var done, total int64
	_, err := load.Open(t.Context(), path,
		load.Options{NoCache: true, Progress: func(stage string, d, n int64) {
			if stage != load.StageRead || d < done {
				t.Errorf("stage %s at %d after %d", stage, d, done)
			}
			done, total = d, n
		}})
	if err != nil || done != int64(len(data)) || total != done {
		t.Fatalf("%d of %d, want %d: %v", done, total, len(data), err)
	}
}

func TestARunIsOrderedByRank(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"rank_10.csv", "rank2/trace.csv", "x_r3.csv", "trace.1.json",
		"Rank-0_host.csv", "later"} {
		write(t, filepath.Join(dir, name), fmt.Sprintf("%sc,0,1,%d\n", problem, i+1))
	}
	write(t, filepath.Join(dir, "profile"),
		`{"schemaVersion": 1, "distributedInfo": {"rank": 7}, "traceEvents": [{"ph": "i", "name": "[memory]",
		"pid": 1, "tid": 1, "ts": 10, "args": {"Device Type": 1, "Device Id": 0, "Addr": 4096, "Bytes": 64}}]}`)
	write(t, filepath.Join(dir, "README.md"), "hello")
	write(t, filepath.Join(dir, ".hidden"), problem)
	write(t, filepath.Join(dir, "empty"), "")
	write(t, filepath.Join(dir, "torn_r4"), problem+"c,")
	skipped := 0
	found, err := load.OpenRun(t.Context(), []string{dir},
		load.Options{Skipped: func(string, error) { skipped++ }})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		rel, _ := filepath.Rel(dir, f.Path)
		got = append(got, fmt.Sprintf("%v %s %v", f.Rank, filepath.ToSlash(rel), f.Err != nil))
	}
	want := "0 Rank-0_host.csv false,1 trace.1.json false,2 rank2/trace.csv false,3 x_r3.csv false,4 " +
		"torn_r4 true,7 profile false," +
		"10 rank_10.csv false,unknown later false"
	if strings.Join(got, ",") != want || skipped != 2 {
		t.Errorf("got %q, skipped %d\nwant %q, 2", got, skipped, want)
	}
}

func TestRunsWithoutTraces(t *testing.T) {
	dir := t.TempDir()
	if _, err := load.OpenRun(t.Context(), []string{dir}, load.Options{}); !errors.Is(err,
		traces.ErrUnsupported) {
		t.Errorf("an empty folder: %v", err)
	}
	path := write(t, filepath.Join(dir, "README.md"), "hello")
	if _, err := load.OpenRun(t.Context(), []string{dir}, load.Options{}); !errors.Is(err,
		traces.ErrUnsupported) {
		t.Errorf("a folder of other files: %v", err)
	}
	_, err := load.OpenRun(t.Context(), []string{path}, load.Options{})
	if !errors.Is(err, traces.ErrFormat) || !load.IsNoTrace(err) {
		t.Errorf("a named file that is not a trace: %v", err)
	}
	if _, err := load.OpenRun(t.Context(), []string{filepath.Join(dir, "none")},
		load.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
}

// Every real file is a trace, except for the notes beside them, a load curve and a profile recorded without
// memory events.
func TestRealFiles(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: real files")
	}
	opened, unsupported, unknown := 0, 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		tr, err := load.Open(t.Context(), path, load.Options{NoCache: true})
		switch {
		case err == nil && tr.Source.Bytes > 0 && (tr.Events.Len() > 0 || tr.Final.Known):
			opened++
		case errors.Is(err, traces.ErrUnsupported):
			unsupported++
		case load.IsNoTrace(err):
			unknown++
		default:
			t.Errorf("%s: %v", filepath.Base(filepath.Dir(path)), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if opened < 35 || unsupported != 2 || unknown != 1 {
		t.Errorf("%d opened, %d unsupported, %d unknown", opened, unsupported, unknown)
	}
}

func FuzzOpen(f *testing.F) {
	for _, s := range []string{problem, gz(f, problem), zst(f, problem),
		zipped(f, map[string]string{"p": problem, "q": "x"}),
		native(f), "", "\x0a\x04\x08\x01\x10\x02"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := load.Open(t.Context(), "-", load.Options{Stdin: bytes.NewReader(data), MaxBytes: 16 << 20})
		if tr == nil && err == nil {
			t.Fatal("neither a trace nor an error")
		}
	})
}
