//go:build nobus

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// Without NATS, everything that would connect says so.

var errLeftOut = errors.New("this gmemtop was built without support for several machines (build tag nobus)")

// Keys are the secrets of a run.
type Keys struct{ Expires time.Time }

// NewKeys fails: this build has no bus.
func NewKeys(time.Duration) (*Keys, error) { return nil, errLeftOut }

// HubOptions say how a hub is opened.
type HubOptions struct {
	Run, Listen, Socket string
	URL, Credentials    string
	Leaf                string
	Keys                *Keys
	Store               string
	Work                bool
	Tell                func(Outage)
}

// Hub cannot be opened.
type Hub struct{}

// OpenHub fails: this build has no bus.
func OpenHub(HubOptions) (*Hub, error) { return nil, errLeftOut }

// Remove fails: this build has no bus.
func (h *Hub) Remove(context.Context) error { return errLeftOut }

// Leaf fails: this build has no bus.
func (h *Hub) Leaf(context.Context) error { return errLeftOut }

// Address is where the hub listens.
func (h *Hub) Address() string { return "" }

// Join returns the content of the join file.
func (h *Hub) Join(...string) Join { return Join{} }

// Dial fails: this build has no bus.
func (h *Hub) Dial(Role) (*Conn, error) { return nil, errLeftOut }

// Close ends the hub.
func (h *Hub) Close() {}

// Access says how to reach a hub, and as whom.
type Access struct {
	Join
	Role             Role
	Name             string
	Patient          bool
	Tunnel           *Tunnel
	URL, Credentials string
}

// Conn cannot be made.
type Conn struct{}

// Dial fails: this build has no bus.
func Dial(context.Context, Access) (*Conn, error) { return nil, errLeftOut }

// Err fails: this build has no bus.
func (c *Conn) Err() error { return errLeftOut }

// Connected reports false.
func (c *Conn) Connected() bool { return false }

// Close does nothing.
func (c *Conn) Close() {}

func (c *Conn) publish(context.Context, string, Kind, string, []byte) (bool, error) {
	return false, errLeftOut
}

// Store fails: this build has no bus.
func (c *Conn) Store(context.Context, string, Kind, string, []byte) error { return errLeftOut }

// ReadNew waits until ctx is done.
func (c *Conn) ReadNew(ctx context.Context, _ func(Message), _ func(Kind), _ ...Kind) { <-ctx.Done() }

// Read waits until ctx is done.
func (c *Conn) Read(ctx context.Context, _ func(Message), _ func(Kind), _ ...Kind) { <-ctx.Done() }

// ReadNode waits until ctx is done.
func (c *Conn) ReadNode(ctx context.Context, _ string, _ time.Time, _ func(Message), _ func(Kind),
	_ ...Kind) {
	<-ctx.Done()
}

// Serve fails: this build has no bus.
func (c *Conn) Serve(Verb, func(json.RawMessage) any, func(error)) error { return errLeftOut }

// Ask fails: this build has no bus.
func (c *Conn) Ask(context.Context, Verb, any, func(string, json.RawMessage) bool) error {
	return errLeftOut
}

// ErrNoWork means that no unit is waiting at the moment.
var ErrNoWork = errors.New("no work is waiting")

// Work cannot be made.
type Work struct{}

// Work fails: this build has no bus.
func (h *Hub) Work([]byte) (*Work, error) { return nil, errLeftOut }

// Close does nothing.
func (w *Work) Close() {}

// Offer fails: this build has no bus.
func (w *Work) Offer(context.Context, string, []byte) error { return errLeftOut }

// Results fails: this build has no bus.
func (w *Work) Results(context.Context, func(string, []byte)) error { return errLeftOut }

// Left fails: this build has no bus.
func (w *Work) Left(context.Context) (waiting, underWay int, err error) { return 0, 0, errLeftOut }

// AboutWork fails: this build has no bus.
func (c *Conn) AboutWork(context.Context) ([]byte, error) { return nil, errLeftOut }

// Take fails: this build has no bus.
func (c *Conn) Take(context.Context, func(context.Context, string, []byte) ([]byte, error)) error {
	return errLeftOut
}

// Relay fails: this build has no bus.
func Relay(context.Context, Join, Role, io.Reader, io.Writer) error { return errLeftOut }

// Tunnel cannot be opened.
type Tunnel struct{}

// OpenTunnel fails: this build has no bus.
func OpenTunnel(context.Context, []string, []string, []string) (*Tunnel, error) {
	return nil, errLeftOut
}

// Join returns nothing.
func (t *Tunnel) Join() Join { return Join{} }

// Close does nothing.
func (t *Tunnel) Close() {}
