//go:build !nobus

package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// A site's own NATS servers can carry a run instead of a server of ours. Who may connect, and to what, is up
// to the site: its credentials take the place of the keys in the join file. Orders are signed with the
// operator's key all the same, so nobody at the site can give any.

// siteBytes bounds each stream of a run on a site's servers.
const siteBytes = 256 << 20

// openSite makes the streams of a run on a site's servers where they are missing.
func (h *Hub) openSite() error {
	o := h.options
	if o.Listen != "" || o.Socket != "" || o.Store != "" || o.Work {
		return errors.New("open a run on a site's servers: they listen and store themselves")
	}
	if o.Keys == nil {
		return errors.New("open a run on a site's servers: orders need keys")
	}
	own, err := h.dial(owner)
	if err != nil {
		return err
	}
	defer own.Close()
	ctx, cancel := context.WithTimeout(context.Background(), hubStarts)
	defer cancel()
	return own.prepare(ctx, siteBytes)
}

// Remove removes what a site's servers keep of the run. A server of our own takes its messages with it.
func (h *Hub) Remove(ctx context.Context) error {
	if h.options.URL == "" {
		return nil
	}
	own, err := h.dial(owner)
	if err != nil {
		return err
	}
	defer own.Close()
	var all error
	for _, k := range kinds {
		err := own.js.DeleteStream(ctx, own.names.stream(k))
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			all = errors.Join(all, fmt.Errorf("remove the stream of kind %s: %w", k, reason(err)))
		}
	}
	return all
}
