//go:build !nobus

package bus

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A small disk fills up. The hub says so, and stores again by itself once there is room: what waited in the
// ring meanwhile arrives at a viewer that was there all the time, and at one that comes later. What the hub
// had confirmed and lost is counted.
func TestAHubStoresAgainWhenItsDiskHasRoom(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=24m,mode=700"); err != nil {
		t.Skipf("needs root: it mounts a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	ctx := within(t)
	told := make(chan Outage, 8)
	h := openHub(t, HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: makeKeys(t),
		Store: filepath.Join(disk, "store"), Tell: func(o Outage) { told <- o }})
	next := func() Outage {
		t.Helper()
		select {
		case o := <-told:
			return o
		case <-ctx.Done():
			t.Fatal("in vain waited to be told")
			return Outage{}
		}
	}
	j := h.Join(h.Address())
	agent := dial(t, Access{Join: j, Role: Agent})
	b := read(ctx, t, dial(t, Access{Join: j, Role: Viewer}), Step)
	r := NewRing("a", RingLimits{})
	send(ctx, t, agent, r, "first")
	b.wait(ctx, t, 1)
	sending := t.Context()
	var work sync.WaitGroup
	work.Go(func() { r.Send(sending, agent) })
	t.Cleanup(work.Wait)

	filler, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	_ = filler.Close()
	var begun Outage
	for put := 1; begun.Why == nil; put++ {
		if put < 200 {
			r.Put(Step, make([]byte, 10_000))
		}
		select {
		case begun = <-told:
		case <-ctx.Done():
			t.Fatalf("nobody is told that the disk is full; the ring: %+v", r.Counts())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if !begun.Ended.IsZero() || begun.Store != filepath.Join(disk, "store") {
		t.Errorf("told: %+v", begun)
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	ended := next()
	if ended.Ended.IsZero() {
		t.Fatalf("told: %+v", ended)
	}
	r.Put(Step, []byte("last"))
	if err := r.Flush(ctx); err != nil {
		t.Fatalf("the ring is not emptied: %+v", r.Counts())
	}
	counts := r.Counts()
	stored := int(counts.Put - ended.Lost)
	t.Logf("%d messages were put, the hub lost %d of them (%v)", counts.Put, ended.Lost, begun.Why)
	for name, got := range map[string][]Message{
		"who comes later": read(ctx, t, dial(t, Access{Join: j, Role: Viewer}), Step).wait(ctx, t, stored),
		"who was there":   b.wait(ctx, t, stored),
	} {
		if string(got[0].Data) != "first" || string(got[len(got)-1].Data) != "last" {
			t.Errorf("%s got %d messages, from %.9q to %.9q", name, len(got), got[0].Data,
				got[len(got)-1].Data)
		}
	}
	if counts.Dropped > 0 || ended.Lost < 0 {
		t.Errorf("counts: %+v, lost: %d", counts, ended.Lost)
	}
}
