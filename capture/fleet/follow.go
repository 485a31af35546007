package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
)

// Reach says how to get to the hub of a run. A hub that is started again has new keys and may have another
// address, so a viewer asks for the join file again when the hub is gone.
type Reach struct {
	// Join returns the content of the hub's join file as it is now.
	Join func(ctx context.Context) (bus.Join, error)
	// Access is how to connect with it; its Join is not used.
	Access bus.Access
}

// Dial connects to the hub that is there now.
func (r Reach) Dial(ctx context.Context) (*bus.Conn, bus.Join, error) {
	join, err := r.Join(ctx)
	if err != nil {
		return nil, join, err
	}
	a := r.Access
	a.Join = join
	c, err := bus.Dial(ctx, a)
	return c, join, err
}

// Reading runs read, which is Run or Follow, until leave is called. That closes the watch.
func (w *Watch) Reading(ctx context.Context, read func(ctx context.Context)) (leave func()) {
	ctx, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { read(ctx) })
	return func() {
		stop()
		work.Wait()
		_ = w.Close()
	}
}

// Follow is like Run, but lasts until ctx is done, whatever happens to the hub: if another hub takes its
// place, Follow reads it from its first message on and skips what is already known. It closes c.
func (w *Watch) Follow(ctx context.Context, c *bus.Conn, join bus.Join, r Reach) {
	for {
		reading, stop := context.WithCancel(ctx)
		var work sync.WaitGroup
		work.Go(func() { w.Run(reading, c) })
		next, joined := r.successor(ctx, c, join)
		stop()
		work.Wait()
		c.Close()
		if next == nil {
			return
		}
		c, join = next, joined
	}
}

// successor waits for a hub that has taken the place of c's, and connects to it. It returns nil when ctx is
// done.
func (r Reach) successor(ctx context.Context, c *bus.Conn, join bus.Join) (*bus.Conn, bus.Join) {
	tick := time.NewTicker(joinEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, join
		case <-tick.C:
		}
		if c.Connected() {
			continue
		}
		// The old connection goes on trying meanwhile: its hub may only have been slow.
		now, err := r.Join(ctx)
		if err != nil || now.Certificate == join.Certificate {
			continue
		}
		a := r.Access
		a.Join = now
		if next, err := bus.Dial(ctx, a); err == nil {
			return next, now
		}
	}
}
