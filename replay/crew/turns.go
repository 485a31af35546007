package crew

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gmemtop/gmemtop/capture"
)

// Turns lets one at a time use the training that a screen watches. The zero value watches nothing. Its
// methods are safe for concurrent use.
type Turns struct {
	mu  sync.Mutex
	now *watched // nil while no training is watched
}

// watched is a training that is watched, and what it is asked to do.
type watched struct {
	shown func() *Crew    // its processes, with the one that is shown
	ctx   context.Context // until it is let go of
	stop  context.CancelFunc
	work  sync.WaitGroup
	turn  chan struct{} // taken by its user
	last  atomic.Int64  // the number of the plan that was on when the turn ended: one of ours
}

// ErrNoTraining says that there is nothing to carry a plan out in.
var ErrNoTraining = errors.New("no training is watched here: gmemtop attach PID watches one")

// Watch offers a training for use; shown returns its processes. leave ends that and waits until its user is
// done. It must be called before the training is let go of.
func (t *Turns) Watch(shown func() *Crew) (leave func()) {
	w := &watched{shown: shown, turn: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = w
	return func() {
		t.mu.Lock()
		if t.now == w {
			t.now = nil
		}
		w.stop()
		t.mu.Unlock()
		w.work.Wait()
	}
}

// training returns the processes, nil where they carry no plans out.
func (w *watched) training() *Crew {
	if w == nil {
		return nil
	}
	c := w.shown()
	v := c.Lead.History.Snapshot()
	if !v.Began || v.Ended || !slices.Contains(v.Target.Capabilities, capture.CapabilityPlans) {
		return nil
	}
	return c
}

// Training names the training that is watched, "" for none that carries plans out.
func (t *Turns) Training() string {
	t.mu.Lock()
	c := t.now.training()
	t.mu.Unlock()
	if c == nil {
		return ""
	}
	who := c.Lead.History.Snapshot().Target
	return fmt.Sprintf("process %d: %s", who.PID, who.Command())
}

// Use has f use the training until it is let go of. It waits for its turn.
func (t *Turns) Use(ctx context.Context, f func(ctx context.Context, c *Crew) error) error {
	t.mu.Lock()
	w := t.now
	c := w.training()
	if c == nil {
		t.mu.Unlock()
		return ErrNoTraining
	}
	w.work.Add(1)
	t.mu.Unlock()
	defer w.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	select {
	case w.turn <- struct{}{}:
		defer func() {
			w.last.Store(c.Lead.under())
			<-w.turn
		}()
	case <-ctx.Done():
		return nil
	}
	if ctx.Err() != nil || w.ctx.Err() != nil { // let go of while it waited
		return nil
	}
	return ended(ctx, f(ctx, c))
}

// Elsewhere says which plan of another viewer the training trains with, "" for none.
func (t *Turns) Elsewhere() string {
	t.mu.Lock()
	w := t.now
	c := w.training()
	t.mu.Unlock()
	if c == nil || len(w.turn) > 0 {
		return ""
	}
	if n := c.Lead.under(); n == 0 || n == w.last.Load() {
		return ""
	}
	v := c.Lead.History.Snapshot()
	return cmp.Or(v.Said(keyTraining), "it trains with a plan")
}
