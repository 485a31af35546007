//go:build !nobus

package fleet

import (
	"context"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
)

// A hub is started again, with new keys, on its store or on an empty one: a viewer that was there before goes
// on, and has every step once.
func TestAViewerFollowsToTheNextHub(t *testing.T) {
	for name, stored := range map[string]bool{"on its store": true, "on an empty store": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "r.join")
			address := "127.0.0.1:0"
			start := func() *bus.Hub {
				keys, err := bus.NewKeys(time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				o := bus.HubOptions{Run: "r", Listen: address, Keys: keys}
				if stored {
					o.Store = filepath.Join(dir, "store")
				}
				h, err := bus.OpenHub(o)
				if err != nil {
					t.Fatal(err)
				}
				address = h.Address()
				if err := h.Join(address).Write(path); err != nil {
					t.Fatal(err)
				}
				return h
			}
			h := start()
			j, ranks := ranksOf(t, 1, 0)
			n := StartNode(j, NodeOptions{Identity: Identity{Node: "a"}, Join: path})
			defer n.Close()
			reach := Reach{Join: func(context.Context) (bus.Join, error) { return bus.ReadJoin(path) },
				Access: bus.Access{Role: bus.Viewer}}
			c, join, err := reach.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w := NewWatch(WatchOptions{})
			ctx, stop := context.WithCancel(context.Background())
			var work sync.WaitGroup
			work.Go(func() { w.Follow(ctx, c, join, reach) })
			defer func() {
				stop()
				work.Wait()
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}()
			var want []int64
			take := func(steps int64) {
				for range steps {
					ranks[0].Step(aStep(int64(len(want))))
					want = append(want, int64(len(want)))
				}
			}
			for range 2 {
				take(5)
				until(t, "the viewer has the steps so far",
					func() bool { return len(seen(w)[0]) == len(want) })
				h.Close()
				take(5)
				h = start()
			}
			defer h.Close()
			until(t, "the viewer has the steps", func() bool { return len(seen(w)[0]) == len(want) })
			v := w.Job().First().History.Snapshot()
			if got := seen(w)[0]; !reflect.DeepEqual(got, want) || len(v.Losses) > 0 {
				t.Errorf("steps %v, lost %v", got, v.Losses)
			}
			until(t, "the viewer no longer complains about the old hub", func() bool {
				return w.Job().First().History.Snapshot().Severed == ""
			})
		})
	}
}
