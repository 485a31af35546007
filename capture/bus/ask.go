//go:build !nobus

package bus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// Serve answers orders of one kind until the connection is closed. f gets what the operator sent and returns
// the answer. An order that is forged or repeated is dropped without an answer, and refused is called.
func (c *Conn) Serve(v Verb, f func(data json.RawMessage) any, refused func(error)) error {
	if !v.known() {
		return fmt.Errorf("a node does not carry out the order %q", v)
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

// Ask gives an order to all nodes and calls f with each node's answer, until f reports that it has enough or
// ctx is done.
func (c *Conn) Ask(ctx context.Context, v Verb, data any, f func(node string,
	answer json.RawMessage) bool) error {
	seed := c.access.Seeds[Operator]
	if seed == "" {
		return fmt.Errorf("give the order %s: the join file has no operator's key", v)
	}
	if !v.known() {
		return fmt.Errorf("a node does not carry out the order %q", v)
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
