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
		confirmed := h.newest()
		for h.again() != nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		for stream, had := range confirmed {
			if has := h.newest()[stream]; has < had {
				o.Lost += int64(had - has)
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

// again replaces the server by one that can store, if there is room.
func (h *Hub) again() error {
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
	return h.start(free)
}

// newest returns the number of the newest message of each stream.
func (h *Hub) newest() map[string]uint64 {
	z, err := h.server.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return nil
	}
	all := map[string]uint64{}
	for _, a := range z.AccountDetails {
		for _, s := range a.Streams {
			all[s.Name] = s.State.LastSeq
		}
	}
	return all
}
