package crew

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// hold has a training stand still: it begins no step as long as a file is there that HOLD names in its
// environment. What a test does meanwhile, plan or compile or wait for another process, takes as long as the
// machine is busy and costs the training no steps.
type hold struct {
	t    *testing.T
	path string

	mu  sync.Mutex
	now int // how many want it to stand still
}

func newHold(t *testing.T) *hold {
	t.Helper()
	return &hold{t: t, path: filepath.Join(t.TempDir(), "hold")}
}

// environ is what the training is to have in its environment.
func (h *hold) environ() string { return "HOLD=" + h.path }

// on has it stand still from its next step on, until off is called as often.
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

// still has it stand still until the function that it returns is called. A training that lasts however long
// takes a nil hold.
func (h *hold) still() (on func()) {
	if h == nil {
		return func() {}
	}
	h.on()
	return h.off
}
