//go:build !nobus

package bus

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Minute))
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
		if err := c.nats.FlushTimeout(3 * time.Minute); err != nil {
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
		_ = c.nats.FlushTimeout(3 * time.Minute)
		wait(t, func() bool { return c.Err() != nil })
		if c.Err() == nil {
			t.Errorf("%s listens to %s", x.role, x.to)
		}
		c.Close()
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
