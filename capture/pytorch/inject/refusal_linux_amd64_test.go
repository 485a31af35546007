package inject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gmemtop/gmemtop/capture/procs"
)

const (
	// makes the test binary attach to that pid and print the error, as another user
	helperPID = "GMEMTOP_TEST_ATTACH"
	nobody    = 65534
)

func TestMain(m *testing.M) {
	if pid, err := strconv.Atoi(os.Getenv(helperPID)); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err := Inject(ctx, pid, Bootstrap{Source: count})
		if err == nil {
			fmt.Println("injected")
			return
		}
		var e *Error
		errors.As(err, &e)
		fmt.Printf("%v: %v\n", e.Kind, err)
		return
	}
	os.Exit(m.Run())
}

// attachAs runs this test binary as another user, or without a capability, and returns what it says about
// attaching to pid.
func attachAs(t *testing.T, pid int, wrapper ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gmemtop-inject-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	helper := filepath.Join(dir, "helper")
	f, err := os.OpenFile(helper, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, self)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	args := append(wrapper, helper)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", helperPID, pid))
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it becomes another user")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("needs setpriv: it becomes another user")
	}
}

var asNobody = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}

// ofNobody runs the target as another user, with a Python that anybody may run.
func ofNobody(t *testing.T, mode string) *process {
	t.Helper()
	for _, p := range interpreters() {
		if p.root == "" && strings.HasPrefix(p.path, "/usr/") {
			cmd := p.command(mode)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			cmd.Dir = "/"
			return start(t, cmd)
		}
	}
	t.Skip("needs a Python below /usr: any user may run that")
	return nil
}

func TestAnotherUsersProcessIsRefused(t *testing.T) {
	needsRoot(t)
	p := start(t, one(t, 8, 14).command("compute"))
	got := attachAs(t, p.pid, asNobody...)
	if !strings.HasPrefix(got, "not permitted: ") ||
		!strings.Contains(got, "it belongs to user 0, and this is user 65534") {
		t.Error(got)
	}
	if found := p.finish(Ptrace); found["n"] != 0.0 {
		t.Error("the source ran")
	}
}

func TestAUserAttachesToTheirOwnProcess(t *testing.T) {
	needsRoot(t)
	p := ofNobody(t, "compute")
	if got := attachAs(t, p.pid, asNobody...); got != "injected" {
		t.Error(got)
	}
	p.inject(Ptrace, count) // and root attaches to it as well
	if found := p.finish(Ptrace); found["n"] != 2.0 {
		t.Errorf("the source ran %v times, not twice", found["n"])
	}
}

func TestRootWithoutTheCapabilityIsRefused(t *testing.T) {
	needsRoot(t)
	p := ofNobody(t, "compute")
	got := attachAs(t, p.pid, "setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
	if !strings.HasPrefix(got, "not permitted: ") || !strings.Contains(got, "CAP_SYS_PTRACE") {
		t.Error(got)
	}
	p.finish(Ptrace)
}

func TestAProcessThatIsNotDumpableIsRefused(t *testing.T) {
	needsRoot(t)
	p := ofNobody(t, "undumpable")
	p.expect("undumpable")
	got := attachAs(t, p.pid, asNobody...)
	if !strings.HasPrefix(got, "not permitted: ") || !strings.Contains(got, "not dumpable") {
		t.Error(got)
	}
	p.finish(Ptrace) // root may
}

func TestATracedProcessIsLeftToItsTracer(t *testing.T) {
	p := start(t, one(t, 8, 14).command("compute"))
	traced, release := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the tracer ends with this goroutine, and detaches
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(p.pid), 0, 0, 0, 0)
		if errno != 0 {
			traced <- errno
			return
		}
		traced <- nil
		<-release
		unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, uintptr(p.pid), 0, 0, 0, 0)
		unix.Wait4(p.pid, nil, unix.WALL, nil)
		unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(p.pid), 0, 0, 0, 0)
		traced <- nil
	}()
	if err := <-traced; err != nil {
		t.Fatal(err)
	}
	_, err := Inject(within(10*time.Second), p.pid, Bootstrap{Source: count})
	var e *Error
	if !errors.Is(err, ErrBusy) || !errors.As(err, &e) || !e.Attaching { // the tracer is this very program
		t.Error(err)
	}
	close(release)
	<-traced
	if found := p.finish(Ptrace); found["n"] != 0.0 {
		t.Error("the source ran")
	}
}

