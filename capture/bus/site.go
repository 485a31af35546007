//go:build !nobus

package bus

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// A site's own NATS servers can carry a run instead of a server of ours. Who may connect, and to what, is up
// to the site: its credentials take the place of the keys in the join file. Orders are signed with the
// operator's key all the same, so nobody at the site can give any.

const (
	// siteBytes bounds each stream of a run on a site's servers.
	siteBytes = 256 << 20
	// siteReplicas is how many of a site's servers have each message, if it has that many.
	siteReplicas = 3
	// leafLook is how often a waiting hub checks whether it has become a leaf node.
	leafLook = 20 * time.Millisecond
)

// A hub can also be a leaf node of a site's servers. The run stays in the hub, whose JetStream gets a domain
// of its own there, and the hub opens the connection: the site's users can look at runs of machines that they
// cannot connect to.

// domain is the name of the JetStream of the run's hub at a site.
func (n names) domain() string { return "GMT-" + n.run }

// leafOf makes a server the leaf node of a site's servers. The site's users may look and pass signed orders
// on. What they send as steps is refused, and so are requests that would change streams. Answers of the
// server and what consumers deliver are not checked: they go where the request says, even among the steps.
func (o *HubOptions) leafOf(options *server.Options) error {
	if err := checkURL(o.Leaf); err != nil {
		return err
	}
	if err := checkCredentials(o.Credentials); err != nil {
		return err
	}
	n := namesOf(o.Run)
	remote := &server.RemoteLeafOpts{Credentials: o.Credentials, TLS: true,
		DenyImports: []string{n.published(), "gmt.v1." + n.run + ".work.>"}}
	for text := range strings.SplitSeq(o.Leaf, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil {
			return err // checkURL has parsed it
		}
		remote.URLs = append(remote.URLs, u)
	}
	for _, change := range []string{"CREATE", "UPDATE", "DELETE", "PURGE", "MSG", "RESTORE", "SNAPSHOT",
		"LEADER", "PEER"} {
		remote.DenyImports = append(remote.DenyImports, "$JS."+n.domain()+".API.STREAM."+change+".>")
	}
	options.JetStreamDomain = n.domain()
	options.LeafNode.Remotes = []*server.RemoteLeafOpts{remote}
	options.LeafNode.ReconnectInterval = time.Second
	return nil
}

// Leaf waits until the hub has joined the site's servers as a leaf node. If ctx ends first, it returns what
// went wrong; the hub keeps trying.
func (h *Hub) Leaf(ctx context.Context) error {
	tick := time.NewTicker(leafLook)
	defer tick.Stop()
	for {
		h.mu.Lock()
		s := h.server
		h.mu.Unlock()
		if s != nil && s.NumLeafNodes() > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("connect to %s as a leaf node: %w", h.options.Leaf, h.log.newest())
		case <-tick.C:
		}
	}
}

// serverLog keeps the newest error of a server that is a leaf node: only its log tells why it cannot connect.
type serverLog struct {
	mu   sync.Mutex
	said string
}

func (l *serverLog) newest() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said == "" {
		return errors.New("no answer from there yet")
	}
	return errors.New(l.said)
}

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = fmt.Sprintf(format, v...)
}

// Noticef implements server.Logger.
func (*serverLog) Noticef(string, ...any) {}

// Warnf implements server.Logger.
func (*serverLog) Warnf(string, ...any) {}

// Fatalf implements server.Logger.
func (l *serverLog) Fatalf(format string, v ...any) { l.Errorf(format, v...) }

// Debugf implements server.Logger.
func (*serverLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (*serverLog) Tracef(string, ...any) {}

// stream returns a stream of the run and the JetStream that has it: at a site, that of its servers or that of
// the hub that is their leaf node. Both are asked at once, since a question that the site's permissions do
// not allow gets no answer, nor may one from an account without JetStream.
func (c *Conn) stream(ctx context.Context, k Kind) (jetstream.JetStream, jetstream.Stream, error) {
	if c.access.URL == "" {
		s, err := c.js.Stream(ctx, c.names.stream(k))
		return c.js, s, err
	}
	leaf, err := jetstream.NewWithDomain(c.nats, c.names.domain())
	if err != nil {
		return nil, nil, err
	}
	type found struct {
		js     jetstream.JetStream
		stream jetstream.Stream
		err    error
	}
	both := []jetstream.JetStream{c.js, leaf}
	answers := make(chan found, len(both))
	asking, enough := context.WithCancel(ctx)
	defer enough()
	for _, js := range both {
		go func() {
			s, err := js.Stream(asking, c.names.stream(k))
			answers <- found{js, s, err}
		}()
	}
	var f found
	for range both {
		if f = <-answers; f.err == nil {
			break
		}
	}
	return f.js, f.stream, f.err
}

// openSite makes the streams of a run on a site's servers if they are missing.
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
	// Where the site has three servers that can take it, one of them may stop and nothing is lost.
	err = own.prepare(ctx, siteBytes, siteReplicas)
	if tooFew(err) {
		err = own.prepare(ctx, siteBytes, 1)
	}
	return err
}

// tooFew reports whether a site has refused a stream because it has too few servers that can take it.
func tooFew(err error) bool {
	var refused *jetstream.APIError
	if !errors.As(err, &refused) {
		return false
	}
	switch server.ErrorIdentifier(refused.ErrorCode) {
	case server.JSClusterNoPeersErrF, server.JSStreamReplicasNotSupportedErr,
		server.JSInsufficientResourcesErr:
		return true
	}
	return false
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
