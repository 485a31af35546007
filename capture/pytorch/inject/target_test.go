package inject

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/procs"
)

//go:embed testdata/target.py
var targetPy string

// interpreter is a real CPython to run targets with, perhaps below another root directory.
type interpreter struct {
	minor int
	path  string
	root  string
}

func (p interpreter) String() string { return fmt.Sprintf("3.%d %s%s", p.minor, p.root, p.path) }

// command runs the target program in a mode.
func (p interpreter) command(args ...string) *exec.Cmd {
	args = append([]string{"-u", "-Wignore", "-c", targetPy}, args...)
	if p.root != "" {
		return exec.Command("chroot", append([]string{p.root, p.path}, args...)...)
	}
	return exec.Command(p.path, args...)
}

var nameOfPython = regexp.MustCompile(`^python3\.(\d+)$`)

// interpreters lists the Pythons of this machine: on PATH, of pyenv and uv, and below the roots that
// GMEMTOP_PYTHON_ROOTS names.
var interpreters = sync.OnceValue(func() []interpreter {
	var all []interpreter
	seen := map[string]bool{}
	add := func(root, path string) {
		m := nameOfPython.FindStringSubmatch(filepath.Base(path))
		if m == nil {
			return
		}
		real, err := filepath.EvalSymlinks(filepath.Join(root, path))
		if err != nil || seen[real] {
			return
		}
		f, err := os.Open(real)
		if err != nil {
			return
		}
		defer f.Close()
		var magic [4]byte
		if f.Read(magic[:]); string(magic[:]) != "\x7fELF" {
			return // a shim
		}
		seen[real] = true
		p := interpreter{path: path, root: root}
		fmt.Sscan(m[1], &p.minor)
		all = append(all, p)
	}
	home, _ := os.UserHomeDir()
	dirs := filepath.SplitList(os.Getenv("PATH"))
	for _, pattern := range []string{home + "/.pyenv/versions/*/bin",
		home + "/.local/share/uv/python/*/bin"} {
		more, _ := filepath.Glob(pattern)
		dirs = append(dirs, more...)
	}
	for _, dir := range dirs {
		found, _ := filepath.Glob(dir + "/python3.*")
		for _, path := range found {
			add("", path)
		}
	}
	if os.Getuid() == 0 {
		for _, root := range filepath.SplitList(os.Getenv("GMEMTOP_PYTHON_ROOTS")) {
			found, _ := filepath.Glob(root + "/usr/bin/python3.*")
			for _, path := range found {
				add(root, strings.TrimPrefix(path, root))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b interpreter) int { return a.minor - b.minor })
	return all
})

// each runs a test with every supported Python there is, and skips by name for those there are not.
func each(t *testing.T, test func(t *testing.T, p interpreter)) {
	for minor := 8; minor <= 14; minor++ {
		found := false
		for _, p := range interpreters() {
			if p.minor == minor {
				found = true
				t.Run(p.String(), func(t *testing.T) { test(t, p) })
			}
		}
		if !found {
			t.Run(fmt.Sprintf("3.%d", minor), func(t *testing.T) {
				t.Skipf("needs CPython 3.%d: none is on PATH, in pyenv, or below a root that "+
					"GMEMTOP_PYTHON_ROOTS names", minor)
			})
		}
	}
}

// one returns an interpreter between two minor versions, preferably the latest outside a chroot.
func one(t *testing.T, from, to int) interpreter {
	t.Helper()
	best := -1
	for i, p := range interpreters() {
		if p.minor >= from && p.minor <= to && (best < 0 || interpreters()[best].root != "" || p.root == "") {
			best = i
		}
	}
	if best < 0 {
		t.Skipf("needs a CPython between 3.%d and 3.%d", from, to)
	}
	return interpreters()[best]
}

// process is a running target.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	pid   int
	lines *bufio.Scanner
	ended bool
}

