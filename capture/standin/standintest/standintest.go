// Package standintest runs programs on the stand-in GPU in tests.
package standintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
)

var builds sync.Map // by interpreter

type build struct {
	once sync.Once
	lib  *standin.Library
	err  error
}

func library(t testing.TB, python string) *standin.Library {
	t.Helper()
	v, _ := builds.LoadOrStore(python, &build{})
	b := v.(*build)
	b.once.Do(func() { b.lib, b.err = standin.Build(context.Background(), python) })
	switch {
	case errors.Is(b.err, standin.ErrNoCompiler):
		t.Skip("needs g++: the stand-in GPU is compiled by the test")
	case errors.Is(b.err, standin.ErrNoCUDATorch):
		t.Skip("needs a torch built for CUDA: the one that GMEMTOP_TORCH names is not")
	case b.err != nil:
		t.Fatal(b.err)
	}
	return b.lib
}

// Interpreter returns the Python with PyTorch that GMEMTOP_TORCH names. Without one the test skips.
func Interpreter(t testing.TB) string {
	t.Helper()
	python := os.Getenv("GMEMTOP_TORCH")
	if python == "" {
		t.Skip("needs GMEMTOP_TORCH: a Python with a torch built for CUDA")
	}
	return python
}

// Library returns the stand-in for the PyTorch that GMEMTOP_TORCH names. The test skips without that or g++.
func Library(t testing.TB) *standin.Library {
	t.Helper()
	return library(t, Interpreter(t))
}

// Computing skips the test if ops of the PyTorch that GMEMTOP_TORCH names cannot compute on the stand-in.
func Computing(t testing.TB) {
	t.Helper()
	var major, minor int
	_, err := fmt.Sscanf(Library(t).Torch, "%d.%d", &major, &minor)
	if err != nil || major < 2 || major == 2 && minor < 9 {
		t.Skip("needs torch 2.9: ops compute on the stand-in from there on")
	}
}

// Driver returns the stand-in for no PyTorch: the driver, the runtime and NVML. Without g++ the test skips.
func Driver(t testing.TB) *standin.Library {
	t.Helper()
	return library(t, "")
}

// Result is a program's output, and the reports of its processes on the stand-in.
type Result struct {
	Stdout, Stderr string
	Err            error // of the program, nil if it ended with 0
	Reports        []standin.Report
}

// Check fails the test if the program failed, or if a process did something that no program may do, left
// something behind, or ran an op without numbers.
func (r Result) Check(t testing.TB) {
	t.Helper()
	if r.Err != nil {
		t.Fatalf("%v\n%s%s", r.Err, r.Stdout, r.Stderr)
	}
	for _, p := range r.Reports {
		for _, v := range p.Violations {
			t.Errorf("process %d: %s", p.PID, v)
		}
		for _, l := range p.Leaks {
			t.Errorf("process %d left %s", p.PID, l)
		}
		for _, u := range p.Uncomputed {
			t.Errorf("process %d: %s has no numbers: %s", p.PID, u.Op, u.Why)
		}
	}
}

// Start prepares a command on a machine; a machine without a board or report folder gets the test's own. The
// returned function collects the result after the command has ended. The test skips if ops cannot compute but
// the machine wants them to.
func Start(t testing.TB, lib *standin.Library, m standin.Machine, name string, args ...string) (*exec.Cmd,
	func(error) Result) {
	t.Helper()
	if m.Compute {
		Computing(t)
	}
	dir := t.TempDir()
	if m.Board == "" {
		m.Board = filepath.Join(dir, "board")
	}
	if m.Report == "" {
		m.Report = filepath.Join(dir, "reports")
		if err := os.MkdirAll(m.Report, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), name, args...)
	c.Env = append(lib.Environ(m), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	return c, func(err error) Result {
		reports, e := standin.ReadReports(m.Report)
		if e != nil {
			t.Error(e)
		}
		return Result{stdout.String(), stderr.String(), err, reports}
	}
}

// Run runs a program on a machine and returns what it did.
func Run(t testing.TB, lib *standin.Library, m standin.Machine, name string, args ...string) Result {
	t.Helper()
	c, collect := Start(t, lib, m, name, args...)
	return collect(c.Run())
}

// TryPython runs a script with the interpreter that GMEMTOP_TORCH names and returns the result, good or bad.
func TryPython(t testing.TB, m standin.Machine, script string, args ...string) Result {
	t.Helper()
	lib := Library(t)
	path := filepath.Join(t.TempDir(), "script.py")
	if err := os.WriteFile(path, []byte(script), 0o666); err != nil {
		t.Fatal(err)
	}
	return Run(t, lib, m, Interpreter(t), append([]string{path}, args...)...)
}

// Python runs a script and returns its output. The test fails if the script fails, does something that no
// program may do, or leaves something behind.
func Python(t testing.TB, m standin.Machine, script string, args ...string) string {
	t.Helper()
	r := TryPython(t, m, script, args...)
	r.Check(t)
	return r.Stdout
}

// Environ returns the environment for processes on the test's own machine whose ops compute, and a function
// that checks their reports when they have ended. It skips the test if ops cannot compute.
func Environ(t *testing.T, m standin.Machine) (env []string, ended func()) {
	t.Helper()
	Computing(t)
	lib := Library(t)
	t.Setenv("GMEMTOP_TORCH", Interpreter(t))
	dir := t.TempDir()
	m.Board, m.Report, m.Compute = filepath.Join(dir, "board"), filepath.Join(dir, "reports"), true
	if err := os.Mkdir(m.Report, 0o777); err != nil {
		t.Fatal(err)
	}
	env = append(lib.Environ(m), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1",
		// or the 32 MiB of an H100 would be most of what a small model takes
		"CUBLAS_WORKSPACE_CONFIG=:16:8", "CUBLASLT_WORKSPACE_SIZE=128")
	return env, func() {
		t.Helper()
		reports, err := standin.ReadReports(m.Report)
		if err != nil || len(reports) == 0 {
			t.Errorf("%d processes reported: %v", len(reports), err)
		}
		Result{Reports: reports}.Check(t)
	}
}
