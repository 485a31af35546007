package bus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
)

// A node sends through a ring. What is put there waits in memory until the hub has confirmed that it stored
// it. Putting never waits: when the ring is full, the oldest message makes room and is counted. Every message
// has a number of its own, so that one whose confirmation was lost is sent again but stored once.

// Ring is a bounded queue of messages to a hub. Its methods are safe for concurrent use.
type Ring struct {
	node string
	// boot tells two lives of a node apart: both number their messages from 1.
	boot  string
	limit RingLimits

	mu     sync.Mutex
	queue  []queued
	bytes  int64
	next   int64
	counts Counts
	more   chan struct{} // receives when something was put
	empty  chan struct{} // closed when everything is sent; nil while nobody waits
}

type queued struct {
	kind Kind
	seq  int64
	data []byte
}

// RingLimits bound a ring; zero fields have defaults.
type RingLimits struct {
	Messages int
	Bytes    int64
}

// Counts are what a ring has done so far.
type Counts struct {
	// Put is how many messages were put in, Sent how many the hub has confirmed.
	Put, Sent int64
	// Again is how many of those confirmed had been stored by an earlier attempt.
	Again int64
	// Dropped is how many made room for newer ones, or were larger than maxMessage.
	Dropped int64
	// Waiting is how many are in the ring now.
	Waiting int
}

const (
	ringMessages = 8192
	ringBytes    = 16 << 20
	// publishWait is how long the hub may take to confirm a message before it is sent again.
	publishWait = 5 * time.Second
	// publishRest is the pause after a failed attempt.
	publishRest = 250 * time.Millisecond
)

// NewRing returns the empty ring of a node.
func NewRing(node string, l RingLimits) *Ring {
	if l.Messages <= 0 {
		l.Messages = ringMessages
	}
	if l.Bytes <= 0 {
		l.Bytes = ringBytes
	}
	var boot [8]byte
	_, _ = rand.Read(boot[:]) // never fails
	return &Ring{node: node, boot: hex.EncodeToString(boot[:]), limit: l, more: make(chan struct{}, 1)}
}

// Put adds a message. The ring keeps data.
func (r *Ring) Put(k Kind, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Put++
	r.next++
	if len(data) > maxMessage {
		r.counts.Dropped++
		return
	}
	r.queue = append(r.queue, queued{k, r.next, data})
	r.bytes += int64(len(data))
	for len(r.queue) > r.limit.Messages || r.bytes > r.limit.Bytes && len(r.queue) > 1 {
		r.bytes -= int64(len(r.queue[0].data))
		r.queue[0].data = nil
		r.queue = r.queue[1:]
		r.counts.Dropped++
	}
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// Counts returns what the ring has done so far.
func (r *Ring) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	c.Waiting = len(r.queue)
	return c
}

// Send sends what is in the ring, and what is put there later, until ctx is done.
func (r *Ring) Send(ctx context.Context, c *Conn) {
	for ctx.Err() == nil {
		m, ok := r.first()
		if !ok {
			select {
			case <-ctx.Done():
			case <-r.more:
			}
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, publishWait)
		again, err := c.publish(attempt, r.node, m.kind, fmt.Sprintf("%s/%s/%d", Token(r.node), r.boot,
			m.seq),
			m.data)
		cancel()
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(publishRest):
			}
			continue
		}
		r.sent(m, again)
	}
}

// first returns the oldest message, which stays in the ring.
func (r *Ring) first() (queued, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return queued{}, false
	}
	return r.queue[0], true
}

// sent removes a confirmed message, unless it has made room for a newer one meanwhile. In that case it was
// counted as dropped, which was wrong.
func (r *Ring) sent(m queued, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Sent++
	if again {
		r.counts.Again++
	}
	if len(r.queue) > 0 && r.queue[0].seq == m.seq {
		r.bytes -= int64(len(m.data))
		r.queue[0].data = nil
		r.queue = r.queue[1:]
	} else {
		r.counts.Dropped--
	}
	if len(r.queue) == 0 && r.empty != nil {
		close(r.empty)
		r.empty = nil
	}
}

// Flush waits until everything is sent, or returns ctx's error when ctx is done before.
func (r *Ring) Flush(ctx context.Context) error {
	r.mu.Lock()
	if len(r.queue) == 0 {
		r.mu.Unlock()
		return nil
	}
	if r.empty == nil {
		r.empty = make(chan struct{})
	}
	empty := r.empty
	r.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
