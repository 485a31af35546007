package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// idle imports the given modules, makes a folder, and then does almost nothing.
const idle = `
import os, sys, time
for name in sys.argv[2:]:
    __import__(name)
os.mkdir(sys.argv[1])
while True:
    time.sleep(0.01)
`

// filtered runs a command under a seccomp filter that refuses ptrace, process_vm_readv and process_vm_writev,
// as those of containers do. The numbers are x86-64's.
const filtered = `
import ctypes, os, struct, sys
calls = [(0x15, 3 - i, 0, n) for i, n in enumerate((101, 310, 311))]
rows = [(0x20, 0, 0, 0)] + calls + [(6, 0, 0, 0x7fff0000), (6, 0, 0, 0x50001)]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
libc = ctypes.CDLL(None, use_errno=True)
program = struct.pack("HxxxxxxP", len(rows), ctypes.addressof(text))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
`

// bystander is a process that somebody tries to watch.
type bystander struct {
	t      *testing.T
	folder string // for sockets, markers and recordings; everybody may enter it
	cmd    *exec.Cmd
}

// newBystander prepares a process: a folder for it.
func newBystander(t *testing.T) *bystander {
	t.Helper()
	folder := torchtest.Folder(t)
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return &bystander{t: t, folder: folder}
}

// echo starts a process of a user that is not Python, and returns once it waits for input.
func (b *bystander) echo(user int) {
	b.t.Helper()
	b.cmd = exec.Command("cat")
	if user != os.Getuid() {
		b.cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
	}
	in, err := b.cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.start()
	answer := make([]byte, 1)
	if _, err := in.Write(answer); err != nil {
		b.t.Fatal(err)
	}
	if _, err := io.ReadFull(out, answer); err != nil {
		b.t.Fatal(err)
	}
}

// idle starts a Python that imports modules and then does almost nothing.
func (b *bystander) idle(modules ...string) {
	b.t.Helper()
	ready := filepath.Join(b.folder, "ready")
	b.cmd = exec.Command(pythonOfAnyKind(b.t), append([]string{"-c", idle, ready}, modules...)...)
	b.start()
	await.Until(b.t, "the process has begun", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
}

func pythonOfAnyKind(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3: a process that can be attached to")
	}
	return python
}

func (b *bystander) start() {
	b.t.Helper()
	b.cmd.Dir, b.cmd.Env = "/", b.environ()
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
	})
}

func (b *bystander) environ() []string {
	return append(os.Environ(), "XDG_RUNTIME_DIR="+b.folder, "XDG_STATE_HOME="+b.folder,
		"XDG_CACHE_HOME="+b.folder, "PYTHONPATH="+b.folder, "PYTHONDONTWRITEBYTECODE=1")
}

// state is what shows from outside of a process and what attaching could change. The agent itself can refuse
// only once Python code has run, which takes memory and keeps it; mappings are not compared then.
func (b *bystander) state(mappings bool) string {
	b.t.Helper()
	dir := fmt.Sprintf("/proc/%d/", b.cmd.Process.Pid)
	var out strings.Builder
	read := func(name string) string {
		text, err := os.ReadFile(dir + name)
		if err != nil {
			b.t.Fatal(err)
		}
		return string(text)
	}
	for line := range strings.Lines(read("status")) {
		for _, name := range []string{"Name", "Uid", "TracerPid", "Threads", "SigBlk", "SigIgn", "SigCgt",
			"Seccomp"} {
			if strings.HasPrefix(line, name+":") {
				out.WriteString(line)
			}
		}
	}
	files, err := os.ReadDir(dir + "fd")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range files {
		to, _ := os.Readlink(dir + "fd/" + f.Name())
		fmt.Fprintln(&out, f.Name(), to)
	}
	if mappings {
		out.WriteString(read("maps"))
	}
	return out.String()
}

