package pytorch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/await"
)

// TestAProcessThatCannotReachTheSocketIsReported runs a command that becomes another user, or sees other
// files, and maps what looks like torch: gmemtop does not attach, since it could not connect, and says once
// how to watch it.
func TestAProcessThatCannotReachTheSocketIsReported(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: it becomes another user, and makes a mount namespace")
	}
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skip("needs a Python below /usr: any user may run that")
	}
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skip("needs unshare: it makes a mount namespace")
	}
	const script = `
import mmap, os, sys, time
with open(sys.argv[1], "rb") as f:
    if sys.argv[2:]:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)  # a process that maps it for a second is attached to
time.sleep(1000)
`
	library := filepath.Join(t.TempDir(), "libtorch_python.so")
	if err := os.WriteFile(library, []byte("not torch"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, argv := range map[string][]string{
		"another user": {python, "-I", "-c", script, library, "down"},
		"a container":  {"unshare", "--mount", python, "-I", "-c", script, library},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, err := Start(Launch{Argv: argv, Reach: func(_ context.Context, pid int, _ string) error {
				t.Errorf("process %d was attached to", pid)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			said := &notices{History: capture.NewHistory(capture.Limits{})}
			done := make(chan error, 1)
			go func() { done <- job.Run(context.Background(), said) }()
			t.Cleanup(func() { _ = job.Signal(os.Kill) })
			want := fmt.Sprintf("process %d (", job.PID())
			await.Until(t, "it is said", func() bool { return len(said.of("reach")) > 0 })
			time.Sleep(2 * reachEvery) // long enough for a second look, which must not attach either
			if err := job.Signal(os.Kill); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			list := said.of("reach")
			if len(list) != 1 || !strings.HasPrefix(list[0], want) ||
				!strings.Contains(list[0], "as another user or in a container") ||
				!strings.Contains(list[0], fmt.Sprintf("gmemtop attach %d ", job.PID())) {
				t.Errorf("for process %d the message is %q", job.PID(), list)
			}
		})
	}
}

// notices is a sink that keeps every notice, including several with one key.
type notices struct {
	*capture.History
	mu   sync.Mutex
	list []capture.Notice
}

func (n *notices) Notice(x capture.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, x)
}

// of returns the texts under a key.
func (n *notices) of(key string) (texts []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, x := range n.list {
		if x.Key == key {
			texts = append(texts, x.Text)
		}
	}
	return texts
}
