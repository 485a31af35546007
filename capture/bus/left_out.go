//go:build nobus

package bus

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// Without NATS, everything that would connect says so.

// Keys are the secrets of a run.
type Keys struct{ Expires time.Time }

// NewKeys returns errLeftOut.
func NewKeys(time.Duration) (*Keys, error) { return nil, errLeftOut }

// HubOptions say how a hub is opened.
type HubOptions struct {
	Run, Listen, Socket string
	Keys                *Keys
	Store               string
	Tell                func(Outage)
}

// Hub cannot be opened.
type Hub struct{}

// OpenHub returns errLeftOut.
func OpenHub(HubOptions) (*Hub, error) { return nil, errLeftOut }

// Address is where the hub listens.
func (h *Hub) Address() string { return "" }

// Join returns the content of the join file.
func (h *Hub) Join(...string) Join { return Join{} }

// Dial returns errLeftOut.
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

// Dial returns errLeftOut.
func Dial(context.Context, Access) (*Conn, error) { return nil, errLeftOut }

// Err returns errLeftOut.
func (c *Conn) Err() error { return errLeftOut }

// Connected reports false.
func (c *Conn) Connected() bool { return false }

// Close does nothing.
func (c *Conn) Close() {}

func (c *Conn) publish(context.Context, string, Kind, string, []byte) (bool, error) {
	return false, errLeftOut
}

// Store returns errLeftOut.
func (c *Conn) Store(context.Context, string, Kind, string, []byte) error { return errLeftOut }

// ReadNew waits until ctx is done.
func (c *Conn) ReadNew(ctx context.Context, _ func(Message), _ func(Kind), _ ...Kind) { <-ctx.Done() }

// Read waits until ctx is done.
func (c *Conn) Read(ctx context.Context, _ func(Message), _ func(Kind), _ ...Kind) { <-ctx.Done() }

// Serve returns errLeftOut.
func (c *Conn) Serve(Verb, func(json.RawMessage) any, func(error)) error { return errLeftOut }

// Ask returns errLeftOut.
func (c *Conn) Ask(context.Context, Verb, any, func(string, json.RawMessage) bool) error {
	return errLeftOut
}

// Relay returns errLeftOut.
func Relay(context.Context, Join, Role, io.Reader, io.Writer) error { return errLeftOut }

// Tunnel cannot be opened.
type Tunnel struct{}

// OpenTunnel returns errLeftOut.
func OpenTunnel(context.Context, []string, []string, []string) (*Tunnel, error) {
	return nil, errLeftOut
}

// Join returns nothing.
func (t *Tunnel) Join() Join { return Join{} }

// Close does nothing.
func (t *Tunnel) Close() {}
