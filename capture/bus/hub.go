//go:build !nobus

package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// HubOptions say how a hub is opened.
type HubOptions struct {
	// Run names the run. One hub serves one run.
	Run string
	// Listen is the address at which nodes reach the hub, "" for none. It needs Keys.
	Listen string
	// Socket is the Unix socket for programs on this machine, "" for none.
	Socket string
	// URL is a site's own NATS servers that carry the run instead, "" for a server of our own, and
	// Credentials the file with the key for them. Then Keys are needed for orders alone, and nothing listens
	// here.
	URL, Credentials string
	// Leaf is the URL at which a site's own NATS servers take leaf nodes, "" for none: the hub connects there
	// with Credentials, and the site's users can look at the run, too.
	Leaf string
	// Keys, unless nil, are needed by everybody who connects.
	Keys *Keys
	// Work makes it hand out units of work to workers, and nothing else.
	Work bool
	// Store is the folder for messages; "" for a temporary one, which Close removes.
	Store string
	// Tell, unless nil, is called when the hub can store nothing, and again when it can.
	Tell func(Outage)

	// Which file system a folder is on, and how much it has room for; tests set them.
	fileSystem, free func(dir string) (int64, error)
}

// Hub keeps the messages of a run and serves nodes and viewers. Without an address or a socket, only this
// process reaches it.
type Hub struct {
	options HubOptions
	store   string          // the folder for messages
	config  *server.Options // of each server that is started
	bridge  *bridge
	seed    string // of the owner's key, "" without keys
	scratch string // the temporary folder, "" for none
	address string // where it listens, "" for nowhere
	log     serverLog

	stop context.CancelFunc // nil before the hub is watched
	work sync.WaitGroup

	mu     sync.Mutex
	server *server.Server // nil while there is none
}

// leastFree is the room that a hub's store needs.
const leastFree = 8 << 20

// hubStarts is how long a hub may take to start.
const hubStarts = 20 * time.Second

// OpenHub starts a hub.
func OpenHub(o HubOptions) (_ *Hub, err error) {
	if o.Run == "" {
		return nil, errors.New("open a hub: name the run")
	}
	if o.Listen != "" && o.Keys == nil {
		return nil, fmt.Errorf("open a hub at %s: a hub that others can reach needs keys", o.Listen)
	}
	if o.fileSystem == nil {
		o.fileSystem = fileSystem
	}
	if o.free == nil {
		o.free = freeBytes
	}
	h := &Hub{options: o}
	if o.URL != "" {
		return h, h.openSite()
	}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	store := o.Store
	if store == "" {
		if store, err = os.MkdirTemp("", "gmemtop-hub-*"); err != nil {
			return nil, fmt.Errorf("open a hub: %w", err)
		}
		h.scratch = store
	} else if err = privateFolder(store); err != nil {
		return nil, fmt.Errorf("open a hub: %w", err)
	}
	if err = checkStore(store, o.fileSystem); err != nil {
		return nil, fmt.Errorf("open a hub: %w", err)
	}
	free, err := o.free(store)
	if err != nil {
		return nil, fmt.Errorf("open a hub: look at the store %s: %w", store, err)
	}
	if free < leastFree {
		return nil, fmt.Errorf("open a hub: only %d MiB are free for the store %s: free some, or name "+
			"another folder",
			free>>20, store)
	}
	h.store = store
	if h.config, err = h.serverOptions(store); err != nil {
		return nil, fmt.Errorf("open a hub: %w", err)
	}
	// The server would report an address in use only by never being ready.
	if o.Listen != "" {
		l, err := net.Listen("tcp", o.Listen)
		if err != nil {
			return nil, fmt.Errorf("open a hub: %w", err)
		}
		_ = l.Close()
	}
	if err = h.start(free); err != nil {
		return nil, fmt.Errorf("open a hub: %w", err)
	}
	if o.Socket != "" {
		if h.bridge, err = listen(o.Socket, h.InProcessConn); err != nil {
			return nil, err
		}
	}
	watched, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.work.Go(func() { h.watch(watched) })
	return h, nil
}

