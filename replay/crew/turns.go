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
	"github.com/gmemtop/gmemtop/capture/say"
)

// Turns lets one caller at a time use the training on a screen. The zero value has no training. Its methods
// are safe for concurrent use.
type Turns struct {
	mu  sync.Mutex
	now *watched // nil while no training is watched
}

// watched is a training on the screen and the work asked of it.
type watched struct {
	shown func() *Crew    // its processes, with the one on the screen
	ctx   context.Context // until gmemtop detaches
	stop  context.CancelFunc
	work  sync.WaitGroup
	turn  chan struct{} // held by the current user
	last  atomic.Int64  // the number of the plan that was on when the turn ended: one of ours
}

// errNoTraining says that there is no training to carry a plan out in.
var errNoTraining = errors.New(say.NothingWatched.Text())

// Watch offers a training for use; shown returns its processes. leave withdraws the offer and waits until its
// user is done; call it before detaching from the training.
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

// training returns the processes, nil if they cannot carry plans out.
func (w *watched) training() *Crew {
	if w == nil {
		return nil
	}
	c := w.shown()
	v := c.Lead.History.Snapshot()
	if !v.Began || v.Ended || !slices.Contains(v.Info.Capabilities, capture.CapabilityPlans) {
		return nil
	}
	return c
}

// Training names the watched training, "" if there is none that can carry plans out.
func (t *Turns) Training() string {
	t.mu.Lock()
	c := t.now.training()
	t.mu.Unlock()
	if c == nil {
		return ""
	}
	who := c.Lead.History.Snapshot().Info
	return fmt.Sprintf("process %d: %s", who.PID, who.Command())
}

// Use waits for its turn and calls f, whose context ends when gmemtop detaches from the training.
func (t *Turns) Use(ctx context.Context, f func(ctx context.Context, c *Crew) error) error {
	t.mu.Lock()
	w := t.now
	c := w.training()
	if c == nil {
		t.mu.Unlock()
		return errNoTraining
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
	if ctx.Err() != nil || w.ctx.Err() != nil { // detached while this call waited
		return nil
	}
	return ended(ctx, f(ctx, c))
}

// Elsewhere says which plan of another viewer is on, "" for none.
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
