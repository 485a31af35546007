package pool_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/pool"
)

func compiler(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("needs cc: a C compiler")
	}
	return cc
}

var strict = []string{"-std=gnu11", "-O2", "-fPIC", "-fexceptions", "-Wall", "-Wextra", "-Werror", "-pthread"}

func TestTheShimCompilesWithoutAWarning(t *testing.T) {
	for _, name := range []string{"shim/pool.c", "shim/serve.h", "shim/arena.h"} {
		read(t, name)
	}
	made := filepath.Join(t.TempDir(), "pool.so")
	if out, err := exec.Command(compiler(t),
		append(strict, "-shared", "-o", made, "shim/pool.c")...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// standIn compiles the shim together with a stand-in for torch's allocator.
func standIn(t *testing.T, flags ...string) (string, error) {
	t.Helper()
	for _, name := range []string{"testdata/stand_in.c", "shim/pool.c", "shim/serve.h", "shim/arena.h"} {
		read(t, name)
	}
	made := filepath.Join(t.TempDir(), "stand_in")
	out, err := exec.Command(compiler(t), append(append(append([]string{}, strict...), flags...), "-o", made,
		"testdata/stand_in.c")...).CombinedOutput()
	if err != nil {
		err = errors.New(string(out))
	}
	return made, err
}

func TestTheShimInFrontOfAStandInForTorchOnAGPU(t *testing.T) {
	made, err := standIn(t, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover")
	if err != nil {
		t.Log("without sanitizers: ", err)
		if made, err = standIn(t); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(made).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestCosts(t *testing.T) {
	made, err := standIn(t)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(made, "costs").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("an allocation of 4 KiB and its free:\n%s", out)
}

func TestTheShimIsBuiltOnceAndAMissingCompilerIsReported(t *testing.T) {
	compiler(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("CC", "")
	path, err := pool.Build(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "gmemtop", "*"))
	if len(left) != 1 || left[0] != path {
		t.Errorf("the cache holds %q, and the library is %s", left, path)
	}
	first, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(first, []byte("pool_arm")) {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := pool.Build(context.Background()); err != nil || again != path {
		t.Errorf("%s, %v", again, err)
	}
	if text, _ := os.ReadFile(path); string(text) != "kept" {
		t.Error("it was built a second time")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("CC", "no-such-compiler -O3")
	if _, err := pool.Build(context.Background()); !errors.Is(err, pool.ErrNoCompiler) ||
		!strings.Contains(err.Error(), "unset CC") {
		t.Errorf("%v", err)
	}
	t.Setenv("CC", "false")
	if _, err := pool.Build(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "apt install gcc") {
		t.Errorf("%v", err)
	}
	t.Setenv("CC", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := pool.Build(context.Background()); !errors.Is(err, pool.ErrNoCompiler) ||
		!strings.Contains(err.Error(), "apt install gcc") ||
		!strings.Contains(err.Error(), "other live managers") {
		t.Errorf("%v", err)
	}
}
