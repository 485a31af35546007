//go:build !nobus

package fleet

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/bus/sitetest"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A node goes on for one that fell silent. Viewers see the same ranks, in whatever order they come back:
// their steps, which attempt each is, and what was lost before. A rank that ended meanwhile has ended, and
// one that starts again is another attempt.
func TestANodeGoesOnForAnother(t *testing.T) {
	t.Run("at a hub", func(t *testing.T) {
		h, path := openHub(t)
		testTakingOver(t, h, NodeOptions{Join: path})
	})
	t.Run("at a site's servers", func(t *testing.T) {
		s := sitetest.Start(t)
		t.Setenv("SSL_CERT_FILE", s.Roots)
		keys, err := bus.NewKeys(time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		h, err := bus.OpenHub(bus.HubOptions{Run: "r", URL: s.URL, Credentials: s.Credentials, Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Close)
		path := filepath.Join(t.TempDir(), "r.join")
		if err := h.Join().Write(path); err != nil {
			t.Fatal(err)
		}
		testTakingOver(t, h, NodeOptions{Join: path, Credentials: s.Credentials})
	})
}

func testTakingOver(t *testing.T, h *bus.Hub, options NodeOptions) {
	t.Helper()
	before, ranks := ranksOf(t, 4, 0, 1, 2)
	options.Identity, options.Name = Identity{Node: "a", Attempt: 2}, "a:7"
	n := StartNode(before, options)
	for _, p := range ranks {
		p.Step(aStep(0))
	}
	until(t, "the first steps were sent", func() bool { return n.ring.Counts().Sent > 1 })
	n.Close()
	w := follow(t, h, WatchOptions{})
	<-w.caught
	c, err := h.Dial(bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if nobody, err := lastHello(t.Context(), c, "a:8"); nobody != nil || err != nil {
		t.Errorf("of a node that never was: %v, %v", nobody, err)
	}
	if options.past, err = lastHello(t.Context(), c, "a:7"); err != nil {
		t.Fatal(err)
	}
	options.past.hello.Counts.Dropped = 5
	options.past.hello.Ranks[1].Dropped, options.past.hello.Ranks[1].Lost = 1, []span{{1, 1}}
	after, back := ranksOf(t, 4, 1, 0)
	again := after.Add(capture.Info{PID: 9, Rank: maybe.Known(int64(2))}, nil)
	n = StartNode(after, options)
	defer n.Close()
	for i, p := range append(back, again) {
		p.Step(aStep(int64(2 - i)))
	}
	known := func() (list []rank) {
		past, err := lastHello(t.Context(), c, "a:7")
		if err != nil {
			t.Fatal(err)
		}
		return past.hello.Ranks
	}
	until(t, "all ranks were heard of", func() bool { return len(known()) == 4 })
	list := known()
	slices.SortFunc(list, func(a, b rank) int { return a.ID - b.ID })
	for i, want := range []rank{{PID: 4000, Attempt: 2}, {PID: 4001, Attempt: 2, Dropped: 1},
		{PID: 4002, Attempt: 2, End: &end{Reason: capture.Exited}}, {PID: 9, Attempt: 3}} {
		got := list[i]
		if got.PID != want.PID || got.Attempt != want.Attempt || got.Dropped != want.Dropped ||
			(got.End == nil) != (want.End == nil) || (got.ID == i) != (i < 3) {
			t.Errorf("number %d: %+v", i, got)
		}
	}
	until(t, "the viewer has all steps", func() bool {
		got := seen(w)
		return slices.Equal(got[0], []int64{0, 1}) && slices.Equal(got[1], []int64{0, 2}) && len(got) == 3
	})
	if dropped := n.counts().Dropped; dropped != 5 {
		t.Errorf("%d messages dropped", dropped)
	}
}

// The number by which viewers know a process stays, whatever its target becomes: the command's first process
// may later stand for another rank that the node before knew.
func TestAProcessIsOrderedByTheNumberThatWasSent(t *testing.T) {
	past := &past{hello: hello{Ranks: []rank{{ID: 5, Attempt: 2, PID: 4000, Started: 1},
		{ID: 6, Attempt: 7, PID: 4001, Started: 1}}}}
	j, ranks := ranksOf(t, 2, 0)
	n := newNode(j, NodeOptions{Identity: Identity{Node: "a"}, past: past})
	ranks[0].Step(aStep(0))
	if known := n.ready().Ranks; len(known) != 0 {
		t.Errorf("viewers do not know %+v yet", known)
	}
	n.collect(time.Now())
	info := ranks[0].Info()
	info.PID = 4001
	ranks[0].Begin(info)
	if list := n.ready().Ranks; len(list) != 1 || list[0].ID != 5 || list[0].Attempt != 2 {
		t.Errorf("it was sent as attempt 2 of number 5, and is %+v", list)
	}
	for id, refused := range map[int]bool{5: false, 6: true} {
		p := n.capture(t.Context(), captureOrder{ID: fmt.Sprint("c", id),
			Ranks: map[string][]int{n.name: {id}}})
		if got := strings.Contains(p.Ranks[0].Why, "no such process"); got != refused {
			t.Errorf("capturing number %d: %+v", id, p.Ranks[0])
		}
	}
}

// A rank that the node before this one knew may end without having come back. Viewers are told, once it has.
func TestARankThatNeverComesBackEnds(t *testing.T) {
	left := exec.Command("sleep", "600")
	if err := left.Start(); err != nil {
		t.Skip("needs sleep: " + err.Error())
	}
	defer func() {
		_ = left.Process.Kill()
		_ = left.Wait()
	}()
	if !running(left.Process.Pid, 0) {
		t.Skip("needs Linux: it looks at processes")
	}
	j, _ := ranksOf(t, 1, 0)
	n := newNode(j, NodeOptions{past: &past{hello: hello{Ranks: []rank{{ID: 3, PID: left.Process.Pid}}}}})
	ended := func() bool {
		list := n.unheard()
		return len(list) != 1 || list[0].End != nil
	}
	if ended() {
		t.Error("it ended while it ran")
	}
	if err := left.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "viewers are told of its end", ended)
}

// A gmemtop is killed between two sums of minutes. The one that takes its place sums up what the hub has of
// the minute before: no step is missing in the sums and none is in two of them, also of a rank that never
// comes back.
func TestNoStepIsMissingInTheSumsOfANodeThatWasKilled(t *testing.T) {
	h, _ := openHub(t)
	c, err := h.Dial(bus.Agent)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	viewer, err := h.Dial(bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	defer viewer.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	send := func(n *Node) {
		t.Helper()
		sending, enough := context.WithCancel(ctx)
		defer enough()
		go n.ring.Send(sending, c)
		if err := n.ring.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	take := func(ranks []*job.Process, from, to int64) {
		for i := from; i < to; i++ {
			for _, p := range ranks {
				p.Step(aStep(i))
			}
		}
	}
	for name, sumsUp := range map[string]bool{"a": true, "b": false} {
		j, ranks := ranksOf(t, 3, 0, 1, 2)
		n := newNode(j, NodeOptions{Name: name})
		take(ranks, 0, 100)
		n.collect(time.Now())
		if sumsUp {
			n.rollUp(true)
		}
		take(ranks, 100, 150)
		n.collect(time.Now())
		send(n)

		was, err := lastHello(ctx, viewer, name)
		if err != nil || was == nil {
			t.Fatal(was, err)
		}
		was.recall(ctx, viewer, name)
		// What a rank has sent to the killed gmemtop after step 149 must be found by the next one. It asks
		// once.
		info := ranks[1].Info()
		for i, want := range []maybe.Int{maybe.Known(int64(149)), {}} {
			if got := was.received(info); got != want {
				t.Errorf("%s: after %d answers, the last step of a rank is %v, want %v", name, i, got, want)
			}
		}
		back, ranks := ranksOf(t, 3, 1, 0)
		n = newNode(back, NodeOptions{Name: name, past: was})
		take(ranks, 152, 200)
		n.collect(time.Now())
		n.rollUp(true)
		n.rollUp(true)
		send(n)

		all := map[int]capture.Span{}
		readAll(ctx, viewer, name, time.Time{}, bus.Roll, func(m bus.Message) error {
			return readRolled(m.Data, func(x rolled) {
				p := all[x.id]
				if p.Steps > 0 && x.span.First <= p.Last {
					t.Errorf("%s: rank %d: a span from %d after one to %d", name, x.id, x.span.First, p.Last)
				}
				p.Merge(&x.span)
				all[x.id] = p
			})
		})
		for id := range 3 {
			want := spanFrom(0, 150)
			if more := spanFrom(152, 200); id < 2 {
				want.Merge(&more)
			}
			if all[id] != want {
				t.Errorf("%s: rank %d is summed up as\n%+v, want\n%+v", name, id, all[id], want)
			}
		}
	}
	none := &past{}
	none.recall(ctx, viewer, "c")
	if len(none.sums) > 0 {
		t.Errorf("a node that never was has %v", none.sums)
	}
}
