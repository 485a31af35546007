//go:build !nobus

package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestNodesObeyTheOperator(t *testing.T) {
	ctx := within(t)
	_, j := overTLS(t, "r")
	for _, node := range []string{"a", "b"} {
		c := dial(t, Access{Join: j, Role: Agent, Name: node})
		if err := c.Serve(Status, func(data json.RawMessage) any { return node + " heard " + string(data) },
			func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		if err := c.nats.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := c.Serve("exec", nil, nil); err == nil {
			t.Error("a node carries out orders that are not in the list")
		}
	}
	got := map[string]string{}
	op := dial(t, Access{Join: j, Role: Operator})
	if err := op.Ask(ctx, Status, 7, func(node string, answer json.RawMessage) bool {
		got[node] = string(answer)
		return len(got) == 2
	}); err != nil {
		t.Fatal(err)
	}
	if got["a"] != `"a heard 7"` || got["b"] != `"b heard 7"` {
		t.Errorf("answers: %v", got)
	}
	if err := op.Ask(ctx, "exec", nil, nil); err == nil {
		t.Error("an operator may ask for anything")
	}
	if err := dial(t, Access{Join: j.ForViewers(), Role: Viewer}).Ask(ctx, Status, nil, nil); err == nil {
		t.Error("a viewer gives orders")
	}
}

func TestAForgedOrderIsRefused(t *testing.T) {
	k, other := makeKeys(t), makeKeys(t)
	now := time.Now()
	g := &guard{run: "r", now: func() time.Time { return now }, seen: map[string]time.Time{},
		verify: func(data, signature []byte) error { return verify(k.public[Operator], data, signature) }}
	write := func(b orderBody, seed string) []byte {
		body, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		s, err := sign(seed, body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(order{body, s})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := orderBody{Run: "r", Verb: Capture, Nonce: "1", At: now, Data: json.RawMessage("5")}
	seed := k.seeds[Operator]
	if data, err := g.accept(Capture, write(good, seed)); err != nil || string(data) != "5" {
		t.Fatalf("a good order: %s, %v", data, err)
	}
	for name, x := range map[string]struct {
		change func(b *orderBody)
		seed   string
		verb   Verb
	}{
		"again":            {func(*orderBody) {}, seed, Capture},
		"of another run":   {func(b *orderBody) { b.Nonce, b.Run = "2", "r2" }, seed, Capture},
		"for another verb": {func(b *orderBody) { b.Nonce = "3" }, seed, Status},
		"not in the list":  {func(b *orderBody) { b.Nonce, b.Verb = "4", "exec" }, seed, "exec"},
		"old": {func(b *orderBody) { b.Nonce, b.At = "5", now.Add(-2*fresh) }, seed,
			Capture},
		"of the future": {func(b *orderBody) { b.Nonce, b.At = "6", now.Add(2*fresh) }, seed,
			Capture},
		"without a number":      {func(b *orderBody) { b.Nonce = "" }, seed, Capture},
		"by another run":        {func(b *orderBody) { b.Nonce = "7" }, other.seeds[Operator], Capture},
		"by a node":             {func(b *orderBody) { b.Nonce = "8" }, k.seeds[Agent], Capture},
		"by somebody who looks": {func(b *orderBody) { b.Nonce = "9" }, k.seeds[Viewer], Capture},
	} {
		b := good
		x.change(&b)
		if _, err := g.accept(x.verb, write(b, x.seed)); !errors.Is(err, errForged) {
			t.Errorf("an order %s: %v", name, err)
		}
	}
	for _, text := range []string{"", "{}", "null", "[]", `{"body":"e30=","signature":""}`} {
		if _, err := g.accept(Capture, []byte(text)); !errors.Is(err, errForged) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A viewer's key can make the server send stored messages to any subject. None of them is an order.
func TestAStoredMessageIsNoOrder(t *testing.T) {
	ctx := within(t)
	_, j := overTLS(t, "r")
	agent := dial(t, Access{Join: j, Role: Agent, Name: "a"})
	refused := make(chan error, 10)
	if err := agent.Serve(Capture, func(json.RawMessage) any { t.Error("carried out"); return nil },
		func(err error) { refused <- err }); err != nil {
		t.Fatal(err)
	}
	send(ctx, t, agent, NewRing("a", RingLimits{}), `{"verb":"capture"}`)
	n := namesOf("r")
	viewer := dial(t, Access{Join: j, Role: Viewer})
	_, err := viewer.nats.Request("$JS.API.CONSUMER.CREATE."+n.stream(Step)+".evil", fmt.Appendf(nil,
		`{"stream_name":%q,"config":{"name":"evil","ack_policy":"none","deliver_policy":"all",`+
			`"deliver_subject":%q}}`,
		n.stream(Step), n.orders(Capture)), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-refused:
		if !errors.Is(err, errForged) {
			t.Error(err)
		}
	case <-time.After(time.Second): // the server may refuse it as well
	}
}
