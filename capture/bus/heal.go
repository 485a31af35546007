//go:build !nobus

package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A server that fails to write once stores nothing more, and leaves messages without an answer, even when its
// disk has room again. So the hub asks its server how it is, waits until there is room, and starts another
// one on the same store, at the same address and with the same keys: nodes and viewers connect again by
// themselves.

// lookEvery is how often the hub looks after its server.
const lookEvery = time.Second

// watch looks after the server until ctx is done.
func (h *Hub) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	tell := func(o Outage) {
		if h.options.Tell != nil {
			h.options.Tell(o)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		why := h.ailing()
		if why == nil {
			continue
		}
		o := Outage{Store: h.store, Why: why, Begun: time.Now()}
		tell(o)
		confirmed, _ := newest(h.server) // if it cannot say, nothing is known to be lost
		count := func(kept map[string]uint64) { o.Lost = max(o.Lost, lost(confirmed, kept)) }
		for h.again(count) != nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		o.Ended = time.Now()
		tell(o)
	}
}

// ailing returns why the server stores nothing, nil if it does.
func (h *Hub) ailing() error {
	if !h.server.JetStreamEnabled() {
		return errors.New("the server has given up its store")
	}
	for _, e := range h.server.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if e.Type != server.HealthzErrorStream {
			continue
		}
		// Other things that are wrong with a stream pass by themselves, such as one that is still read.
		if _, why, failed := strings.Cut(e.Error, "write error: "); failed {
			return errors.New(why)
		}
	}
	return nil
}

// again replaces the server by one that can store, if there is room. It passes on what newest says before
// anybody can store more: new messages take the numbers of those that are lost.
func (h *Hub) again(tell func(kept map[string]uint64)) error {
	free, err := h.options.free(h.store)
	if err != nil {
		return err
	}
	if free < leastFree {
		return fmt.Errorf("only %d MiB are free", free>>20)
	}
	h.mu.Lock()
	s := h.server
	h.server = nil
	h.mu.Unlock()
	if s != nil {
		shutDown(s)
	}
	kept, err := h.kept()
	if err != nil {
		return err
	}
	tell(kept)
	return h.start(free)
}

// kept reads the store with a server that nobody can reach.
func (h *Hub) kept() (map[string]uint64, error) {
	options := h.config.Clone()
	options.DontListen, options.LeafNode = true, server.LeafNodeOpts{}
	s, err := server.NewServer(options)
	if err != nil {
		return nil, err
	}
	s.Start()
	defer shutDown(s)
	if !s.ReadyForConnections(hubStarts) {
		return nil, fmt.Errorf("the store was not read within %s", hubStarts)
	}
	return newest(s)
}

// lost counts the messages that were confirmed and are not kept.
func lost(confirmed, kept map[string]uint64) (n int64) {
	for stream, had := range confirmed {
		if has := kept[stream]; has < had {
			n += int64(had - has)
		}
	}
	return n
}

// newest returns the number of the newest message of each stream.
func newest(s *server.Server) (map[string]uint64, error) {
	z, err := s.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return nil, fmt.Errorf("ask for the state of the store: %w", err)
	}
	all := map[string]uint64{}
	for _, a := range z.AccountDetails {
		for _, s := range a.Streams {
			all[s.Name] = s.State.LastSeq
		}
	}
	return all, nil
}
