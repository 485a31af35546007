package capture

import (
	"context"
	"sync"
)

// Changes tells that something is newer than what was seen of it: by a number that grows with every change,
// and a channel that each change closes. Unlike with a condition variable a wait ends with a context, and a
// slow reader misses nothing, since only the number counts. The zero value is ready; version 0 is before any
// change.
type Changes struct {
	mu      sync.Mutex
	version int64
	changed chan struct{} // nil while nothing waits
}

// Tell says that there is something new, and returns its version.
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

// Now returns the version of what is known.
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
