package inject

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lendable is a thread that may be halted, and made to do system calls at a given instruction.
func lendable(pid int, gadget uint64) *tracee {
	return &tracee{pid: pid, mem: processMemory(pid), gadget: gadget, limit: callLimit}
}

// TestAProcessThatWaitsForAProcessorIsNotLate pins a process of the lowest priority to a processor that
// another one keeps busy, as on an overloaded machine: a remote call that does not get to run is not one that
// hangs.
func TestAProcessThatWaitsForAProcessorIsNotLate(t *testing.T) {
	needsPtrace(t)
	p := start(t, one(t, 8, 14).command("compute"))
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Process.Kill(); _ = busy.Wait() }()
	var first unix.CPUSet
	if err := unix.SchedGetaffinity(0, &first); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if first.IsSet(cpu) {
			first.Zero()
			first.Set(cpu)
			break
		}
	}
	for _, pid := range []int{p.pid, busy.Process.Pid} {
		if err := unix.SchedSetaffinity(pid, &first); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, p.pid, 19); err != nil {
		t.Fatal(err)
	}
	const n = 5
	var halted, starved time.Duration
	for range n {
		r := p.inject(Ptrace, count)
		halted, starved = halted+r.Stopped(), starved+r.Starved()
	}
	t.Logf("stopped for %v, without a processor for %v of it", halted, starved)
	if halted > 50*time.Millisecond && starved < halted/2 {
		t.Errorf("it had no processor for %v out of %v", starved, halted)
	}
	took, ours := p.calls(t, 200)
	t.Logf("calls of %v took the tracing thread %v of a processor", took, ours)
	// a busy wait would have kept the processor from the process that it waits for
	if took > 50*time.Millisecond && ours > took/4 {
		t.Errorf("during a wait of %v the tracing thread ran for %v", took, ours)
	}
	if found := p.finish(Ptrace); found["n"] != float64(n) {
		t.Errorf("the source ran %v times, not %d", found["n"], n)
	}
}

// calls makes the process do system calls while it is halted, and returns how long that took and how long the
// tracing thread ran meanwhile.
func (p *process) calls(t *testing.T, n int) (took, ours time.Duration) {
	t.Helper()
	tg, f := examine(host(), p.pid)
	at, err := gadget(processMemory(p.pid), tg.modules, tg.mappings)
	if err := errors.Join(f.Err(), err); err != nil {
		t.Fatal(err)
	}
	l, start := lendable(p.pid, at), time.Now()
	if err := stopped(l, nil, func(l *tracee) error {
		if was := debug.SetGCPercent(-1); was != -1 {
			debug.SetGCPercent(was)
			if time.Since(start) < steadyLimit { // it is given back after that
				t.Error("garbage is collected while the process is halted")
			}
		}
		began, _ := l.ours.read()
		for range n {
			if _, err := l.syscall(unix.SYS_GETPID); err != nil {
				return err
			}
		}
		ended, _ := l.ours.read()
		ours = ended - began
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return l.took, ours
}

// TestAProcessThatDiesWhileItIsLentKeepsItsExitCode: its parent must learn how it ended.
func TestAProcessThatDiesWhileItIsLentKeepsItsExitCode(t *testing.T) {
	p := start(t, one(t, 8, 14).command("compute"))
	tg, f := examine(host(), p.pid)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	at, err := gadget(processMemory(p.pid), tg.modules, tg.mappings)
	if err != nil {
		t.Fatal(err)
	}
	err = stopped(lendable(p.pid, at), nil, func(l *tracee) error {
		if err := unix.Kill(p.pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		_, err := l.syscall(unix.SYS_GETPID)
		for err == nil || !errors.Is(err, errEnded) && !errors.Is(err, unix.ESRCH) {
			_, err = l.syscall(unix.SYS_GETPID)
		}
		return l.wait(time.Second)
	})
	if !errors.Is(err, errEnded) {
		t.Errorf("%v, which does not say that it has ended", err)
	}
	p.ended = true
	if err := p.cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the exit is %v, which does not say that it was killed", err)
	}
}

// TestATracerThatHasLeftIsStillTheReason: it may be gone before anybody looks at the error.
func TestATracerThatHasLeftIsStillTheReason(t *testing.T) {
	in := &injection{pid: os.Getpid()}
	err := in.failed("attach", fmt.Errorf("seize: %w: %w", tracedBy(os.Getpid()), unix.EPERM))
	var e *Error
	if !errors.As(err, &e) || e.Kind != ErrBusy || !e.Attaching {
		t.Errorf("%v, want that another gmemtop is attaching", err)
	}
	err = in.failed("attach", fmt.Errorf("seize: %w", unix.EPERM))
	if !errors.As(err, &e) || e.Kind != ErrNotPermitted {
		t.Errorf("%v, want that it is not permitted", err)
	}
}

// TestAnAttachThatMeetsAnotherOneIsTriedAgain: the kernel gives the same answer to the second of two that
// attach at once and to one without permission.
func TestAnAttachThatMeetsAnotherOneIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		what    string
		answers []error // of the kernel, the last one for good
		tracer  int
		tries   int
		want    error
	}{
		{"nobody is in the way", []error{nil}, 0, 1, nil},
		{"the other one has left", []error{unix.EPERM, nil}, 0, 2, nil},
		{"the other one is still there", []error{unix.EPERM, nil}, 7, 1, unix.EPERM},
		{"it came back between two tries", []error{unix.EPERM, unix.EPERM, unix.EPERM, nil}, 0, 4, nil},
		{"not permitted", []error{unix.EPERM}, 0, 8, unix.EPERM},
		{"no such process", []error{unix.ESRCH, nil}, 0, 1, unix.ESRCH},
	} {
		tries, paused := 0, time.Duration(0)
		err := seize(func() error {
			tries++
			return c.answers[min(tries, len(c.answers))-1]
		}, func() int { return c.tracer }, func(d time.Duration) { paused += d })
		if paused > 250*time.Millisecond {
			t.Errorf("%s: it pauses for %s", c.what, paused)
		}
		var by tracedBy
		if errors.As(err, &by); int(by) != c.tracer {
			t.Errorf("%s: traced by %d, want %d", c.what, by, c.tracer)
		}
		if !errors.Is(err, c.want) || tries != c.tries {
			t.Errorf("%s: %v after %d tries, want %v after %d", c.what, err, tries, c.want, c.tries)
		}
	}
}
