package main

import (
	"context"
	"sync"
)

// news tells those who look at something that there is more to see than they saw: a number that grows with
// every change, and a channel that each change closes and makes anew. It is what Wait of a live.Feed and of a
// machine.Feed is made of. Unlike a condition variable it can be waited for together with a context, and one
// who looks rarely misses nothing: only the number counts, not how often it was told. The zero value is
// ready; version 0 is before any news.
type news struct {
	mu      sync.Mutex
	version int64
	changed chan struct{} // nil until somebody waits
}

// tell says that there is something new, and returns its version.
func (n *news) tell() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version++
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
	return n.version
}

// now returns the version of what is known.
func (n *news) now() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.version
}

// Wait returns when there is something newer than version, or ctx's error when ctx is done.
func (n *news) Wait(ctx context.Context, version int64) error {
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
