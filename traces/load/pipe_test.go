package load_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/traces/load"
)

func namedPipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if out, err := exec.Command("mkfifo", path).CombinedOutput(); err != nil {
		t.Skipf("needs mkfifo: %v %s", err, out)
	}
	return path
}

// TestOpenWaitsForTheWriterOfANamedPipe says so once, and then reads what arrives.
func TestOpenWaitsForTheWriterOfANamedPipe(t *testing.T) {
	path := namedPipe(t)
	told := make(chan string, 2)
	write := func(path string) { // begins once the reader has said that it waits
		told <- path
		go func() {
			if err := os.WriteFile(path, []byte(problem), 0o600); err != nil {
				t.Error(err)
			}
		}()
	}
	tr, err := load.Open(t.Context(), path, load.Options{Waiting: write})
	if err != nil || tr.Events.Len() != 4 {
		t.Fatalf("the trace in the pipe: %v", err)
	}
	if len(told) != 1 || <-told != path {
		t.Errorf("the message that it waits came %d more times", len(told))
	}
}

// TestWaitingForAPipeCanBeCancelled: ctrl-c ends it.
func TestWaitingForAPipeCanBeCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := load.Open(ctx, namedPipe(t), load.Options{Waiting: func(string) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
