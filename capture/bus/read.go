//go:build !nobus

package bus

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Read calls take for all messages of some kinds, those that the hub has and those that come later, each kind
// in order, until ctx is done. If the hub is gone, Read waits until it is back. caught, unless nil, is called
// once for each kind, when everything that the hub had at the beginning was taken. Calls of take and caught
// never overlap.
func (c *Conn) Read(ctx context.Context, take func(m Message), caught func(k Kind), kinds ...Kind) {
	c.read(ctx, reader{}, take, caught, kinds)
}

// ReadNode reads one node's messages as Read does, those that were stored from some time on.
func (c *Conn) ReadNode(ctx context.Context, node string, since time.Time, take func(m Message),
	caught func(k Kind), kinds ...Kind) {
	c.read(ctx, reader{node: node, since: since}, take, caught, kinds)
}

// ReadNew is Read without the messages that the hub had at the beginning: after caught is called, nothing is
// missed.
func (c *Conn) ReadNew(ctx context.Context, take func(m Message), caught func(k Kind), kinds ...Kind) {
	c.read(ctx, reader{fresh: true}, take, caught, kinds)
}

// read reads with a reader of each kind that has these settings.
func (c *Conn) read(ctx context.Context, how reader, take func(m Message), caught func(k Kind),
	kinds []Kind) {
	var one sync.Mutex
	var all sync.WaitGroup
	for _, k := range kinds {
		all.Go(func() {
			r := how
			r.conn, r.kind = c, k
			r.take = func(m Message) {
				one.Lock()
				defer one.Unlock()
				take(m)
			}
			r.caught = func() {
				one.Lock()
				defer one.Unlock()
				if caught != nil {
					caught(k)
				}
			}
			for ctx.Err() == nil {
				r.follow(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(publishRest):
				}
			}
		})
	}
	all.Wait()
}

// reader follows one stream.
type reader struct {
	conn   *Conn
	kind   Kind
	take   func(m Message)
	caught func()

	fresh bool      // skip what existed at the beginning
	node  string    // whose messages to read, "" for all
	since time.Time // when the first message was stored

	done bool      // caught was called
	made time.Time // when the stream was made: a hub that lost its store has a new one
	last uint64    // the number of the newest message
}

// follow reads until something fails.
func (r *reader) follow(ctx context.Context) {
	name := r.conn.names.stream(r.kind)
	following, stop := r.conn.unlessRelinked(ctx)
	defer stop()
	begin, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	js, s, err := r.conn.stream(begin, r.kind)
	if err != nil {
		return
	}
	// The hub's clock may differ from this machine's.
	ahead := time.Duration(0)
	if now := s.CachedInfo().TimeStamp; !now.IsZero() {
		ahead = time.Until(now)
	}
	if made := s.CachedInfo().Created; !made.Equal(r.made) {
		r.made, r.last = made, 0
	}
	had := s.CachedInfo().State.LastSeq
	if had < r.last { // a hub whose disk was full or broken has lost the end, and numbers go on from there
		r.last = 0
	}
	if s.CachedInfo().State.Msgs == 0 {
		had = 0
	}
	if r.fresh && !r.done {
		r.last = s.CachedInfo().State.LastSeq
	}
	// NATS's ordered consumer would mend itself, but only by the numbers of a store that has lost nothing.
	config := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.last + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: 30 * time.Second,
	}
	if r.last == 0 && !r.since.IsZero() {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartTimePolicy, 0
		config.OptStartTime = &r.since
	}
	if r.node != "" {
		config.FilterSubject = r.conn.names.subject(r.node, r.kind)
	}
	consumer, err := js.CreateConsumer(begin, name, config)
	if err != nil {
		return
	}
	if consumer.CachedInfo().NumPending == 0 { // nothing that is wanted is there
		had = min(had, r.last)
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishRest)
		defer cancel()
		_ = js.DeleteConsumer(late, name, consumer.CachedInfo().Name) // it goes by itself, too
	}()
	messages, err := consumer.Messages(jetstream.PullHeartbeat(heartbeat),
		jetstream.PullExpiry(10*time.Second), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return
	}
	defer messages.Stop()
	for next := uint64(1); ctx.Err() == nil; next++ {
		if !r.done && r.last >= had {
			r.done = true
			r.caught()
		}
		m, err := messages.Next(jetstream.NextContext(following))
		if err != nil {
			return
		}
		about, err := m.Metadata()
		if err != nil || about.Sequence.Consumer != next { // one was lost on the way
			return
		}
		r.last = about.Sequence.Stream
		if node, ok := r.conn.names.nodeOf(m.Subject()); ok {
			r.take(Message{Node: node, Kind: r.kind, Data: m.Data(), Stored: about.Timestamp,
				Age: max(time.Since(about.Timestamp)+ahead, 0)})
		}
		if about.NumPending == 0 { // later messages of the same nodes may have replaced what was there
			had = min(had, r.last)
		}
	}
}
