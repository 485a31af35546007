package inject

import (
	"errors"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAProcessThatWaitsForAProcessorIsNotLate pins a process of the lowest priority to the processor that another one keeps busy, as on a machine that has
// more to do than it can: a remote call that does not get to run is not one that hangs.
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
	var halted []string
	for range n {
		halted = append(halted, p.inject(Ptrace, count).Stopped().String())
	}
	slices.Sort(halted)
	t.Logf("stopped %v", halted)
	if found := p.finish(Ptrace); found["n"] != float64(n) {
		t.Errorf("the source ran %v times, not %d", found["n"], n)
	}
}

// TestAProcessThatDiesWhileItIsLentKeepsItsExitCode: who started it has to learn how it ended.
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
	_, err = stopped(p.pid, at, func(l *tracee) error {
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
		t.Errorf("%v, not that it has ended", err)
	}
	p.ended = true
	if err := p.cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the exit is %v, not that it was killed", err)
	}
}
