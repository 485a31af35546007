package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Verb is what an operator may ask of the nodes. There are no others: no order runs a command or names a
// path.
type Verb string

// The verbs.
const (
	// Status asks what a node is doing.
	Status Verb = "status"
	// Prepare asks how far a node's ranks are, before a capture.
	Prepare Verb = "prepare"
	// Capture captures whole steps of some ranks.
	Capture Verb = "capture"
	// Fetch asks for a captured trace of one rank.
	Fetch Verb = "fetch"
)

// verbs are all verbs.
var verbs = []Verb{Status, Prepare, Capture, Fetch}

// errForged means that an order does not come from an operator of this run, or comes again.
var errForged = errors.New("an order was refused")

// order is a signed order.
type order struct {
	// Body is the JSON of an orderBody, as it was signed.
	Body      []byte `json:"body"`
	Signature []byte `json:"signature"`
}

type orderBody struct {
	Run   string    `json:"run"`
	Verb  Verb      `json:"verb"`
	Nonce string    `json:"nonce"`
	At    time.Time `json:"at"`
	// Data is what the verb says about itself.
	Data json.RawMessage `json:"data,omitempty"`
}

// fresh is how long an order is valid. Clocks of nodes may differ by that much.
const fresh = time.Minute

// maxNonces bounds how many orders are remembered: all that anybody gives within their validity.
const maxNonces = 4096

// guard checks orders.
type guard struct {
	run string
	// verify checks a signature by the operator's key.
	verify func(data, signature []byte) error
	now    func() time.Time

	mu   sync.Mutex
	seen map[string]time.Time
}

// accept returns what an order for a verb says, or why it is refused.
func (g *guard) accept(v Verb, message []byte) (json.RawMessage, error) {
	var o order
	if err := json.Unmarshal(message, &o); err != nil {
		return nil, fmt.Errorf("%w: it is damaged: %w", errForged, err)
	}
	if err := g.verify(o.Body, o.Signature); err != nil {
		return nil, fmt.Errorf("%w: the operator of this run did not sign it", errForged)
	}
	var b orderBody
	if err := json.Unmarshal(o.Body, &b); err != nil {
		return nil, fmt.Errorf("%w: it is damaged: %w", errForged, err)
	}
	now := g.now()
	age := now.Sub(b.At)
	switch {
	case b.Run != g.run:
		return nil, fmt.Errorf("%w: it is for run %q", errForged, b.Run)
	case b.Verb != v || !v.known():
		return nil, fmt.Errorf("%w: a node does not carry out the order %q", errForged, b.Verb)
	case age > fresh || age < -fresh:
		return nil, fmt.Errorf("%w: it was given at %s, which is too far from this node's clock", errForged,
			b.At.Format(time.RFC3339))
	case b.Nonce == "":
		return nil, fmt.Errorf("%w: it has no number", errForged)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for n, at := range g.seen {
		if now.Sub(at) > 2*fresh {
			delete(g.seen, n)
		}
	}
	if _, again := g.seen[b.Nonce]; again || len(g.seen) >= maxNonces {
		return nil, fmt.Errorf("%w: it was carried out already", errForged)
	}
	g.seen[b.Nonce] = now
	return b.Data, nil
}

func (v Verb) known() bool {
	for _, x := range verbs {
		if v == x {
			return true
		}
	}
	return false
}
