//go:build linux && amd64

package usdt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// built is where the watched program and its libraries are.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	// run again as another user: see TestAUserWithoutRightsLearnsWhichAreMissingAndHowToGetThem
	if os.Getenv("USDT_CHECK") != "" {
		fmt.Println(Check())
		return
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// build compiles the test's program and libraries, once.
func build(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc: the process that is watched is built by it")
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "usdt"); built.err != nil {
			return
		}
		for _, args := range [][]string{
			{"-shared", "-fPIC", "-Itestdata", "-o", "libc10_cuda.so", "testdata/c10.S"},
			{"-O2", "-shared", "-fPIC", "-o", "libcuda.so.570.1", "testdata/cuda.S", "testdata/cuda.c"},
			{"-O2", "-pthread", "-o", "target", "testdata/target.c", "-ldl"},
		} {
			for i, a := range args {
				if i > 0 && args[i-1] == "-o" {
					args[i] = filepath.Join(built.dir, a)
				}
			}
			if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
				built.err = fmt.Errorf("gcc %s: %w\n%s", strings.Join(args, " "), err, out)
				return
			}
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// needProbes skips the test if the kernel permits no probes.
func needProbes(t testing.TB) {
	t.Helper()
	if err := Check(); errors.Is(err, ErrPermission) || errors.Is(err, ErrUnsupported) {
		lacksProbes(t, err)
	}
}

// lacksProbes skips a test with the kernel's refusal.
func lacksProbes(t testing.TB, err error) {
	t.Helper()
	t.Skip("needs probes that the kernel permits (root, or CAP_BPF and CAP_PERFMON): ", err)
}

// target is a running process that carries out commands.
type target struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	pid  int
	once sync.Once
}

// start runs the test's program with libraries loaded.
func start(t testing.TB, libraries ...string) *target {
	t.Helper()
	dir := build(t)
	p := &target{t: t, cmd: exec.Command(filepath.Join(dir, "target"))}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.in, p.out, p.pid = in, bufio.NewScanner(out), p.cmd.Process.Pid
	t.Cleanup(p.stop)
	for _, l := range libraries {
		p.do("L %s", p.library(l))
	}
	return p
}

func (p *target) library(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(built.dir, name)
}

// stop ends the process and waits for it.
func (p *target) stop() {
	p.once.Do(func() {
		p.in.Close()
		p.cmd.Wait()
	})
}

// do makes the process carry out a line, and returns how long that took by its own clock.
func (p *target) do(format string, args ...any) time.Duration {
	p.t.Helper()
	took, _ := p.cost(format, args...)
	return took
}

// cost is do, and returns the time on a processor as well.
func (p *target) cost(format string, args ...any) (took, spent time.Duration) {
	p.t.Helper()
	fmt.Fprintf(p.in, format+"\n", args...)
	for p.out.Scan() {
		if n, _ := fmt.Sscanf(p.out.Text(), "ok %d %d", &took, &spent); n == 2 {
			return took, spent
		}
	}
	p.t.Fatalf("the watched process ended at %q", fmt.Sprintf(format, args...))
	return 0, 0
}

// call makes the process call an exported function and returns its result and what it stored through its
// first argument. o, p and c in kind say that the process passes a pointer of its own as the first, second
// and third argument; numbers are hexadecimal there.
func (p *target) call(kind, name string, args ...uint64) (result int, out uint64) {
	p.t.Helper()
	line := "x " + kind + " " + name
	for _, a := range args {
		line += fmt.Sprintf(" %x", a)
	}
	fmt.Fprintln(p.in, line)
	for p.out.Scan() {
		if n, _ := fmt.Sscanf(p.out.Text(), "%d %x", &result, &out); n == 2 &&
			!strings.HasPrefix(p.out.Text(), "ok") {
			p.out.Scan() // ok
			return result, out
		}
	}
	p.t.Fatalf("the watched process ended in %s", name)
	return 0, 0
}

// trace attaches to the process and returns the tracer, closed by the test's end.
func (p *target) trace(o Options) (*kernelTracer, []Site) {
	p.t.Helper()
	needProbes(p.t)
	o.PID = p.pid
	o = o.withDefaults()
	sites, err := plan(o.root, o.PID, o.Probes)
	if errors.Is(err, ErrPermission) {
		lacksProbes(p.t, err)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return p.traceSites(o, sites), sites
}

func (p *target) traceSites(o Options, sites []Site) *kernelTracer {
	p.t.Helper()
	t, err := attach(o, sites)
	// a container's root, whom only the kernel's answer tells from the real one
	if errors.Is(err, ErrPermission) {
		lacksProbes(p.t, err)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	k := t.(*kernelTracer)
	p.t.Cleanup(func() {
		if k.pidfd >= 0 {
			k.detach(p.t)
		}
	})
	return k
}

func (t *kernelTracer) detach(tb testing.TB) {
	tb.Helper()
	if err := t.close(); err != nil {
		tb.Error(err)
	}
	t.pidfd = -1
}

// all reads until there is a pause.
func (t *kernelTracer) all(tb testing.TB) (list []event) {
	tb.Helper()
	if err := t.read(50*time.Millisecond, func(e event) bool {
		list = append(list, e)
		return true
	}); err != nil {
		tb.Fatal(err)
	}
	return list
}
