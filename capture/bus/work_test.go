//go:build !nobus

package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// openWork opens a hub that hands out work and returns the join file's content for workers.
func openWork(t *testing.T) (*Hub, *Work, Join) {
	t.Helper()
	keys, err := NewKeys(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	h, err := OpenHub(HubOptions{Run: "s", Listen: "127.0.0.1:0", Keys: keys, Work: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	w, err := h.Work([]byte("about"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return h, w, h.Join(h.Address())
}

func worker(t *testing.T, j Join) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), Access{Join: j, Role: Worker, Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Three workers, of which one is cut off with a unit in its hands, do every unit; each result arrives.
func TestEveryUnitIsDoneAlthoughAWorkerDies(t *testing.T) {
	_, w, j := openWork(t)
	const units = 20
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range units {
		id := fmt.Sprintf("unit %d.x", i)
		for range 2 { // offered twice, it is one unit
			if err := w.Offer(ctx, id, []byte(id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	dying := worker(t, j)
	err := dying.Take(ctx, func(context.Context, string, []byte) ([]byte, error) {
		return nil, errors.New("it cannot")
	})
	if err == nil || err.Error() != "it cannot" {
		t.Errorf("%v", err)
	}
	if about, err := dying.AboutWork(ctx); err != nil || string(about) != "about" {
		t.Errorf("%q %v", about, err)
	}
	dying.Close()
	var mu sync.Mutex
	got := map[string]string{}
	var work sync.WaitGroup
	work.Go(func() {
		_ = w.Results(ctx, func(id string, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			if got[id] = string(data); len(got) == units {
				stop()
			}
		})
	})
	for range 2 {
		c := worker(t, j)
		work.Go(func() {
			for ctx.Err() == nil {
				err := c.Take(ctx, func(_ context.Context, id string, data []byte) ([]byte, error) {
					if id != string(data) {
						t.Errorf("unit %q holds %q", id, data)
					}
					return []byte("done " + id), nil
				})
				if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoWork) {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	if len(got) != units || got["unit 7.x"] != "done unit 7.x" {
		t.Errorf("%d results: %v", len(got), got)
	}
	if waiting, underWay, err := w.Left(t.Context()); err != nil || waiting != 0 || underWay != 0 {
		t.Errorf("%d wait and %d are under way: %v", waiting, underWay, err)
	}
}

// A worker's key takes units and sends results. It cannot offer work, read other results, or change the
// queue.
func TestAWorkersKeyAllowsNothingElse(t *testing.T) {
	_, w, j := openWork(t)
	if len(j.Seeds) != 1 || j.Seeds[Worker] == "" {
		t.Errorf("the join file has keys of %d roles", len(j.Seeds))
	}
	c := worker(t, j)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	refused := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("a worker may %s", what)
		}
	}
	_, err := c.js.Publish(ctx, c.names.unit("forged"), []byte("x"))
	refused("offer work", err)
	refused("delete the queue", c.js.DeleteStream(ctx, c.names.work()))
	_, err = c.js.CreateConsumer(ctx, c.names.results(), jetstream.ConsumerConfig{})
	refused("read results", err)
	if waiting, _, err := w.Left(t.Context()); waiting != 0 || err != nil {
		t.Errorf("%d units wait, %v", waiting, err)
	}
	other := j
	other.Run = "another"
	if c, err := Dial(t.Context(), Access{Join: other, Role: Worker, Name: "w"}); err == nil {
		defer c.Close()
		if _, err := c.AboutWork(ctx); err == nil {
			t.Error("a key of one sweep works in another")
		}
	}
	run, err := NewKeys(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	h, err := OpenHub(HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: run})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if h.Join().Seeds[Worker] != "" {
		t.Error("the join file of a training has a worker's key")
	}
	if !strings.Contains(fmt.Sprint(h.Join().Seeds), "operator") {
		t.Error("the join file of a training lacks the operator's key")
	}
}
