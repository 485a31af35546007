package milp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASolverThatDoesNotHeedItsClockIsUnwound(t *testing.T) {
	h := &host{maxReads: 10}
	defer func() {
		if p := recover(); p != errStopped || h.reads != 10+hardStopReads+1 {
			t.Errorf("%v after %d reads", p, h.reads)
		}
	}()
	for last := 0.0; ; {
		now := h.seconds()
		if now <= last || (now > virtualLimit) != (h.reads > 10) {
			t.Fatalf("read %d: %v after %v", h.reads, now, last)
		}
		last = now
	}
}

func TestTheEmbeddedSolverIsTheOneTheNoticeNames(t *testing.T) {
	wasm, err := decompress()
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(wasm))
	if sum != "fc318c4a0c807af32a9e30bd085eecddb0477e488f944383469db7d1a9e66c6e" {
		t.Errorf("sha256 %s: it is not the build that the notice describes", sum)
	}
	if notice, err := os.ReadFile("README.md"); err != nil || !strings.Contains(string(notice), sum) {
		t.Errorf("README.md does not name %s, %v", sum, err)
	}
	m, err := compile()
	if err != nil {
		t.Fatal(err)
	}
	in, err := m.newInstance(defaultMaxMemory)
	if err != nil {
		t.Fatal(err)
	}
	defer in.close()
	p := in.call("Highs_version")
	if got := in.view(p, len(wasmVersion)); string(got) != wasmVersion {
		t.Errorf("it calls itself %q, want %s", got, wasmVersion)
	}
}

func TestCompiledCodeIsCachedAndADamagedCacheIsDoneWithout(t *testing.T) {
	// A module of one empty function: the solver itself takes seconds to compile, and under the race detector
	// minutes.
	tiny := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x0a\x04\x01\x02\x00\x0b")
	dir, ctx := t.TempDir(), context.Background()
	m, err := newCachedMachine(ctx, tiny, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.runtime.Close(ctx)
	damaged := 0
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			damaged++
			return os.WriteFile(path, []byte("not code"), 0o600)
		}
		return err
	})
	if err != nil || damaged == 0 {
		t.Fatalf("%d files in the cache, %v", damaged, err)
	}
	if _, err := newMachine(ctx, tiny, dir, true); err == nil {
		t.Error("the damaged code was not read: the test tests nothing")
	}
	again, err := newCachedMachine(ctx, tiny, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.runtime.Close(ctx)
}

func TestWithoutACompilerTheInterpreterIsUsedAndSaysSo(t *testing.T) {
	ctx := context.Background()
	wasm, err := decompress()
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMachine(ctx, wasm, "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.runtime.Close(ctx)
	model, _, _ := parseModel(t, "var a 0 1 int\nvar b 0 1 int\nmin - 2 a - b\nr: a + b <= 1")
	s, err := solveWith(ctx, model, Options{}, m.solve)
	if err != nil || s.Status != StatusOptimal || s.Objective != -2 ||
		!strings.Contains(s.Solver, "interpreted") {
		t.Errorf("%+v, %v", s, err)
	}
}

func BenchmarkDecompress(b *testing.B) {
	for b.Loop() {
		if _, err := decompress(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoadCompiledCode(b *testing.B) {
	ctx, dir := context.Background(), b.TempDir()
	wasm, err := decompress()
	if err != nil {
		b.Fatal(err)
	}
	for first := true; b.Loop(); first = false {
		m, err := newMachine(ctx, wasm, dir, true)
		if err != nil {
			b.Fatal(err)
		}
		m.runtime.Close(ctx)
		if first {
			b.ReportMetric(b.Elapsed().Seconds(), "s/compile")
			b.ResetTimer()
		}
	}
}