// mark writes the marker that an agent of another version in the process would write.
func (b *bystander) mark(version int) {
	b.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	dir := filepath.Join(b.folder, fmt.Sprintf("gmemtop-%d", os.Getuid()))
	text := fmt.Sprintf(`{"version":%d,"pid":%d,"start":%s,"socket":%q}`, version, b.cmd.Process.Pid,
		fields[19], filepath.Join(dir, "x.sock"))
	if err := errors.Join(os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, strconv.Itoa(b.cmd.Process.Pid)+".json"), []byte(text),
			0o600)); err != nil {
		b.t.Fatal(err)
	}
}

// forAnybody copies this program to where another user may run it.
func (b *bystander) forAnybody() string {
	b.t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		b.t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(b.folder, "gmemtop")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// torch makes a package torch that has only a version, which is all that the agent looks at before it
// refuses.
func (b *bystander) torch(version string) {
	b.t.Helper()
	dir := filepath.Join(b.folder, "torch")
	text := fmt.Sprintf("__version__ = %q\n", version)
	if err := errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "__init__.py"), []byte(text), 0o600)); err != nil {
		b.t.Fatal(err)
	}
}

const tooOld = "torch 2.1.2+cpu is too old: the agent needs 2.2 or newer. Update torch"

// TestUnwatchableProcessesAreRefusedAndUntouched runs commands on real processes that cannot be watched. Each
// says in one sentence why, and what to do; exits with 5 if this is not permitted or not possible here, and
// with 1 otherwise; leaves no recording behind; and leaves the process as it was.
func TestUnwatchableProcessesAreRefusedAndUntouched(t *testing.T) {
	const nobody = 65534
	asNobody := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
	untracing := []string{"setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"}
	record := []string{"record", "-o", "FOLDER/refused.gmt", "PID"}
	foreign := func(b *bystander) { b.echo(os.Getuid()) }
	for _, c := range []struct {
		name   string
		begin  func(b *bystander)
		as     []string // what runs the command as another user, nil for this user
		inside bool     // the agent itself refuses
		args   []string
		code   int
		says   []string
		not    string // what it must not say
	}{
		{name: "no Python", begin: foreign, args: record, code: 1,
			says: []string{"it is not Python: give the pid of the Python process itself"}},
		{name: "no Python, on the screen", begin: foreign, args: []string{"attach", "PID"}, code: 1,
			says: []string{"it is not Python"}},
		{name: "no torch", begin: func(b *bystander) { b.idle() }, inside: true, args: record, code: 1,
			says: []string{"torch is not loaded in this process", "attach once the program has imported it"}},
		{name: "an old torch", begin: func(b *bystander) {
			b.torch("2.1.2+cpu")
			b.idle("torch")
		}, inside: true, args: record, code: 1, says: []string{tooOld}},
		{name: "an agent of another version", begin: func(b *bystander) {
			b.idle()
			b.mark(9)
		}, args: record, code: 1,
			says: []string{"the agent's version differs: it speaks version 9 and this program 2",
				"use the gmemtop that started it, or restart the job"}},
		{name: "an agent of another version, by what would be done", begin: func(b *bystander) {
			b.idle()
			b.mark(9)
		}, args: []string{"attach", "--dry-run", "PID"}, code: 1,
			says: []string{"the agent's version differs"}, not: "attaching does"},
		{name: "another user's, by what would be done", begin: foreign, as: asNobody, args: []string{"attach",
			"--dry-run", "PID"}, code: 5, says: []string{"sudo gmemtop attach PID"}, not: "attaching does"},
		{name: "another user's", begin: foreign, as: asNobody, args: record, code: 5,
			says: []string{"it belongs to user 0, and this is user 65534",
				"run gmemtop as that user, or with sudo: sudo gmemtop attach PID"}},
		{name: "another user's, on the screen", begin: foreign, as: asNobody, args: []string{"attach", "PID"},
			code: 5, says: []string{"sudo gmemtop attach PID"}},
		{name: "without the right to trace", begin: func(b *bystander) {
			b.echo(nobody)
		}, as: untracing, args: record, code: 5,
			says: []string{"CAP_SYS_PTRACE", "start the container with --cap-add=SYS_PTRACE"}},
		{name: "under a seccomp filter", begin: foreign, as: []string{"python3", "-c", filtered},
			args: record, code: 5,
			says: []string{"a seccomp filter forbids this process to trace, as in a container",
				"--security-opt seccomp=unconfined --cap-add=SYS_PTRACE, or run gmemtop outside of it"}},
		{name: "without the right to load probes", begin: foreign, as: asNobody,
			args: []string{"attach", "--probes", "PID"}, code: 5,
			says: []string{"probes are not permitted: this needs root or CAP_", "sudo"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := []string{"gmemtop"}
			if c.as != nil {
				if c.as[0] == "python3" {
					pythonOfAnyKind(t)
					if runtime.GOARCH != "amd64" {
						t.Skip("needs linux/amd64: the filter has its numbers of system calls")
					}
				} else if os.Getuid() != 0 {
					t.Skip("needs root: it becomes another user")
				} else if _, err := exec.LookPath(c.as[0]); err != nil {
					t.Skip("needs setpriv: it becomes another user")
				}
			}
			b := newBystander(t)
			c.begin(b)
			if c.as != nil {
				program = append(slices.Clone(c.as), b.forAnybody())
			}
			fill := strings.NewReplacer("PID", strconv.Itoa(b.cmd.Process.Pid), "FOLDER", b.folder)
			for _, a := range c.args {
				program = append(program, fill.Replace(a))
			}
			before := b.state(!c.inside)
			cmd := exec.Command(program[0], program[1:]...)
			cmd.Env, cmd.Dir = b.environ(), "/"
			out, err := cmd.CombinedOutput()
			mayTrace(t, out)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != c.code {
				t.Errorf("%v, not exit code %d:\n%s", err, c.code, out)
			}
			for _, want := range c.says {
				if want = fill.Replace(want); !strings.Contains(string(out), want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
			if c.not != "" && strings.Contains(string(out), c.not) {
				t.Errorf("it says %q:\n%s", c.not, out)
			}
			if left, _ := filepath.Glob(filepath.Join(b.folder, "*.gmt")); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
			if after := b.state(!c.inside); after != before {
				t.Errorf("the process was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

// mayTrace skips a test if a command said that processes may only trace their own children on this machine.
func mayTrace(t *testing.T, said []byte) {
	t.Helper()
	if bytes.Contains(said, []byte("kernel.yama.ptrace_scope")) {
		t.Skipf("needs the permission to trace a process of one's own: %s", said)
	}
}

// A dry run says what attaching would do, and that the agent would refuse because torch is not loaded.
func TestDryRunSaysWhatWouldHappenAndThatTorchIsMissing(t *testing.T) {
	b := newBystander(t)
	b.idle()
	before := b.state(true)
	cmd := exec.Command("gmemtop", "attach", "--dry-run", strconv.Itoa(b.cmd.Process.Pid))
	cmd.Env, cmd.Dir = b.environ(), "/"
	out, err := cmd.CombinedOutput()
	mayTrace(t, out)
	if err != nil {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"this is what attaching does:\n  1. The main thread is stopped for a",
		"note: torch is not loaded in it"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if after := b.state(true); after != before {
		t.Errorf("the process was\n%s\nand is\n%s", before, after)
	}
}

// A command with an old torch runs as it would without gmemtop, which then says why it saw nothing.
func TestACommandWithAnOldTorchIsExplained(t *testing.T) {
	b := newBystander(t)
	b.torch("2.1.2+cpu")
	cmd := exec.Command("gmemtop", "run", "--headless", "-o", filepath.Join(b.folder, "old.gmt"), "--",
		pythonOfAnyKind(t), "-c", "import sys, time, torch; print(torch.__version__, [m for m in "+
			"sys.modules if 'gmemtop' in m]); time.sleep(1); sys.exit(3)")
	cmd.Env, cmd.Dir = b.environ(), "/"
	var said bytes.Buffer
	cmd.Stderr = &said
	printed, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(printed) != "2.1.2+cpu []\n" {
		t.Errorf("%v, %q", err, printed)
	}
	if !strings.Contains(said.String(), tooOld) {
		t.Errorf("it is said:\n%s", said.String())
	}
}