// start starts the server, with streams that take what free leaves.
func (h *Hub) start(free int64) error {
	s, err := server.NewServer(h.config.Clone())
	if err != nil {
		return err
	}
	if h.options.Leaf != "" {
		s.SetLoggerV2(&h.log, false, false, false)
	}
	s.Start()
	if !s.ReadyForConnections(hubStarts) {
		shutDown(s)
		return fmt.Errorf("it did not start within %s", hubStarts)
	}
	h.mu.Lock()
	h.server = s
	h.mu.Unlock()
	if a, ok := s.Addr().(*net.TCPAddr); ok && h.options.Listen != "" && h.address == "" {
		h.address, h.config.Port = a.String(), a.Port
	}
	own, err := h.dial(owner)
	if err != nil {
		return err
	}
	defer own.Close()
	ctx, cancel := context.WithTimeout(context.Background(), hubStarts)
	defer cancel()
	if h.options.Work {
		return own.prepareWork(ctx)
	}
	// What was stored by a hub before this one is counted as taken: that only makes the bound smaller.
	return own.prepare(ctx, max(free/2, maxMessage), 1)
}

func shutDown(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// InProcessConn connects to the server, for connections within this process.
func (h *Hub) InProcessConn() (net.Conn, error) {
	h.mu.Lock()
	s := h.server
	h.mu.Unlock()
	if s == nil {
		return nil, ErrNoHub
	}
	return s.InProcessConn()
}

func (h *Hub) serverOptions(store string) (*server.Options, error) {
	o := h.options
	room := int64(0)
	for _, l := range streamLimits {
		room += l.bytes
	}
	if o.Work {
		room = workBytes + resultBytes
	}
	options := &server.Options{
		ServerName: "gmemtop", DontListen: o.Listen == "",
		JetStream: true, StoreDir: store, JetStreamMaxMemory: 16 << 20, JetStreamMaxStore: room,
		NoSigs: true, NoLog: true, MaxPayload: maxMessage, MaxControlLine: 4096,
		// A viewer that does not read is disconnected, so that it does not hold memory.
		WriteDeadline: 5 * time.Second, MaxPending: 16 << 20,
		PingInterval: 10 * time.Second, MaxPingsOut: 2, AuthTimeout: dialWait.Seconds(),
	}
	if o.Listen != "" {
		host, port, err := net.SplitHostPort(o.Listen)
		if err != nil {
			return nil, fmt.Errorf("%q is not an address: write HOST:PORT", o.Listen)
		}
		if options.Port, err = strconv.Atoi(port); err != nil || options.Port < 0 || options.Port > 65535 {
			return nil, fmt.Errorf("%q is not a port: write HOST:PORT", port)
		}
		if options.Port == 0 {
			options.Port = server.RANDOM_PORT
		}
		options.Host = host
		if options.TLSConfig, err = o.Keys.server(); err != nil {
			return nil, err
		}
		options.TLS, options.TLSHandshakeFirst, options.TLSTimeout = true, true, dialWait.Seconds()
	}
	if o.Keys != nil {
		for _, r := range o.roles() {
			options.Nkeys = append(options.Nkeys, &server.NkeyUser{Nkey: o.Keys.public[r],
				Permissions: permissions(namesOf(o.Run), r)})
		}
		// The hub itself sets up the streams. Its key never leaves this process.
		pair, err := nkeys.CreateUser()
		if err != nil {
			return nil, err
		}
		public, err := pair.PublicKey()
		if err != nil {
			return nil, err
		}
		seed, err := pair.Seed()
		if err != nil {
			return nil, err
		}
		h.seed = string(seed)
		options.Nkeys = append(options.Nkeys, &server.NkeyUser{Nkey: public})
	}
	if o.Leaf != "" {
		if err := o.leafOf(options); err != nil {
			return nil, err
		}
	}
	return options, nil
}

// roles are those that may connect.
func (o *HubOptions) roles() []Role {
	if o.Work {
		return []Role{Worker}
	}
	return slices.DeleteFunc(slices.Clone(roles), func(r Role) bool { return r == Worker })
}

// owner is the role of the hub in its own process, which may do everything.
const owner Role = "owner"

// permissions are what the server lets a role do.
func permissions(n names, r Role) *server.Permissions {
	allow := func(subjects ...string) *server.SubjectPermission {
		return &server.SubjectPermission{Allow: subjects}
	}
	inbox := n.inbox(r) + ".>"
	if r == Worker {
		return &server.Permissions{Publish: allow(n.workerMayPublish()...), Subscribe: allow(inbox)}
	}
	if r == Agent {
		return &server.Permissions{
			Publish: allow(n.published()), Subscribe: allow(n.allOrders(), inbox),
			// It answers orders wherever their sender waits.
			Response: &server.ResponsePermission{MaxMsgs: 1, Expires: fresh},
		}
	}
	publish := []string{"$JS.API.INFO"}
	for _, k := range kinds {
		if k == Trace && r != Operator {
			continue // who asked for a trace reads it
		}
		s := n.stream(k)
		publish = append(publish, "$JS.API.STREAM.INFO."+s, "$JS.API.CONSUMER.CREATE."+s+".>",
			"$JS.API.CONSUMER.INFO."+s+".>", "$JS.API.CONSUMER.DELETE."+s+".>",
			"$JS.API.CONSUMER.MSG.NEXT."+s+".>")
	}
	if r == Operator {
		for _, v := range verbs {
			publish = append(publish, n.orders(v))
		}
	}
	return &server.Permissions{Publish: allow(publish...), Subscribe: allow(inbox)}
}

// Address is where the hub listens, "" for nowhere.
func (h *Hub) Address() string { return h.address }

// Join returns the content of the join file. addresses are those at which nodes reach the hub, by default the
// one at which it listens.
func (h *Hub) Join(addresses ...string) Join {
	k := h.options.Keys
	host, _ := os.Hostname()
	if len(addresses) == 0 && h.options.Listen != "" {
		addresses = []string{advertised(h.options.Listen, h.address)}
	}
	j := Join{Version: joinVersion, Run: h.options.Run, Host: host, Addresses: addresses}
	if s := h.options.Socket; s != "" {
		j.Socket, _ = filepath.Abs(s)
	}
	if k != nil && h.options.URL != "" {
		return Join{Version: joinVersion, Run: h.options.Run, URL: h.options.URL, Expires: k.Expires,
			Orders: k.public[Operator], Seeds: k.seeds}.only(Operator)
	}
	if k != nil {
		j.Certificate, j.Expires, j.Orders, j.Seeds = string(k.certificate), k.Expires, k.public[Operator],
			k.seeds
		j = j.only(h.options.roles()...)
	}
	return j
}

// advertised is the address at which other machines reach a hub. One that listens everywhere is reached by
// the machine's name.
func advertised(listen, address string) string {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}

// Dial connects to the hub within this process.
func (h *Hub) Dial(r Role) (*Conn, error) { return h.dial(r) }

func (h *Hub) dial(r Role) (*Conn, error) {
	if o := h.options; o.URL != "" {
		return Dial(context.Background(), Access{Role: r, Join: h.Join(), Credentials: o.Credentials})
	}
	a := Access{Role: r, Join: h.Join(), inProcess: h}
	if a.Seeds == nil {
		a.Seeds = map[Role]string{}
	}
	a.Seeds[owner] = h.seed
	return Dial(context.Background(), a)
}

// Close ends the hub. What it has stored in a folder of the caller's stays there.
func (h *Hub) Close() {
	if h.stop != nil {
		h.stop()
		h.work.Wait()
	}
	if h.bridge != nil {
		h.bridge.close()
	}
	h.mu.Lock()
	s := h.server
	h.server = nil
	h.mu.Unlock()
	if s != nil {
		shutDown(s)
	}
	if h.scratch != "" {
		_ = os.RemoveAll(h.scratch)
	}
}
