//go:build unix

package inject

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

func TestTheProgramDoesNotEndWhileAProcessIsHalted(t *testing.T) {
	undisturbed(func() {
		if halts.TryLock() { // as Quiesce does
			t.Error("the program could end")
			halts.Unlock()
		}
	})
	if !halts.TryLock() {
		t.Fatal("the program could not end after the halt")
	}
	halts.Unlock()
}

// A terminal that closes ends this program, but not before the halted process has been released.
func TestAClosedTerminalWaitsForTheHaltedProcess(t *testing.T) {
	const child = "TEST_CLOSED_TERMINAL"
	if os.Getenv(child) != "" {
		undisturbed(func() {
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Error(err)
			}
			time.Sleep(200 * time.Millisecond) // in which an unguarded program ends
			fmt.Println("released")
		})
		select {} // the signal ends it now
	}
	// under nohup the child would ignore the signal, unless this process catches it
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if string(out) != "released\n" || !errors.As(err, &exit) ||
		exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGHUP {
		t.Errorf("it printed %q and ended with %v", out, err)
	}
}
