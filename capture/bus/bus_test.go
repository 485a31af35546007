//go:build !nobus

package bus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
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

// wait waits for something that another goroutine does, but not forever.
func wait(t *testing.T, done func() bool) {
	t.Helper()
	for late := time.Now().Add(3 * time.Minute); !done() && time.Now().Before(late); {
		time.Sleep(5 * time.Millisecond)
	}
}

func TestWhereNothingListensTheErrorSaysSo(t *testing.T) {
	h, j := overTLS(t, "r")
	h.Close()
	if _, err := Dial(within(t), Access{Join: j, Role: Viewer}); !errors.Is(err, ErrNoHub) {
		t.Error(err)
	}
}
