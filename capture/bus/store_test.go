//go:build !nobus

package bus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
