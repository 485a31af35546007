//go:build !nobus

package bus

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Conn is a connection to a hub. It connects again by itself whenever it is lost. Its methods are safe for
// concurrent use.
type Conn struct {
	access Access
	names  names
	nats   *nats.Conn
	js     jetstream.JetStream

	mu     sync.Mutex
	failed error // the newest error that the server reported by itself
	// link is done when the hub is reached again after it was lost. Requests that still wait for an answer
	// then wait in vain.
	link   context.Context
	relink context.CancelFunc
}

// fail keeps an error that the server reported by itself.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

// reconnected tells readers that the hub is another one, or has started again: it may have lost messages.
func (c *Conn) reconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.relink()
	c.link, c.relink = context.WithCancel(context.Background())
}

// unlessRelinked returns a context that is also done when the hub is reached again after this.
func (c *Conn) unlessRelinked(ctx context.Context) (context.Context, context.CancelFunc) {
	c.mu.Lock()
	link := c.link
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(link, cancel)
	return ctx, func() { stop(); cancel() }
}

// Err returns why the connection is not well: the hub is gone, or has refused something.
func (c *Conn) Err() error {
	if !c.nats.IsConnected() {
		if err := c.nats.LastError(); err != nil {
			return reason(err)
		}
		return ErrNoHub
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// Connected reports whether the hub is reached at the moment.
func (c *Conn) Connected() bool { return c.nats.IsConnected() }

// Close ends the connection.
func (c *Conn) Close() {
	c.nats.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.relink()
}

// prepare makes the run's missing streams. Each keeps at most most bytes, and each message is stored on
// replicas servers.
func (c *Conn) prepare(ctx context.Context, most int64, replicas int) error {
	for _, k := range kinds {
		l := streamLimits[k]
		each := l.each
		if each == 0 {
			each = -1
		}
		if _, err := c.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: c.names.stream(k), Subjects: []string{c.names.streamSubject(k)},
			MaxBytes: min(l.bytes, most/max(l.part, 1)), MaxMsgsPerSubject: each, MaxAge: l.age,
			Discard: jetstream.DiscardOld, MaxMsgSize: maxMessage, Duplicates: repeated, Replicas: replicas,
		}); err != nil {
			return fmt.Errorf("prepare the stream of kind %s: %w", k, reason(err))
		}
	}
	return nil
}

// publish stores a message and returns once the hub has confirmed that. again reports that the hub had it
// already.
func (c *Conn) publish(ctx context.Context, node string, k Kind, id string, data []byte) (again bool,
	err error) {
	ctx, cancel := c.unlessRelinked(ctx)
	defer cancel()
	ack, err := c.js.Publish(ctx, c.names.subject(node, k), data, jetstream.WithMsgID(id))
	if err != nil {
		return false, err
	}
	return ack.Duplicate, nil
}

// Store stores a message of a node and returns once the hub has confirmed that, or with ctx's error. A
// message with an id that the hub has stored lately is stored once. Steps go through a [Ring] instead.
func (c *Conn) Store(ctx context.Context, node string, k Kind, id string, data []byte) error {
	if len(data) > maxMessage {
		return fmt.Errorf("send a message of %d bytes: a hub takes %d at most", len(data), maxMessage)
	}
	if _, err := c.publish(ctx, node, k, id, data); err != nil {
		return fmt.Errorf("send to the hub: %w", reason(err))
	}
	return nil
}