func TestAStoppedProcessStaysStopped(t *testing.T) {
	p := start(t, one(t, 8, 14).command("compute"))
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitState(t, p.pid, 'T')
	_, err := Inject(within(10*time.Second), p.pid, Bootstrap{Source: count})
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), fmt.Sprintf("kill -CONT %d", p.pid)) {
		t.Error(err)
	}
	// It may stop between being looked at and being attached to.
	err = stopped(lendable(p.pid, 0), nil, func(*tracee) error {
		t.Error("lent although it was stopped")
		return nil
	})
	if !errors.Is(err, errStopped) {
		t.Error(err)
	}
	// the kernel wakes a released thread, which then has to stop again by itself
	awaitState(t, p.pid, 'T')
	// nothing signals that it stays stopped; if it did not, it would run by now
	time.Sleep(20 * time.Millisecond)
	if s := procs.State(p.pid); s != 'T' {
		t.Errorf("its state is %c", s)
	}
	if err := syscall.Kill(p.pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.finish(Ptrace)
}

func TestOtherProgramsThanPythonAreRefused(t *testing.T) {
	sleep := exec.Command("sleep", "30")
	if err := sleep.Start(); err != nil {
		t.Skip("needs sleep: a process that is no Python")
	}
	thread := 0
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, e := range tasks {
		if n, _ := strconv.Atoi(e.Name()); n != os.Getpid() {
			thread = n
		}
	}
	dead := exec.Command("true")
	if err := dead.Start(); err != nil {
		t.Fatal(err)
	}
	awaitState(t, dead.Process.Pid, 'Z')
	for _, c := range []struct {
		pid  int
		kind error
		want string
	}{
		{sleep.Process.Pid, ErrNotPython, "it is not Python: give the pid"},
		{os.Getpid(), ErrNotPython, "gmemtop itself"},
		{thread, ErrGone, "that is a thread of process"},
		{dead.Process.Pid, ErrGone, "a zombie"},
		{1 << 30, ErrGone, "no such process"},
		{0, ErrGone, "positive"},
		{-1, ErrGone, "positive"},
	} {
		_, err := Inject(within(10*time.Second), c.pid, Bootstrap{Source: count})
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d: %v", c.pid, err)
		}
	}
	dead.Wait()
	sleep.Process.Kill()
	sleep.Wait()
	_, err := Inject(within(10*time.Second), sleep.Process.Pid, Bootstrap{Source: count})
	if !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

func TestAnotherProcessWithTheSamePIDIsLeftAlone(t *testing.T) {
	p := start(t, one(t, 8, 14).command("compute"))
	f := Check(p.pid)
	if err := f.Err(); err != nil || f.Started == 0 || len(f.Plan) == 0 || f.Python == "" ||
		!strings.Contains(f.Command, "compute") {
		t.Fatalf("%v, %+v", err, f)
	}
	_, err := Inject(within(10*time.Second), p.pid, Bootstrap{Source: count, Started: f.Started - 1})
	if !errors.Is(err, ErrReused) {
		t.Error(err)
	}
	_, err = Inject(within(10*time.Second), p.pid, Bootstrap{Source: count, Started: f.Started})
	if err != nil {
		t.Error(err)
	}
	if found := p.finish(Ptrace); found["n"] != 1.0 {
		t.Errorf("the source ran %v times, not once", found["n"])
	}
}

func TestPythonsThatAreTooOldAreRefused(t *testing.T) {
	tried := false
	for _, p := range interpreters() {
		if p.minor >= 8 {
			continue
		}
		tried = true
		cmd := exec.Command(p.path, "-c", "import os, time; os.write(1, b'ready\\n'); time.sleep(20)")
		q := start(t, cmd)
		_, err := Inject(within(10*time.Second), q.pid, Bootstrap{Source: count})
		if !errors.Is(err, ErrUnsupported) ||
			!strings.Contains(err.Error(), fmt.Sprintf("its Python is 3.%d", p.minor)) {
			t.Error(err)
		}
	}
	if !tried {
		t.Skip("needs a CPython before 3.8")
	}
}

func TestRemoteDebuggingSwitchedOffIsRespected(t *testing.T) {
	cmd := one(t, 14, 14).command("compute")
	cmd.Env = append(os.Environ(), "PYTHON_DISABLE_REMOTE_DEBUG=1")
	p := start(t, cmd)
	_, err := Inject(within(10*time.Second), p.pid, Bootstrap{Source: count, Mechanisms: []Mechanism{PEP768}})
	if !errors.Is(err, ErrUnsupported) || !errors.Is(err, errRemoteDebugOff) {
		t.Error(err)
	}
	if found := p.finish(Ptrace); found["n"] != 0.0 {
		t.Error("the source ran")
	}
}

