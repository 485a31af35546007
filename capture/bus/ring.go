package bus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A node sends through a ring. What is put there waits in memory until the hub has confirmed that it stored
// it. Putting never waits: when the ring is full, the oldest message makes room and is counted. Every message
// has a number of its own, so that one whose confirmation was lost is sent again but stored once.
//
// Of hellos only the newest matters, so at most two of them wait: the next one to be sent, and the newest. A
// node that repeats itself while the hub is away pushes no steps out.

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
	// Put is how many messages were put in, without those that a newer one replaced. Sent is how many the
	// hub has confirmed.
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

// Put adds a message. The ring keeps data. It returns what made room, or data if no hub would take it. If one
// of these was being sent, the hub may have it nevertheless.
func (r *Ring) Put(k Kind, data []byte) (dropped []Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Put++
	r.next++
	if len(data) > maxMessage {
		r.counts.Dropped++
		return []Message{{Node: r.node, Kind: k, Data: data}}
	}
	if streamLimits[k].each == 1 {
		r.replace(k)
	}
	r.queue = append(r.queue, queued{k, r.next, data})
	r.bytes += int64(len(data))
	for len(r.queue) > r.limit.Messages || r.bytes > r.limit.Bytes && len(r.queue) > 1 {
		m := r.queue[0]
		dropped = append(dropped, Message{Node: r.node, Kind: m.kind, Data: m.data})
		r.bytes -= int64(len(m.data))
		r.queue[0].data = nil
		r.queue = r.queue[1:]
		r.counts.Dropped++
	}
	select {
	case r.more <- struct{}{}:
	default:
	}
	return dropped
}

// replace removes the newest message of a kind that waits, unless it is the only one: if newer ones took the
// place of that again and again, a hub that is slow would never get one.
func (r *Ring) replace(k Kind) {
	newest, waiting := -1, 0
	for i := range r.queue {
		if r.queue[i].kind == k {
			newest, waiting = i, waiting+1
		}
	}
	if waiting < 2 {
		return
	}
	r.bytes -= int64(len(r.queue[newest].data))
	r.queue = slices.Delete(r.queue, newest, newest+1)
	r.counts.Put--
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
