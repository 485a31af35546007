//go:build !nobus

package bus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
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
	// Patient keeps trying where nothing answers yet, and never gives up.
	Patient bool
	// Tunnel, unless nil, is the program that leads to the hub. It logs in.
	Tunnel *Tunnel
	// URL is a site's own NATS servers, and Credentials the file with the key for them.
	URL, Credentials string

	inProcess nats.InProcessConnProvider
}

// Conn is a connection to a hub. It connects again by itself whenever it is lost. Its methods are safe for
// concurrent use.
type Conn struct {
	access Access
	names  names
	nats   *nats.Conn
	js     jetstream.JetStream

	mu     sync.Mutex
	failed error // the newest error that the server reported by itself
	// link is done when the hub is reached again after it was lost. What waits for an answer waits in vain
	// then.
	link   context.Context
	relink context.CancelFunc
}

const (
	dialWait      = 5 * time.Second
	reconnectWait = 500 * time.Millisecond
	heartbeat     = 2 * time.Second
	// tunnelWait is how long a tunnel rests before it starts its program again, which may cost others work.
	tunnelWait = 3 * time.Second
)

// Dial connects to a hub.
func Dial(ctx context.Context, a Access) (*Conn, error) {
	if a.Run == "" {
		return nil, errors.New("connect to a hub: name the run")
	}
	c := &Conn{access: a, names: namesOf(a.Run)}
	c.link, c.relink = context.WithCancel(context.Background())
	options := []nats.Option{
		nats.Name(a.Name), nats.Timeout(dialWait), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait),
		// What cannot be sent stays in the ring, so nothing waits in the connection as well.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(heartbeat), nats.MaxPingsOutstanding(2), nats.IgnoreDiscoveredServers(),
		nats.CustomInboxPrefix(c.names.inbox(a.Role)), nats.RetryOnFailedConnect(a.Patient),
		nats.ReconnectHandler(func(*nats.Conn) { c.reconnected() }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.fail(err) }),
	}
	if a.Patient {
		options = append(options, nats.IgnoreAuthErrorAbort())
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

// foreign is the way to a site's own servers. Only TLS is good enough for them, and their key comes from a
// file: a URL is visible to everybody who can list processes.
func (a *Access) foreign() (urls string, options []nats.Option, err error) {
	for _, text := range strings.Split(a.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		switch {
		case err != nil || u.Host == "":
			return "", nil, fmt.Errorf("%q is not the URL of a hub: write tls://HOST:PORT", redact(text))
		case u.User != nil:
			return "", nil, fmt.Errorf("the URL %s holds a secret that others on this machine can read: "+
				"put it in a "+
				"file and name that with --creds", u.Redacted())
		case u.Scheme != "tls":
			return "", nil, fmt.Errorf("the URL %s is not encrypted: write tls://%s", u.Redacted(), u.Host)
		}
	}
	if a.Credentials != "" {
		info, err := os.Stat(a.Credentials)
		if err != nil {
			return "", nil, err
		}
		if err := private(a.Credentials, info); err != nil {
			return "", nil, err
		}
		options = append(options, nats.UserCredentials(a.Credentials))
	}
	return a.URL, options, nil
}

// redact cuts what may be a secret from text that is not a URL.
func redact(text string) string {
	if _, after, ok := strings.Cut(text, "@"); ok {
		return "..." + after
	}
	return text
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

// prepare makes the streams of the run where they are missing. None keeps more than most bytes.
func (c *Conn) prepare(ctx context.Context, most int64) error {
	for _, k := range kinds {
		l := streamLimits[k]
		each := l.each
		if each == 0 {
			each = -1
		}
		if _, err := c.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: c.names.stream(k), Subjects: []string{c.names.streamSubject(k)},
			MaxBytes: min(l.bytes, most/max(l.part, 1)), MaxMsgsPerSubject: each, MaxAge: l.age,
			Discard: jetstream.DiscardOld, MaxMsgSize: maxMessage, Duplicates: repeated,
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

// Read hands take all messages of some kinds that the hub has and that come later, each kind in order, until
// ctx is done. It waits for a hub that is gone to come back. caught, unless nil, is called once for each
// kind, when everything that the hub had at the beginning was taken. Neither is called while the other or
// itself runs.
func (c *Conn) Read(ctx context.Context, take func(m Message), caught func(k Kind), kinds ...Kind) {
	c.read(ctx, false, take, caught, kinds)
}

// ReadNew is Read without what the hub had at the beginning: caught says from when on nothing is missed.
func (c *Conn) ReadNew(ctx context.Context, take func(m Message), caught func(k Kind), kinds ...Kind) {
	c.read(ctx, true, take, caught, kinds)
}

func (c *Conn) read(ctx context.Context, fresh bool, take func(m Message), caught func(k Kind),
	kinds []Kind) {
	var one sync.Mutex
	var all sync.WaitGroup
	for _, k := range kinds {
		all.Go(func() {
			r := reader{conn: c, kind: k, fresh: fresh, take: func(m Message) {
				one.Lock()
				defer one.Unlock()
				take(m)
			}, caught: func() {
				one.Lock()
				defer one.Unlock()
				if caught != nil {
					caught(k)
				}
			}}
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

	fresh bool // what was there at the beginning is skipped

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
	s, err := r.conn.js.Stream(begin, name)
	if err != nil {
		return
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
	consumer, err := r.conn.js.CreateConsumer(begin, name, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.last + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: 30 * time.Second,
	})
	if err != nil {
		return
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishRest)
		defer cancel()
		_ = r.conn.js.DeleteConsumer(late, name, consumer.CachedInfo().Name) // it goes by itself, too
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
			r.take(Message{Node: node, Kind: r.kind, Data: m.Data(), Stored: about.Timestamp})
		}
		if about.NumPending == 0 { // later messages of the same nodes may have replaced what was there
			had = min(had, r.last)
		}
	}
}

// Serve answers orders of one kind until the connection is closed. f gets what the operator sent and returns
// the answer. An order that is forged or comes again is dropped without an answer, and refused is told.
func (c *Conn) Serve(v Verb, f func(data json.RawMessage) any, refused func(error)) error {
	if !v.known() {
		return fmt.Errorf("%q is no order that a node carries out", v)
	}
	g := &guard{run: c.access.Run, now: time.Now, seen: map[string]time.Time{},
		verify: func(data, signature []byte) error { return verify(c.access.Orders, data, signature) }}
	_, err := c.nats.Subscribe(c.names.orders(v), func(m *nats.Msg) {
		data, err := g.accept(v, m.Data)
		if err != nil {
			refused(err)
			return
		}
		answer, err := json.Marshal(reply{Node: c.access.Name, Data: f(data)})
		if err == nil && len(answer) <= maxMessage {
			_ = m.Respond(answer)
		}
	})
	return err
}

// reply is a node's answer to an order.
type reply struct {
	Node string `json:"node"`
	Data any    `json:"data"`
}

// Ask gives an order to all nodes and hands f each node's answer, until f reports that it has enough or ctx
// is done.
func (c *Conn) Ask(ctx context.Context, v Verb, data any, f func(node string,
	answer json.RawMessage) bool) error {
	seed := c.access.Seeds[Operator]
	if seed == "" {
		return fmt.Errorf("give the order %s: the join file has no operator's key", v)
	}
	if !v.known() {
		return fmt.Errorf("%q is no order that a node carries out", v)
	}
	said, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("give the order %s: %w", v, err)
	}
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	body, err := json.Marshal(orderBody{Run: c.access.Run, Verb: v, Nonce: hex.EncodeToString(nonce[:]),
		At: time.Now(), Data: said})
	if err != nil {
		return fmt.Errorf("give the order %s: %w", v, err)
	}
	signature, err := sign(seed, body)
	if err != nil {
		return fmt.Errorf("give the order %s: %w", v, err)
	}
	message, err := json.Marshal(order{Body: body, Signature: signature})
	if err != nil {
		return fmt.Errorf("give the order %s: %w", v, err)
	}
	inbox := c.nats.NewInbox()
	answers, err := c.nats.SubscribeSync(inbox)
	if err == nil {
		defer func() { _ = answers.Unsubscribe() }()
		err = c.nats.PublishRequest(c.names.orders(v), inbox, message)
	}
	if err != nil {
		return fmt.Errorf("give the order %s: %w", v, err)
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrNoResponders):
			return nil
		case err != nil:
			return fmt.Errorf("give the order %s: %w", v, err)
		}
		var r struct {
			Node string          `json:"node"`
			Data json.RawMessage `json:"data"`
		}
		// Nobody answers with nothing, except the server if no node listens.
		if json.Unmarshal(m.Data, &r) != nil {
			if len(m.Data) == 0 {
				return nil
			}
			continue
		}
		if f(r.Node, r.Data) {
			return nil
		}
	}
}
