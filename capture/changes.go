package capture

import (
	"context"
	"sync"
)

// Changes signals that something has changed: a version number grows with every change, and each change
// closes a channel. Unlike with a condition variable, a context can end a wait, and a slow reader misses
// nothing, since only the number counts. The zero value is ready; version 0 is before any change.
type Changes struct {
	mu      sync.Mutex
	version int64
	changed chan struct{} // nil while nobody waits
}

// Tell announces a change and returns its version.
func (n *Changes) Tell() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version++
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
	return n.version
}

// Now returns the current version.
func (n *Changes) Now() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.version
}

// Wait returns when there is something newer than version, or ctx's error when ctx is done.
func (n *Changes) Wait(ctx context.Context, version int64) error {
	for {
		n.mu.Lock()
		if n.version > version {
			n.mu.Unlock()
			return nil
		}
		if n.changed == nil {
			n.changed = make(chan struct{})
		}
		changed := n.changed
		n.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
