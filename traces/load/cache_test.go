package load

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// large writes a problem that is large enough to be cached.
func large(t testing.TB, path string) {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("id,lower,upper,size\n")
	for i := range 120_000 {
		fmt.Fprintf(&b, "%d,%d,%d,%d\n", i%10, i, i+10, 512+i%7)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// stages opens a file and returns the stages that its progress went through.
func stages(t *testing.T, path string, o Options) (*traces.Trace, map[string]bool) {
	t.Helper()
	seen := map[string]bool{}
	o.Progress = func(stage string, _, _ int64) { seen[stage] = true }
	tr, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	Wait(time.Minute)
	return tr, seen
}

// same reports whether two traces agree in what a problem has.
func same(a, b *traces.Trace) bool {
	return a.Source == b.Source && a.Clock == b.Clock && slices.Equal(a.Devices, b.Devices) &&
		slices.Equal(a.Strings, b.Strings) && slices.Equal(a.Details, b.Details) &&
		slices.Equal(a.Events.Time, b.Events.Time) && slices.Equal(a.Events.Addr, b.Events.Addr) &&
		slices.Equal(a.Events.Size, b.Events.Size) && slices.Equal(a.Events.Detail, b.Events.Detail) &&
		slices.Equal(a.Events.Action, b.Events.Action)
}

func TestTheSecondOpenReadsTheCopy(t *testing.T) {
	path, o := filepath.Join(t.TempDir(), "p"), Options{cacheDir: filepath.Join(t.TempDir(), "deep", "cache")}
	large(t, path)
	first, seen := stages(t, path, o)
	if seen[StageCache] {
		t.Fatal("the first open reads a copy")
	}
	second, seen := stages(t, path, o)
	if seen[StageRead] || !seen[StageCache] {
		t.Fatalf("the progress of the second open was %v", seen)
	}
	if !same(first, second) {
		t.Error("the copy differs from the trace")
	}
	if _, seen := stages(t, path, Options{cacheDir: o.cacheDir, NoCache: true}); seen[StageCache] {
		t.Error("with NoCache the copy was read")
	}
	info, err := os.Stat(o.cacheDir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of copies: %v, %v", info, err)
	}
}

func TestAChangedFileIsReadAgain(t *testing.T) {
	path, o := filepath.Join(t.TempDir(), "p"), Options{cacheDir: t.TempDir()}
	large(t, path)
	stages(t, path, o)
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	if _, seen := stages(t, path, o); seen[StageCache] {
		t.Error("a file with another time was taken for the old one")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("9"), 20); err != nil { // the first row's id
		t.Fatal(err)
	}
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	if _, seen := stages(t, path, o); seen[StageCache] {
		t.Error("a file with another beginning was taken for the old one")
	}
}

func TestADamagedCopyIsRemovedAndTheFileRead(t *testing.T) {
	path, o := filepath.Join(t.TempDir(), "p"), Options{cacheDir: t.TempDir()}
	large(t, path)
	first, _ := stages(t, path, o)
	copies, err := filepath.Glob(filepath.Join(o.cacheDir, "*"+cacheSuffix))
	if err != nil || len(copies) != 1 {
		t.Fatalf("copies %v: %v", copies, err)
	}
	data, err := os.ReadFile(copies[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(copies[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	second, seen := stages(t, path, o)
	if !seen[StageRead] || !same(first, second) {
		t.Errorf("the progress was %v", seen)
	}
}

func TestTornAndSmallInputIsNotCached(t *testing.T) {
	path, o := filepath.Join(t.TempDir(), "p"), Options{cacheDir: t.TempDir()}
	large(t, path)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("torn,1"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := Open(t.Context(), path, o); err == nil {
		t.Fatal("a torn line was accepted")
	}
	small := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(small, []byte("id,lower,upper,size\na,0,1,2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stages(t, small, o)
	entries, err := os.ReadDir(o.cacheDir)
	if err != nil || len(entries) != 0 {
		t.Errorf("the cache holds %v: %v", entries, err)
	}
}

func TestAnUnwritableCacheIsNotAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	large(t, file)
	stages(t, file, Options{cacheDir: filepath.Join(file, "below a file")})
}

func TestEvictionKeepsTheMostRecentlyUsed(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for i, name := range []string{"c.gmt", "a.gmt", "b.gmt", partialPrefix + "new", "other.txt"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		used := now.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(path, used, used); err != nil {
			t.Fatal(err)
		}
	}
	evict(dir, 200)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, e := range entries {
		got += e.Name() + " "
	}
	if want := "a.gmt b.gmt other.txt " + partialPrefix + "new "; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
}

// TestOpeningAFileSweepsTheLeftoversOfKilledWriters: that does not need a new copy.
func TestOpeningAFileSweepsTheLeftoversOfKilledWriters(t *testing.T) {
	path, o := filepath.Join(t.TempDir(), "p"), Options{cacheDir: t.TempDir()}
	large(t, path)
	stages(t, path, o)
	old, fresh := filepath.Join(o.cacheDir, partialPrefix+"old"),
		filepath.Join(o.cacheDir, partialPrefix+"new")
	for _, p := range []string{old, fresh} {
		if err := os.WriteFile(p, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * partialAge)
	if err := os.Chtimes(old, long, long); err != nil {
		t.Fatal(err)
	}
	if _, seen := stages(t, path, o); !seen[StageCache] {
		t.Error("the second open reads no copy")
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("the leftover is still there")
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("the file of an active writer is gone: %v", err)
	}
}

// TestAnAbandonedCopyLeavesNoFile: a program that ends while it writes a copy removes the part that it wrote.
func TestAnAbandonedCopyLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	f, err := os.CreateTemp(dir, partialPrefix)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	partials.Store(f.Name(), nil)
	defer partials.Delete(f.Name())
	writes.Add(1)
	defer writes.Done()
	Wait(time.Millisecond)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestRankOfName(t *testing.T) {
	for name, want := range map[string]int64{
		"rank_3.pickle": 3, "snapshot-rank12.json.gz": 12, "a_r7.pkl": 7, "s.5.pickle": 5, "rank0": 0,
		"RANK 4.csv": 4, "host_123.1623143089861.pt.trace.json": -1, "snapshot_200.pickle": -1, "prank3": -1,
		"trace.json": -1,
	} {
		if got := rankOfName(name); got != maybe.NonNegative(want) {
			t.Errorf("%s: %v, want %d", name, got, want)
		}
	}
	if got := rankOfName(filepath.Join("rank_9", "trace.json")); got != maybe.Known(9) {
		t.Errorf("a folder's rank: %v", got)
	}
	if got := rankOfName(filepath.Join("r2", "trace.json")); got.IsKnown() {
		t.Errorf("a folder r2 makes its files rank %v", got)
	}
}

func BenchmarkOpenCopy(b *testing.B) {
	path, o := filepath.Join(b.TempDir(), "p"), Options{cacheDir: b.TempDir()}
	large(b, path)
	if _, err := Open(b.Context(), path, o); err != nil {
		b.Fatal(err)
	}
	Wait(time.Minute)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Open(b.Context(), path, o); err != nil {
			b.Fatal(err)
		}
	}
}
