package inject

import (
	"os/exec"
	"slices"
	"testing"

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
