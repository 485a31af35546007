//go:build unix

package milp

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestANativeSolverThatHangsIsKilledWithItsChildren(t *testing.T) {
	// Solver and child hold a pipe open, which reads to its end only when both are gone.
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	fakeHighs(t, "exec 3> "+pipe+"\n/bin/sleep 1000 &\nwait\n")
	m, _, _ := parseModel(t, "var a 0 1 int\nmin a")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	solved := make(chan error, 1)
	go func() {
		_, err := Solve(ctx, m, Options{})
		solved <- err
	}()
	f, err := os.Open(pipe) // waits for the solver to open its end
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cancel()
	if _, err := io.ReadAll(f); err != nil {
		t.Error(err)
	}
	if err := <-solved; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
