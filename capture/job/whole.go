package job

import (
	"context"
	"errors"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
)

// Whole makes a source that takes orders from one that captures everything, as probes do. Detach ends it;
// orders to capture have nothing to add.
func Whole(s capture.Source) Source { return &whole{source: s, done: make(chan struct{})} }

type whole struct {
	source capture.Source

	mu   sync.Mutex
	stop context.CancelFunc // nil until it runs
	done chan struct{}
}

// Run implements capture.Source. A Detach ends it without an error.
func (w *whole) Run(ctx context.Context, sink capture.Sink) error {
	run, stop := context.WithCancel(ctx)
	defer close(w.done)
	defer stop()
	w.mu.Lock()
	w.stop = stop
	w.mu.Unlock()
	err := w.source.Run(run, sink)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return nil
	}
	return err
}

// Order implements capture.Controller. Everything is captured already, and no plan is carried out.
func (w *whole) Order(_ context.Context, o capture.Order) error {
	if o.Do == capture.Carry || o.Do == capture.Keep {
		return capture.ErrNoOrders
	}
	return nil
}

// Detach implements capture.Controller.
func (w *whole) Detach(ctx context.Context) error {
	w.mu.Lock()
	stop := w.stop
	w.mu.Unlock()
	if stop == nil {
		return ErrNotConnected
	}
	stop()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
