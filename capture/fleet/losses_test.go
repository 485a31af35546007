//go:build !nobus

package fleet

import (
	"context"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// While the hub is away the ring keeps what fits. What does not is counted in steps, and the sum is right.
func TestWhatTheRingCouldNotHoldIsCounted(t *testing.T) {
	dir := t.TempDir()
	keys, err := bus.NewKeys(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	o := bus.HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: keys, Store: filepath.Join(dir, "store")}
	h, err := bus.OpenHub(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Listen = h.Address()
	path := filepath.Join(dir, "r.join")
	if err := h.Join(h.Address()).Write(path); err != nil {
		t.Fatal(err)
	}
	j, ranks := ranksOf(t, 1, 0)
	n := StartNode(j, NodeOptions{Identity: Identity{Node: "a"}, Join: path,
		limits: bus.RingLimits{Messages: 4}})
	index := int64(0)
	step := func() { ranks[0].Step(aStep(index)); index++ }
	step()
	until(t, "the hub has something", func() bool { return n.ring.Counts().Sent > 0 })
	h.Close()
	// The next hub has keys of its own.
	if o.Keys, err = bus.NewKeys(time.Hour); err != nil {
		t.Fatal(err)
	}
	until(t, "the ring is full",
		func() bool {
			step()
			time.Sleep(leastRest) // several steps are sent in one message
			return n.ring.Counts().Dropped >= 5
		})
	if h, err = bus.OpenHub(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if err := h.Join(h.Address()).Write(path); err != nil {
		t.Fatal(err)
	}
	until(t, "the hub has the rest", func() bool { return n.ring.Counts().Waiting == 0 })
	step()
	w := follow(t, h, WatchOptions{})
	until(t, "the newest step is here", func() bool {
		list := seen(w)[0]
		return len(list) > 0 && list[len(list)-1] == index-1
	})
	until(t, "every step is here or counted as lost", func() bool {
		v := w.Job().First().History.Snapshot()
		return len(v.Losses) == 1 && v.Losses[0].Name == "steps" &&
			v.Losses[0].Count+int64(len(v.Steps)) == index
	})
	until(t, "the viewer says what the node dropped", func() bool {
		said := w.Job().First().History.Snapshot().Notices
		return len(said) > 0 && strings.Contains(said[0].Text, "a dropped ")
	})
	n.Close()
}

// The hub starts when the ring was full already: what was dropped before the first step that it ever had is
// counted, for each rank, and the node's hellos push no step out.
func TestStepsDroppedBeforeTheHubCameAreCounted(t *testing.T) {
	const messages, steps = 4, 30
	j, ranks := ranksOf(t, 2, 0, 1)
	n := newNode(j, NodeOptions{Identity: Identity{Node: "a"}, limits: bus.RingLimits{Messages: messages}})
	now := time.Now()
	n.rolledAt = now.Add(time.Hour) // a roll-up takes one of the four places
	for i := range int64(steps) {
		ranks[0].Step(aStep(i))
		if i >= steps/2 {
			ranks[1].Step(aStep(i)) // it was attached to later
		}
		now = now.Add(2 * helloEvery)
		n.collect(now)
	}
	h, _ := openHub(t)
	w := follow(t, h, WatchOptions{})
	c, err := h.Dial(bus.Agent)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { n.ring.Send(ctx, c) })
	viewer, err := h.Dial(bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	defer viewer.Close()
	var losses Losses
	work.Go(func() { losses.Run(ctx, viewer) })
	defer work.Wait()
	defer stop()
	until(t, "every step is here or counted as lost", func() bool {
		n.collect(now)
		for i, p := range w.Job().Processes() {
			v := p.History.Snapshot()
			if len(v.Losses) != 1 || len(v.Steps) < messages-2 ||
				v.Losses[0].Count+int64(len(v.Steps)) != steps/int64(i+1) {
				return false
			}
		}
		return len(w.Job().Processes()) == 2
	})
	lost := int64(0)
	for _, p := range w.Job().Processes() {
		lost += p.History.Snapshot().Losses[0].Count
	}
	until(t, "the hub knows as well", func() bool {
		sum, worst := losses.Sum()
		return sum == lost && worst == "a"
	})
}

// The end of a process says how many steps it took. What has not come by then is lost, and what comes
// nevertheless is not.
func TestTheLastStepsAreCountedIfTheyDoNotCome(t *testing.T) {
	now := time.Unix(1000, 0)
	w := NewWatch(WatchOptions{now: func() time.Time { return now }})
	defer w.Close()
	lost := func() (n int64) {
		w.look(true)
		for _, l := range w.Job().First().History.Snapshot().Losses {
			n += l.Count
		}
		return n
	}
	step := func(i int64) {
		w.take(bus.Message{Node: "a", Kind: bus.Step, Data: appendBatch(nil, batch{head{},
			[]capture.Step{aStep(i)}})})
	}
	step(0)
	w.take(bus.Message{Node: "a", Kind: bus.Hello, Data: []byte(
		`{"v":1,"host":"a","ranks":[{"id":0,"pid":2,"first":0,"step":3,"end":{"reason":"exited"}}]}`)})
	now = now.Add(2 * endGrace)
	if n := lost(); n != 0 {
		t.Errorf("%d steps are lost while the hub still sends what it had", n)
	}
	w.caughtUp(bus.Hello)
	w.caughtUp(bus.Step)
	for _, want := range []int64{3, 3} {
		if n := lost(); n != want {
			t.Errorf("%d steps are lost, not %d", n, want)
		}
	}
	step(1)
	step(3)
	if n := lost(); n != 1 {
		t.Errorf("%d steps are lost, not only step 2", n)
	}
}

// A node remembers few spans of what it dropped, and never fewer steps than it dropped.
func TestDroppedStepsAreKeptAsSpans(t *testing.T) {
	var list []span
	for i := range int64(40) {
		list = addStep(addStep(list, 10*i), 10*i+1)
	}
	if want := []span{{0, 321}, {330, 331}}; len(list) != maxLost || !reflect.DeepEqual(list[:2], want) {
		t.Errorf("%v", list)
	}
	for index, want := range map[int64]int64{0: 0, 5: 5, 322: 322, 325: 322, 331: 323, 1000: 322 + 14} {
		if n := before(list, index); n != want {
			t.Errorf("%d steps before %d, not %d", n, index, want)
		}
	}
	for _, bad := range []string{`[{"from":2,"to":1}]`, `[{"from":-5,"to":1}]`,
		`[{"from":0,"to":3},{"from":3,"to":4}]`, `[{"from":0,"to":9223372036854775807}]`} {
		if _, err := readHello([]byte(`{"v":1,"ranks":[{"lost":` + bad + `}]}`)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// A message that comes again, or comes late, changes nothing.
func TestAStepIsTakenOnce(t *testing.T) {
	w := NewWatch(WatchOptions{})
	defer w.Close()
	message := func(from, to int64) bus.Message {
		x := batch{head: head{id: 0, pid: 7, rank: maybe.Known(0), worldSize: maybe.Known(1)}}
		for i := from; i < to; i++ {
			x.steps = append(x.steps, aStep(i))
		}
		return bus.Message{Node: "a:1", Kind: bus.Step, Data: appendBatch(nil, x)}
	}
	for _, m := range []bus.Message{message(0, 3), message(0, 3), message(2, 5), message(1, 2), message(5,
		6)} {
		w.take(m)
	}
	if got := seen(w)[0]; !reflect.DeepEqual(got, []int64{0, 1, 2, 3, 4, 5}) {
		t.Errorf("steps %v", got)
	}
	if l := w.Job().First().History.Snapshot().Losses; len(l) > 0 {
		t.Errorf("lost: %v", l)
	}
}
