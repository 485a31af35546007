//go:build !nobus

package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func openHub(t *testing.T, o HubOptions) *Hub {
	t.Helper()
	h, err := OpenHub(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func makeKeys(t *testing.T) *Keys {
	t.Helper()
	k, err := NewKeys(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// overTLS opens a hub on a port and returns how to reach it.
func overTLS(t *testing.T, run string) (*Hub, Join) {
	t.Helper()
	h := openHub(t, HubOptions{Run: run, Listen: "127.0.0.1:0", Keys: makeKeys(t)})
	return h, h.Join(h.Address())
}

func dial(t *testing.T, a Access) *Conn {
	t.Helper()
	c, err := Dial(within(t), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// inbox collects what a reader gets.
type inbox struct {
	mu   sync.Mutex
	list []Message
	more chan struct{}
}

func read(ctx context.Context, t *testing.T, c *Conn, kinds ...Kind) *inbox {
	t.Helper()
	b := &inbox{more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		c.Read(ctx, func(m Message) {
			b.mu.Lock()
			b.list = append(b.list, m)
			b.mu.Unlock()
			select {
			case b.more <- struct{}{}:
			default:
			}
		}, nil, kinds...)
	})
	t.Cleanup(reading.Wait)
	t.Cleanup(cancel)
	return b
}

func (b *inbox) wait(ctx context.Context, t *testing.T, n int) []Message {
	t.Helper()
	for {
		b.mu.Lock()
		list := b.list
		b.mu.Unlock()
		if len(list) >= n {
			return list
		}
		select {
		case <-b.more:
		case <-ctx.Done():
			t.Fatalf("%d messages came, not %d", len(list), n)
		}
	}
}

// send puts messages in the ring of a node and waits until the hub has them.
func send(ctx context.Context, t *testing.T, c *Conn, r *Ring, texts ...string) {
	t.Helper()
	for _, text := range texts {
		r.Put(Step, []byte(text))
	}
	sending, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { r.Send(sending, c) })
	err := r.Flush(ctx)
	cancel()
	work.Wait()
	if err != nil {
		t.Fatalf("the messages did not arrive: %v, connection: %v", err, c.Err())
	}
}

// Whatever the way to the hub, a reader that comes late gets all messages in order, each with its node.
func TestEveryWayToAHubCarriesTheSameMessages(t *testing.T) {
	nodes := []string{"node.a", "node b*>", "węzeł"}
	folder := filepath.Join(t.TempDir(), "hub")
	ways := map[string]func(t *testing.T) func(r Role) *Conn{
		"in this process": func(t *testing.T) func(r Role) *Conn {
			h := openHub(t, HubOptions{Run: "r.1"})
			return func(r Role) *Conn {
				c, err := h.Dial(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				return c
			}
		},
		"in this process with keys": func(t *testing.T) func(r Role) *Conn {
			h := openHub(t, HubOptions{Run: "r.1", Keys: makeKeys(t)})
			return func(r Role) *Conn {
				c, err := h.Dial(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				return c
			}
		},
		"socket": func(t *testing.T) func(r Role) *Conn {
			h := openHub(t, HubOptions{Run: "r.1", Socket: filepath.Join(folder, "s"), Keys: makeKeys(t)})
			return func(r Role) *Conn { return dial(t, Access{Join: h.Join(), Role: r}) }
		},
		"standard input and output": func(t *testing.T) func(r Role) *Conn {
			h := openHub(t, HubOptions{Run: "r.1", Socket: filepath.Join(folder, "p"), Keys: makeKeys(t)})
			return throughProgram(t, h.Join())
		},
		"standard input and output, then TLS": func(t *testing.T) func(r Role) *Conn {
			_, j := overTLS(t, "r.1")
			return throughProgram(t, j)
		},
		"TLS": func(t *testing.T) func(r Role) *Conn {
			_, j := overTLS(t, "r.1")
			return func(r Role) *Conn { return dial(t, Access{Join: j, Role: r}) }
		},
	}
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			ctx, as := within(t), open(t)
			agent := as(Agent)
			for _, node := range nodes {
				send(ctx, t, agent, NewRing(node, RingLimits{}), node+"1", node+"2")
			}
			b := read(ctx, t, as(Viewer), Step)
			b.wait(ctx, t, 2*len(nodes))
			send(ctx, t, agent, NewRing(nodes[0], RingLimits{}), "live")
			got := b.wait(ctx, t, 2*len(nodes)+1)
			for i, m := range got[:2*len(nodes)] {
				node := nodes[i/2]
				if m.Node != node || string(m.Data) != fmt.Sprint(node, i%2+1) || m.Kind != Step {
					t.Errorf("message %d: %s of %q: %q", i, m.Kind, m.Node, m.Data)
				}
			}
			if m := got[len(got)-1]; string(m.Data) != "live" {
				t.Errorf("the message sent while reading is %q", m.Data)
			}
		})
	}
}

// throughProgram connects through this test's own program, which has the join file.
func throughProgram(t *testing.T, j Join) func(r Role) *Conn {
	path := filepath.Join(t.TempDir(), "r.join")
	if err := j.Write(path); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BUS_TEST_RELAY", path)
	return func(r Role) *Conn {
		argv := []string{os.Args[0], string(r)}
		tunnel, err := OpenTunnel(within(t), argv, argv, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tunnel.Close)
		for role, seed := range tunnel.Join().Seeds {
			if role != Operator || r != Operator {
				t.Errorf("the key of role %s leaves its machine for one of role %s: %s", role, r, seed)
			}
		}
		return dial(t, Access{Join: tunnel.Join(), Tunnel: tunnel, Role: r})
	}
}

// TestMain lets the test be the far end of its own tunnel.
func TestMain(m *testing.M) {
	if path := os.Getenv("BUS_TEST_RELAY"); path != "" {
		fmt.Println("Welcome to this machine")
		j, err := ReadJoin(path)
		if err == nil {
			err = Relay(context.Background(), j, Role(os.Args[1]), os.Stdin, os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "gmemtop:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestWithoutAnAddressNobodyElseReachesAHub(t *testing.T) {
	h := openHub(t, HubOptions{Run: "r"})
	if h.server.Addr() != nil || h.Address() != "" {
		t.Errorf("it listens at %v", h.server.Addr())
	}
}

func TestAHubThatOthersReachNeedsKeys(t *testing.T) {
	for _, at := range []string{"0.0.0.0:0", "[::]:0", ":0", "127.0.0.1:0"} {
		if h, err := OpenHub(HubOptions{Run: "r", Listen: at}); err == nil {
			h.Close()
			t.Errorf("it listens at %s without keys", at)
		}
	}
}

func TestOnlyKeysOfTheRunConnect(t *testing.T) {
	_, j := overTLS(t, "r")
	_, other := overTLS(t, "r")
	with := func(change func(*Access)) error {
		a := Access{Join: j, Role: Viewer}
		a.Seeds = map[Role]string{Viewer: j.Seeds[Viewer]}
		change(&a)
		c, err := Dial(within(t), a)
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := with(func(*Access) {}); err != nil {
		t.Fatalf("the right key: %v", err)
	}
	if err := with(func(a *Access) { a.Seeds[Viewer] = other.Seeds[Viewer] }); !errors.Is(err, errRefused) {
		t.Errorf("another run's key: %v", err)
	}
	if err := with(func(a *Access) { delete(a.Seeds, Viewer) }); err == nil {
		t.Error("it connects without a key")
	}
	if err := with(func(a *Access) { a.Seeds[Viewer] = "S" + a.Seeds[Viewer] }); err == nil {
		t.Error("it connects with a damaged key")
	}
	if err := with(func(a *Access) { a.Certificate = other.Certificate }); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("another hub's certificate: %v", err)
	}
}

func TestPlainTextIsNotAnswered(t *testing.T) {
	_, j := overTLS(t, "r")
	c, err := net.Dial("tcp", j.Addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write([]byte("CONNECT {\"verbose\":false}\r\nPING\r\n"))
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, 512)
	n, err := c.Read(got)
	if strings.Contains(string(got[:n]), "INFO") || strings.Contains(string(got[:n]), "PONG") {
		t.Errorf("the hub answers plain text: %q", got[:n])
	}
	if err == nil && n == 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the hub does not hang up: %v", err)
	}
}

// What a key does not allow, the server refuses by itself, whatever program holds the key.
func TestEachRoleMayDoOnlyItsPart(t *testing.T) {
	h, j := overTLS(t, "r")
	n, other := namesOf("r"), namesOf("r2")
	owner, err := h.dial(owner)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	for _, x := range []struct {
		role    Role
		publish string
		ok      bool
	}{
		{Agent, n.subject("a", Step), true},
		{Agent, other.subject("a", Step), false},
		{Agent, n.orders(Capture), false},
		{Agent, "$JS.API.STREAM.DELETE." + n.stream(Step), false},
		{Agent, "$JS.API.STREAM.PURGE." + n.stream(Step), false},
		{Agent, "$JS.API.CONSUMER.CREATE." + n.stream(Step) + ".x", false},
		{Viewer, n.subject("a", Step), false},
		{Viewer, n.orders(Capture), false},
		{Viewer, "$JS.API.STREAM.DELETE." + n.stream(Step), false},
		{Viewer, "$JS.API.STREAM.UPDATE." + n.stream(Step), false},
		{Viewer, "$JS.API.STREAM.CREATE.X", false},
		{Operator, n.orders(Capture), true},
		{Operator, "gmt.v1.r.ctl.exec", false},
		{Operator, n.subject("a", Step), false},
		{Operator, "$JS.API.STREAM.DELETE." + n.stream(Step), false},
	} {
		c := dial(t, Access{Join: j, Role: x.role})
		if err := c.nats.Publish(x.publish, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := c.nats.FlushTimeout(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		wait(t, func() bool { return x.ok || c.Err() != nil })
		if err := c.Err(); (err == nil) != x.ok {
			t.Errorf("%s publishes to %s: %v", x.role, x.publish, err)
		}
		c.Close()
	}
	for _, x := range []struct {
		role Role
		to   string
	}{
		{Agent, n.published()}, {Agent, n.inbox(Viewer) + ".>"}, {Agent, "gmt.v1.r2.ctl.>"},
		{Viewer, n.inbox(Operator) + ".>"}, {Viewer, n.inbox(Agent) + ".>"}, {Viewer, n.allOrders()},
		{Viewer, "_INBOX.>"}, {Viewer, ">"}, {Operator, n.inbox(Viewer) + ".>"},
	} {
		c := dial(t, Access{Join: j, Role: x.role})
		if _, err := c.nats.SubscribeSync(x.to); err != nil {
			t.Fatal(err)
		}
		_ = c.nats.FlushTimeout(10 * time.Second)
		wait(t, func() bool { return c.Err() != nil })
		if c.Err() == nil {
			t.Errorf("%s listens to %s", x.role, x.to)
		}
		c.Close()
	}
}

// wait waits for something that another goroutine does, but not forever.
func wait(t *testing.T, done func() bool) {
	t.Helper()
	for late := time.Now().Add(10 * time.Second); !done() && time.Now().Before(late); {
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAMessageThatComesAgainIsStoredOnce(t *testing.T) {
	ctx := within(t)
	_, j := overTLS(t, "r")
	agent := dial(t, Access{Join: j, Role: Agent})
	r := NewRing("a", RingLimits{})
	send(ctx, t, agent, r, "one")
	r.next-- // as after a confirmation that was lost
	send(ctx, t, agent, r, "one")
	send(ctx, t, agent, r, "two")
	if c := r.Counts(); c.Sent != 3 || c.Again != 1 || c.Dropped != 0 || c.Waiting != 0 {
		t.Errorf("counts %+v", c)
	}
	b := read(ctx, t, dial(t, Access{Join: j, Role: Viewer}), Step)
	if got := b.wait(ctx, t, 2); len(got) != 2 || string(got[1].Data) != "two" {
		t.Errorf("stored: %q", got)
	}
}

// While the hub is away a ring keeps the newest messages and counts the rest. When it is back on the same
// store, the messages follow and the reader goes on where it was.
func TestAHubMayGoAndComeBack(t *testing.T) {
	ctx, dir := within(t), filepath.Join(t.TempDir(), "store")
	keys := makeKeys(t)
	o := HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: keys, Store: dir}
	h, err := OpenHub(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Listen = h.Address()
	j := h.Join(h.Address())
	agent := dial(t, Access{Join: j, Role: Agent, Patient: true})
	b := read(ctx, t, dial(t, Access{Join: j, Role: Viewer, Patient: true}), Step)
	r := NewRing("a", RingLimits{Messages: 3})
	send(ctx, t, agent, r, "0")
	b.wait(ctx, t, 1)
	h.Close()
	for i := 1; i <= 8; i++ {
		r.Put(Step, fmt.Append(nil, i))
	}
	if c := r.Counts(); c.Dropped != 5 || c.Waiting != 3 {
		t.Errorf("while the hub is away: %+v", c)
	}
	again := openHub(t, o)
	if again.Address() != o.Listen {
		t.Fatalf("it listens at %s", again.Address())
	}
	send(ctx, t, agent, r, "9")
	text := ""
	for _, m := range b.wait(ctx, t, 4) {
		text += string(m.Data)
	}
	// A ring of three had room for 7, 8 and 9 once 9 was put.
	if !strings.HasPrefix(text, "0") || !strings.HasSuffix(text, "789") {
		t.Errorf("the reader got %s", text)
	}
	if c := r.Counts(); c.Put != 10 || c.Sent+c.Dropped != 10 {
		t.Errorf("counts %+v", c)
	}
}

// A hub's disk loses the end of what was stored. The numbers of messages go on from there, so that a reader
// finds what comes next only if it looks back.
func TestAReaderGoesOnWhenTheEndOfAStoreWasLost(t *testing.T) {
	ctx, dir := within(t), t.TempDir()
	o := HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: makeKeys(t), Store: filepath.Join(dir, "store")}
	h, err := OpenHub(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Listen = h.Address()
	j := h.Join(h.Address())
	h.Close()
	if err := os.CopyFS(filepath.Join(dir, "empty"), os.DirFS(o.Store)); err != nil {
		t.Fatal(err)
	}
	if h, err = OpenHub(o); err != nil {
		t.Fatal(err)
	}
	agent := dial(t, Access{Join: j, Role: Agent, Patient: true})
	b := read(ctx, t, dial(t, Access{Join: j, Role: Viewer, Patient: true}), Step)
	r := NewRing("a", RingLimits{})
	send(ctx, t, agent, r, "one", "two")
	b.wait(ctx, t, 2)
	h.Close()
	if err := errors.Join(os.RemoveAll(o.Store), os.Rename(filepath.Join(dir, "empty"), o.Store),
		os.Chmod(o.Store, 0o700)); err != nil {
		t.Fatal(err)
	}
	openHub(t, o)
	send(ctx, t, agent, r, "three")
	if got := b.wait(ctx, t, 3); string(got[2].Data) != "three" {
		t.Errorf("read: %q", got)
	}
}

// The newest hello counts: however often a node repeats itself while the hub is away, two wait, and no step
// makes room for them.
func TestHellosPushNoStepsOut(t *testing.T) {
	r := NewRing("a", RingLimits{Messages: 4})
	r.Put(Step, []byte("1"))
	for range 10 {
		r.Put(Hello, []byte("old"))
	}
	r.Put(Step, []byte("2"))
	if dropped := r.Put(Hello, []byte("new")); len(dropped) > 0 {
		t.Errorf("dropped: %q", dropped)
	}
	dropped := r.Put(Step, []byte("3"))
	if len(dropped) != 1 || string(dropped[0].Data) != "1" || dropped[0].Kind != Step {
		t.Errorf("dropped: %q", dropped)
	}
	text := ""
	for m, ok := r.first(); ok; m, ok = r.first() {
		text += string(m.data) + " "
		r.sent(m, false)
	}
	if c := r.Counts(); text != "old 2 new 3 " || c.Put != c.Sent+c.Dropped {
		t.Errorf("sent %s, counts %+v", text, c)
	}
}

// The rule of a ring, whatever is put and sent: put = sent + dropped + waiting.
func TestARingNeverWaitsAndCountsEverything(t *testing.T) {
	r := NewRing("a", RingLimits{Messages: 4, Bytes: 10})
	for i := range 100 {
		r.Put(Step, make([]byte, i%7))
		if i%3 == 0 {
			if m, ok := r.first(); ok {
				if i%6 == 0 {
					for range 5 {
						r.Put(Hello, make([]byte, 4)) // m makes room while it is being sent
					}
				}
				r.sent(m, false)
			}
		}
		c := r.Counts()
		if c.Put != c.Sent+c.Dropped+int64(c.Waiting) || c.Waiting > 4 || r.bytes > 10 {
			t.Fatalf("after %d: %+v with %d bytes", i, c, r.bytes)
		}
	}
	r.Put(Step, make([]byte, maxMessage+1))
	if c := r.Counts(); c.Put != c.Sent+c.Dropped+int64(c.Waiting) {
		t.Errorf("after a message that is too large: %+v", c)
	}
}

func TestTheSocketIsForOneUser(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hub")
	h := openHub(t, HubOptions{Run: "r", Socket: filepath.Join(dir, "s")})
	for path, want := range map[string]os.FileMode{dir: 0o700, h.options.Socket: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if _, err := OpenHub(HubOptions{Run: "r2", Socket: h.options.Socket}); err == nil {
		t.Error("two hubs share a socket")
	}
	h.bridge.mu.Lock()
	h.bridge.allowed = func(user int) bool { return user != os.Geteuid() }
	h.bridge.mu.Unlock()
	if c, err := Dial(within(t), Access{Join: h.Join(), Role: Viewer}); err == nil {
		c.Close()
		t.Error("another user connects")
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if x, err := OpenHub(HubOptions{Run: "r", Socket: filepath.Join(open, "s")}); err == nil {
		x.Close()
		t.Error("the socket is in a folder that others can enter")
	}
}

func TestWhereNothingListensTheErrorSaysSo(t *testing.T) {
	h, j := overTLS(t, "r")
	h.Close()
	if _, err := Dial(within(t), Access{Join: j, Role: Viewer}); !errors.Is(err, ErrNoHub) {
		t.Error(err)
	}
}
