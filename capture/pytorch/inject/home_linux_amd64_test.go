package inject

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/await"
	"golang.org/x/sys/unix"
)

// deaths are points where gmemtop may be killed while it has a thread halted.
var deaths = map[string]func(l *tracee, function func(string) uint64, die func()) error{
	"before the first call": func(l *tracee, _ func(string) uint64, die func()) error {
		defer die()
		return l.begin()
	},
	"within a system call": func(l *tracee, _ func(string) uint64, die func()) error {
		time.AfterFunc(5*time.Millisecond, die)
		l.limit = time.Second
		_, err := l.syscall(unix.SYS_POLL, 0, 0, 50)
		return err
	},
	"after a system call": func(l *tracee, _ func(string) uint64, die func()) error {
		defer die()
		_, err := l.syscall(unix.SYS_GETPID)
		return err
	},
	"within a function": func(l *tracee, function func(string) uint64, die func()) error {
		if err := l.mapStack(); err != nil {
			return err
		}
		time.AfterFunc(5*time.Millisecond, die)
		l.limit = time.Second
		_, err := l.call(function("usleep"), 50_000)
		return err
	},
	"after a function": func(l *tracee, function func(string) uint64, die func()) error {
		if err := l.mapStack(); err != nil {
			return err
		}
		if pid, err := l.call(function("getpid")); err != nil || pid != uint64(l.pid) {
			return fmt.Errorf("getpid returned %d, %w", pid, err)
		}
		die()
		return nil
	},
	"before the release": func(l *tracee, _ func(string) uint64, die func()) error {
		defer die()
		if _, err := l.syscall(unix.SYS_GETPID); err != nil {
			return err
		}
		if err := l.park(); err != nil {
			return err
		}
		return l.toSignalPath()
	},
}

func (t *tracee) mapStack() error {
	base, err := t.syscall(unix.SYS_MMAP, 0, stackSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	t.useStack(base + stackSize)
	return err
}

// TestTheTargetSurvivesTheKillingOfGmemtop kills a process of this program while it has a target halted, at
// each place in turn. The target checks its own registers and arithmetic, and what it waits for.
func TestTheTargetSurvivesTheKillingOfGmemtop(t *testing.T) {
	needsPtrace(t)
	const target, place = "TEST_KILLED_IN", "TEST_KILLED_AT"
	if pid, _ := strconv.Atoi(os.Getenv(target)); pid != 0 {
		tg, f := examine(host(), pid)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		mem := processMemory(pid)
		l := lendable(pid, 0)
		l.home.ways = findWaysHome(mem, tg.modules, tg.mappings)
		l.home.strict = tg.status.seccomp != 0
		die := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
		function := func(name string) uint64 { return libc(mem, tg.modules, name) }
		err := stopped(l, nil, func(l *tracee) error {
			err := deaths[os.Getenv(place)](l, function, die)
			if !l.home.ready {
				t.Errorf("there is nothing to return to: %+v, stack pointer %#x", l.home.ways, l.saved.Rsp)
			}
			return err
		})
		t.Fatalf("it was not killed: %v", err)
	}
	for mode, mask := range map[string]string{ // the signals that the main thread blocks
		"compute": "0000000000000000", "asleep": "0000000000000000", "seccomp": "0000000000000000",
		"signals": "0000000000000810",
	} {
		t.Run(mode, func(t *testing.T) {
			p := start(t, one(t, 8, 14).command(mode))
			for at := range deaths {
				for range 4 {
					cmd := exec.Command(os.Args[0], "-test.run=^TestTheTargetSurvivesTheKillingOfGmemtop$")
					cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", target, p.pid), place+"="+at)
					out, err := cmd.CombinedOutput()
					if err == nil || err.Error() != "signal: killed" {
						t.Fatalf("%s: %v\n%s", at, err, out)
					}
					await.Until(t, at+": the target has no tracer and the signal mask "+mask, func() bool {
						now := p.traces()
						return now["TracerPid"] == "0" && now["SigBlk"] == mask
					})
				}
			}
			p.finish(Ptrace)
		})
	}
}