// TestAnInterpreterThatExportsNothingIsRefused links one statically, without -rdynamic.
func TestAnInterpreterThatExportsNothingIsRefused(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("needs cc: an interpreter is linked")
	}
	for _, p := range interpreters() {
		prefix := filepath.Dir(filepath.Dir(p.path))
		libs, _ := filepath.Glob(fmt.Sprintf("%s/lib/python3.%d/config-*/libpython3.%d.a", prefix,
			p.minor, p.minor))
		include := fmt.Sprintf("%s/include/python3.%d", prefix, p.minor)
		if _, err := os.Stat(include + "/Python.h"); err != nil || len(libs) == 0 || p.minor < 10 ||
			p.root != "" {
			continue // the section that gives it away came with 3.10
		}
		dir := t.TempDir()
		source, program := filepath.Join(dir, "main.c"), filepath.Join(dir, "train")
		if err := os.WriteFile(source, []byte("#include <Python.h>\nint main(int c, char **v) { return "+
			"Py_BytesMain(c, v); }\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(cc, "-o", program, source, "-I", include, libs[0], "-lm", "-ldl",
			"-lpthread", "-lutil").CombinedOutput()
		if err != nil {
			t.Skipf("needs the libraries that libpython is linked with: cc says %v: %s", err, out)
		}
		cmd := exec.Command(program, "-c", "import os, time; os.write(1, b'ready\\n'); time.sleep(20)")
		cmd.Env = append(os.Environ(), "PYTHONHOME="+prefix)
		q := start(t, cmd)
		_, err = Inject(within(10*time.Second), q.pid, Bootstrap{Source: count})
		if !errors.Is(err, ErrUnsupported) ||
			!strings.Contains(err.Error(), "its interpreter train exports no functions") {
			t.Errorf("%v: %v", p, err)
		}
		return
	}
	t.Skip("needs a Python with its static library and headers")
}

// TestACallThatFaultsOrHangsIsUndone calls an address that is not a function, and a function that never
// returns.
func TestACallThatFaultsOrHangsIsUndone(t *testing.T) {
	for _, mode := range []string{"compute", "blocked", "faulthandler"} {
		p := start(t, one(t, 8, 14).command(mode))
		tg, f := examine(host(), p.pid)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		mem := processMemory(p.pid)
		at, err := gadget(mem, tg.modules, tg.mappings)
		if err != nil {
			t.Fatal(err)
		}
		for round := range 6 {
			again := *lendable(p.pid, at)
			if round%2 == 1 {
				again.home.ways = findWaysHome(mem, tg.modules, tg.mappings)
			}
			for _, c := range []struct {
				function uint64
				want     string
			}{{16, "a remote call was ended by segmentation fault"}, {libc(mem, tg.modules, "pause"),
				"did not return"}} {
				var base uint64
				once, twice := again, again
				err := stopped(&once, nil, func(l *tracee) (err error) {
					if base, err = l.syscall(unix.SYS_MMAP, 0, stackSize, unix.PROT_READ|unix.PROT_WRITE,
						unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0); err != nil {
						return err
					}
					l.useStack(base + stackSize)
					l.limit = 20 * time.Millisecond
					_, err = l.call(c.function)
					return err
				})
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, not %q", err, c.want)
				}
				if err := stopped(&twice, nil, func(l *tracee) error {
					_, err := l.syscall(unix.SYS_MUNMAP, base, stackSize)
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		}
		p.finish(Ptrace)
	}
}

// TestRegistersAreRestored lends a thread, lets it make calls, and compares everything that ptrace shows of
// it.
func TestRegistersAreRestored(t *testing.T) {
	p := start(t, one(t, 8, 14).command("compute"))
	tg, f := examine(host(), p.pid)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	at, err := gadget(processMemory(p.pid), tg.modules, tg.mappings)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 50 {
		lend := lendable(p.pid, at)
		if round%2 == 1 {
			lend.home.ways = findWaysHome(processMemory(p.pid), tg.modules, tg.mappings)
		}
		err = stopped(lend, nil, func(l *tracee) error {
			if err := l.saveVectors(); err != nil {
				return err
			}
			if _, err := l.syscall(unix.SYS_GETPID); err != nil {
				return err
			}
			if err := l.setRegs(&l.saved); err != nil {
				return err
			}
			now, err := l.regs()
			if err != nil {
				return err
			}
			if now != l.saved {
				t.Errorf("registers are %+v, were %+v", now, l.saved)
			}
			vectors := l.xstate
			l.xstate = nil
			if err := l.saveVectors(); err != nil {
				return err
			}
			if string(vectors) != string(l.xstate) {
				t.Error("vector registers differ")
			}
			var mask uint64
			if err := ptraceAt(unix.PTRACE_GETSIGMASK, l.pid, 8, unsafe.Pointer(&mask)); err != nil ||
				mask != ^uint64(synchronous)&^(1<<(unix.SIGKILL-1)|1<<(unix.SIGSTOP-1)) {
				t.Errorf("the mask during a call is %#x, %v", mask, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.finish(Ptrace)
}
