//go:build !nobus

package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Access says how to reach a hub, and as whom.
type Access struct {
	// Join is the content of the hub's join file. With a URL only its run counts.
	Join
	Role Role
	// Name is what the hub's statistics call this connection, such as the node.
	Name string
	// Patient keeps trying while nothing answers, and never gives up.
	Patient bool
	// Tunnel, unless nil, is the program that leads to the hub. It logs in.
	Tunnel *Tunnel
	// URL is a site's own NATS servers, "" for what Join says, and Credentials the file with the key for
	// them.
	URL, Credentials string

	inProcess nats.InProcessConnProvider
}

const (
	// A hub may run where a training takes all processors, and be slow to answer. A node that gives up too
	// early reconnects, and a hundred nodes reconnecting at once keep the hub from ever catching up.
	dialWait      = 10 * time.Second
	pingEvery     = 3 * time.Second
	pings         = 3 // without an answer, before the connection is given up
	reconnectWait = 500 * time.Millisecond
	// heartbeat is how often the hub tells a reader that there is nothing new.
	heartbeat = 4 * time.Second
	// tunnelWait is how long a tunnel rests before it starts its program again, which may cost others work.
	tunnelWait = 3 * time.Second
)

// Dial connects to a hub.
func Dial(ctx context.Context, a Access) (*Conn, error) {
	if a.Run == "" {
		return nil, errors.New("connect to a hub: name the run")
	}
	a.URL = cmp.Or(a.URL, a.Join.URL)
	c := &Conn{access: a, names: namesOf(a.Run)}
	c.link, c.relink = context.WithCancel(context.Background())
	options := []nats.Option{
		nats.Name(a.Name), nats.Timeout(dialWait), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait),
		// What cannot be sent stays in the ring, so nothing waits in the connection as well.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(pings),
		nats.CustomInboxPrefix(c.names.inbox(a.Role)), nats.RetryOnFailedConnect(a.Patient),
		nats.ReconnectHandler(func(*nats.Conn) { c.reconnected() }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.fail(err) }),
	}
	if a.Patient {
		options = append(options, nats.IgnoreAuthErrorAbort())
	}
	if a.URL == "" { // our hub is one server; of a site's, any will do, so those that they tell of are used
		options = append(options, nats.IgnoreDiscoveredServers())
	}
	where, more, err := a.where()
	if err != nil {
		return nil, fmt.Errorf("connect to the hub of run %s: %w", a.Run, err)
	}
	connected := make(chan error, 1)
	go func() {
		var err error
		c.nats, err = nats.Connect(where, append(options, more...)...)
		connected <- err
	}()
	select {
	case err = <-connected:
	case <-ctx.Done():
		go func() {
			if err := <-connected; err == nil {
				c.nats.Close()
			}
		}()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the hub of run %s: %w", a.Run, reason(err))
	}
	if c.js, err = jetstream.New(c.nats); err != nil {
		c.nats.Close()
		return nil, fmt.Errorf("connect to the hub of run %s: %w", a.Run, err)
	}
	return c, nil
}

// reason adds our own error to NATS's.
func reason(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		strings.Contains(strings.ToLower(err.Error()), "authorization violation"):
		return fmt.Errorf("%w: %w", errRefused, err)
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%w: %w", ErrNoHub, err)
	}
	return err
}

// where returns the URLs to connect to, and the options that belong to the way there.
func (a *Access) where() (urls string, options []nats.Option, err error) {
	if a.URL != "" {
		return a.foreign()
	}
	if a.Tunnel != nil {
		return "nats://hub", []nats.Option{
			nats.SetCustomDialer(&dialer{a.Tunnel, a.Certificate}), nats.ReconnectWait(tunnelWait)}, nil
	}
	if seed := a.Seeds[a.Role]; seed != "" {
		pair, public, err := pairOf(seed)
		if err != nil {
			return "", nil, err
		}
		options = append(options, nats.Nkey(public, pair.Sign))
	} else if len(a.Addresses) > 0 {
		return "", nil, fmt.Errorf("the join file has no key of role %s: ask the run's owner for one that "+
			"has",
			a.Role)
	}
	switch {
	case a.inProcess != nil:
		return "", append(options, nats.InProcessServer(a.inProcess)), nil
	case a.local():
		return "nats://hub", append(options, nats.SetCustomDialer(unixDialer(a.Socket))), nil
	}
	config, err := clientTLS(a.Certificate)
	if err != nil {
		return "", nil, err
	}
	options = append(options, nats.Secure(config), nats.TLSHandshakeFirst())
	list := make([]string, len(a.Addresses))
	for i, address := range a.Addresses {
		if err := checkAddress(address); err != nil {
			return "", nil, err
		}
		list[i] = "tls://" + address
	}
	if len(list) == 0 {
		return "", nil, fmt.Errorf("%w: it listens only on %s, by its socket %s", ErrNoHub, a.Host, a.Socket)
	}
	return strings.Join(list, ","), options, nil
}

// local reports whether the hub's socket is on this machine.
func (a *Access) local() bool {
	if a.Socket == "" {
		return false
	}
	host, err := os.Hostname()
	if err != nil || host != a.Host {
		return false
	}
	// Containers and namespaces of one machine share its name, not always its files.
	c, err := net.Dial("unix", a.Socket)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// foreign is the way to a site's own servers.
func (a *Access) foreign() (urls string, options []nats.Option, err error) {
	if err := checkURL(a.URL); err != nil {
		return "", nil, err
	}
	if err := checkCredentials(a.Credentials); err != nil {
		return "", nil, err
	}
	if a.Credentials != "" {
		options = append(options, nats.UserCredentials(a.Credentials))
	}
	return a.URL, options, nil
}

// checkCredentials refuses a credentials file that others can read; "" means no file.
func checkCredentials(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return private(path, info, "ask the site for new credentials")
}
