package torchtest

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/await"
)

//go:embed residue.py
var residue []byte

// Host is a process that trains and gets an agent. Once the agent is gone, the process compares its threads,
// files, hooks, functions, modes and more with what they were before.
type Host struct {
	// Command is what Start runs; it may be changed before that.
	Command *exec.Cmd
	// Env is appended to this process's environment.
	Env []string

	t      testing.TB
	folder string
}

// NewHost prepares a process. It ends with the test.
func NewHost(t testing.TB) *Host {
	t.Helper()
	python := Python(t)
	folder := Folder(t)
	if err := os.Chmod(folder, 0o711); err != nil {
		t.Fatal(err)
	}
	h := &Host{t: t, folder: folder}
	h.write("residue.py", residue)
	h.Command = exec.Command(python, filepath.Join(folder, "residue.py"), folder)
	return h
}

// In runs shell commands first, such as mounts, and then the process as another user.
func (h *Host) In(commands, user string) {
	h.Command = exec.Command("sh", append([]string{"-c", commands + ` && exec "$@"`, "sh"},
		append(h.Command.Args, user)...)...)
}

// Start starts the process and waits until it trains.
func (h *Host) Start(ctx context.Context) {
	h.t.Helper()
	log, err := os.Create(filepath.Join(h.folder, "log"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close()
	h.Command.Env = slices.Concat(os.Environ(), []string{"PYTHONDONTWRITEBYTECODE=1"}, h.Env)
	h.Command.Stdout, h.Command.Stderr = log, log
	if err := h.Command.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = h.Command.Process.Kill() })
	await.Until(h.t, "the process trains", func() bool { // its output is a file, which is polled
		if ctx.Err() != nil {
			h.t.Fatal(h.Said())
		}
		return strings.Contains(h.Said(), "ready")
	})
}

// PID is the number of the process.
func (h *Host) PID() int { return h.Command.Process.Pid }

// Said is what the process printed.
func (h *Host) Said() string {
	b, _ := os.ReadFile(filepath.Join(h.folder, "log"))
	return string(b)
}

// Bring makes the process run an agent's source between two steps. It is a pytorch.Injector.
func (h *Host) Bring(_ context.Context, _ int, source string) error {
	return h.put("bootstrap", []byte(source))
}

// Pause stops the process in the middle of its next backward pass, waits until it has stopped, and returns a
// function that lets it continue.
func (h *Host) Pause() (resume func()) {
	h.t.Helper()
	h.write("pause", nil)
	await.Until(h.t, "a backward pass stays where it is", func() bool {
		return strings.Contains(h.Said(), "paused")
	})
	return func() {
		if err := os.Remove(filepath.Join(h.folder, "pause")); err != nil {
			h.t.Error(err)
		}
	}
}

// Leaves waits until the agent has heard that it is to leave, while the process is paused.
func (h *Host) Leaves() {
	h.t.Helper()
	await.Until(h.t, "the agent has heard that it is to leave", func() bool {
		return strings.Contains(h.Said(), "leaves")
	})
}

// Compare tells the process that the agent is gone, waits for its end, and fails the test if anything is not
// as it was, or if the training learned something else.
func (h *Host) Compare() {
	h.t.Helper()
	time.Sleep(200 * time.Millisecond) // so that it trains on alone for some steps
	h.write("detached", nil)
	if err := h.Command.Wait(); err != nil {
		h.t.Errorf("%v\n%s", err, h.Said())
	}
	if said := h.Said(); strings.Contains(said, "differs") || !strings.Contains(said, "\nsame ") {
		h.t.Errorf("%s", said)
	}
}

func (h *Host) write(name string, text []byte) {
	h.t.Helper()
	if err := h.put(name, text); err != nil {
		h.t.Fatal(err)
	}
}

// put creates a whole file at once: the process keeps looking for it and must not read half of it.
func (h *Host) put(name string, text []byte) error {
	part := filepath.Join(h.folder, "part")
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(h.folder, name))
}
