package timelinetest

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/paper"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// shared opens a file in the folder GMEMTOP_TRACES by the pattern of its role, and skips the test without the
// folder.
func shared(t testing.TB, pattern string) io.Reader {
	t.Helper()
	dir := os.Getenv("GMEMTOP_TRACES")
	if dir == "" {
		t.Skip("needs GMEMTOP_TRACES: traces recorded by others")
	}
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		t.Skipf("needs %s in the folder that GMEMTOP_TRACES names", pattern)
	}
	f, err := os.Open(found[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if !strings.HasSuffix(found[0], ".gz") {
		return f
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// Sample reads an embedded sample.
func Sample(t testing.TB) *traces.Trace {
	t.Helper()
	tr, err := load.Open(context.Background(), load.Samples()[0], load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// Paper reads a trace published by a paper's authors, by the pattern of its role.
func Paper(t testing.TB, pattern string) *timeline.Device {
	t.Helper()
	tr, err := paper.Read(context.Background(), shared(t, pattern), nil)
	if err != nil {
		t.Fatal(err)
	}
	return Built(t, tr)
}

// Built builds the main device of a trace.
func Built(t testing.TB, tr *traces.Trace) *timeline.Device {
	t.Helper()
	tl, err := timeline.Build(context.Background(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Main()
}

// Snapshot reads a snapshot of the shared folder by the pattern of its role.
func Snapshot(t testing.TB, pattern string) *timeline.Device {
	t.Helper()
	tr, err := torchsnapshot.Read(context.Background(), shared(t, filepath.Join("torch_snapshot", pattern)),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	return Built(t, tr)
}

// Snapshots runs a test on every snapshot of the shared folder.
func Snapshots(t *testing.T, test func(t *testing.T, d *timeline.Device)) {
	dir := os.Getenv("GMEMTOP_TRACES")
	if dir == "" {
		t.Skip("needs GMEMTOP_TRACES: traces recorded by others")
	}
	found, _ := filepath.Glob(filepath.Join(dir, "torch_snapshot", "*"))
	for i, f := range found {
		t.Run(string(rune('a'+i)), func(t *testing.T) { test(t, Snapshot(t, filepath.Base(f))) })
	}
}
