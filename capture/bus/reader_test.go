//go:build !nobus

package bus

import (
	"context"
	"math"
	"testing"
	"time"
)

// A reader that loses the hub goes on behind the newest message; one whose hub has lost its store begins
// again.
func TestAReaderGoesOnWhereItWas(t *testing.T) {
	ctx := within(t)
	h, j := overTLS(t, "r")
	agent, ring := dial(t, Access{Join: j, Role: Agent}), NewRing("a", RingLimits{})
	owner, err := h.dial(owner)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	text := ""
	r := reader{conn: dial(t, Access{Join: j, Role: Viewer}), kind: Step}
	caught := ""
	r.caught = func() { caught += text + "." }
	follow := func(until string) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		r.take = func(m Message) {
			if text += string(m.Data); string(m.Data) == until {
				time.AfterFunc(50*time.Millisecond, stop)
			}
		}
		r.follow(ctx)
	}
	send(ctx, t, agent, ring, "1", "2")
	follow("2")
	send(ctx, t, agent, ring, "3")
	follow("3")
	if text != "123" {
		t.Errorf("it read %s", text)
	}
	if err := owner.js.DeleteStream(ctx, owner.names.stream(Step)); err != nil {
		t.Fatal(err)
	}
	if err := owner.prepare(ctx, math.MaxInt64, 1); err != nil {
		t.Fatal(err)
	}
	send(ctx, t, agent, ring, "4")
	follow("4")
	if text != "1234" {
		t.Errorf("after the store was lost it read %s", text)
	}
	if caught != "12." {
		t.Errorf("it had read everything at %s", caught)
	}
}

// A reader who comes late learns how long ago a message was stored.
func TestAMessageHasAnAge(t *testing.T) {
	ctx := within(t)
	_, j := overTLS(t, "r")
	send(ctx, t, dial(t, Access{Join: j, Role: Agent}), NewRing("a", RingLimits{}), "old")
	const waited = 50 * time.Millisecond
	time.Sleep(waited) // so that the message has an age
	got := read(ctx, t, dial(t, Access{Join: j, Role: Viewer}), Step).wait(ctx, t, 1)
	// Asking the hub for its time takes a moment, which may be missing.
	if age := got[0].Age; age < waited/2 || age > time.Hour {
		t.Errorf("%v after it was stored its age is %v", waited, age)
	}
}