func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	needsPtrace(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, pid: cmd.Process.Pid, lines: bufio.NewScanner(out)}
	t.Cleanup(func() {
		if !p.ended {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	p.expect("ready")
	return p
}

// expect reads the target's output up to a line.
func (p *process) expect(line string) {
	p.t.Helper()
	for p.lines.Scan() {
		if p.lines.Text() == line {
			return
		}
	}
	p.t.Fatalf("the target ended without saying %q", line)
}

// end waits for the target to end and returns its findings; it fails the test if the target found anything
// wrong.
func (p *process) end() map[string]any {
	p.t.Helper()
	last := ""
	for p.lines.Scan() {
		last = p.lines.Text()
	}
	p.ended = true
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("the target ended with %v, its last line being %q", err, last)
	}
	var found map[string]any
	if err := json.Unmarshal([]byte(last), &found); err != nil {
		p.t.Fatalf("the target's last line is %q: %v", last, err)
	}
	if bad, _ := found["bad"].([]any); len(bad) > 0 {
		p.t.Errorf("the target was disturbed: %v", bad)
	}
	return found
}

// awaitState waits until the main thread of a process is in a state: 'S' asleep, 'T' stopped, 'Z' a zombie.
func awaitState(t *testing.T, pid int, state byte) {
	t.Helper()
	await.Until(t, fmt.Sprintf("process %d is in state %q", pid, state), func() bool {
		return procs.State(pid) == state
	})
}

const (
	count = "import __main__\n__main__.state['n'] += 1\n"
	stop  = "import __main__\n__main__.state['stop'] = True\n"
)

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// inject runs source in the target and fails the test if that fails.
func (p *process) inject(m Mechanism, source string) Report {
	p.t.Helper()
	r, err := Inject(within(30*time.Second), p.pid, Bootstrap{Source: source, Mechanisms: []Mechanism{m}})
	if err != nil {
		p.t.Fatalf("%v: %v (%+v)", m, err, r)
	}
	if r.Mechanism != m || r.Left != 0 {
		p.t.Errorf("report %+v", r)
	}
	return r
}

// gdbWorks reports whether this machine has a gdb that can inject. If there is none that can, the target is
// told to stop: whatever gdb did must not have disturbed it.
func (p *process) gdbWorks() bool {
	p.t.Helper()
	_, err := Inject(within(30*time.Second), p.pid, Bootstrap{Source: "pass\n", Mechanisms: []Mechanism{GDB}})
	if errors.Is(err, ErrUnsupported) {
		p.t.Log(err)
		p.finish(Ptrace)
		return false
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return true
}

// finish tells the target to stop, and waits for it to end. It may end before we see that the source has run.
func (p *process) finish(m Mechanism) map[string]any {
	p.t.Helper()
	_, err := Inject(within(30*time.Second), p.pid, Bootstrap{Source: stop, Mechanisms: []Mechanism{m}})
	if err != nil && !errors.Is(err, ErrGone) {
		p.t.Fatalf("%v: %v", m, err)
	}
	return p.end()
}

// traces is what a process looks like from the outside.
func (p *process) traces() map[string]string {
	p.t.Helper()
	all := map[string]string{}
	dir := fmt.Sprintf("/proc/%d/", p.pid)
	b, err := os.ReadFile(dir + "maps")
	if err != nil {
		p.t.Fatal(err)
	}
	all["maps"] = string(b)
	if b, err = os.ReadFile(dir + "status"); err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		switch key, value, _ := strings.Cut(line, ":"); key {
		case "TracerPid", "FDSize", "Threads", "SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd", "VmSize",
			"Uid", "NoNewPrivs":
			all[key] = strings.TrimSpace(value)
		}
	}
	for _, name := range []string{"fd", "task"} {
		entries, err := os.ReadDir(dir + name)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, e := range entries {
			target, _ := os.Readlink(dir + name + "/" + e.Name())
			all[name+" "+e.Name()] = target
		}
	}
	return all
}

// needsPtrace skips the test if this process may not trace.
func needsPtrace(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("needs linux/amd64: attaching is supported on nothing else")
	}
}
