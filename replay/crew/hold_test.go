package crew

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// hold pauses a training: it starts no step while the file named by HOLD in its environment exists. Whatever
// a test does meanwhile (planning, compiling, waiting for another process) then costs the training no steps,
// however busy the machine is.
type hold struct {
	t    *testing.T
	path string

	mu  sync.Mutex
	now int // how many callers want the training paused
}

func newHold(t *testing.T) *hold {
	t.Helper()
	return &hold{t: t, path: filepath.Join(t.TempDir(), "hold")}
}

// environ returns the variable to set in the training's environment.
func (h *hold) environ() string { return "HOLD=" + h.path }

// on pauses the training before its next step, until off has been called as often as on.
func (h *hold) on() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now++; h.now == 1 {
		if err := os.WriteFile(h.path, nil, 0o600); err != nil {
			h.t.Error(err)
		}
	}
}

func (h *hold) off() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now--; h.now == 0 {
		if err := os.Remove(h.path); err != nil {
			h.t.Error(err)
		}
	}
}

// still pauses the training until the returned function is called. A training that runs for as long as needed
// takes a nil hold.
func (h *hold) still() (on func()) {
	if h == nil {
		return func() {}
	}
	h.on()
	return h.off
}
