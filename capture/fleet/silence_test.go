//go:build !nobus

package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestANodeThatFallsSilentIsLateAndThenLost(t *testing.T) {
	now := time.Unix(1000, 0)
	w := NewWatch(WatchOptions{now: func() time.Time { return now }})
	defer w.Close()
	say := func(node string) {
		w.take(bus.Message{Node: node, Kind: bus.Step, Data: appendBatch(nil, batch{
			head:  head{rank: maybe.Known(int64(len(w.nodes)))},
			steps: []capture.Step{aStep(now.UnixNano())}})})
	}
	say("a:1")
	say("b:1")
	w.caughtUp(bus.Hello)
	w.caughtUp(bus.Step)
	why := func() string {
		w.look(true)
		return w.Job().First().History.Snapshot().Severed
	}
	for _, x := range []struct {
		after time.Duration
		want  string
	}{{time.Second, ""}, {lateAfter, "late: nothing from a:1"}, {lostAfter, "lost: nothing from a:1 for"}} {
		now = time.Unix(1000, 0).Add(x.after)
		say("b:1")
		if got := why(); x.want == "" && got != "" || !strings.HasPrefix(got, x.want) {
			t.Errorf("after %s: %q", x.after, got)
		}
	}
	if other := w.Job().Processes()[1].History.Snapshot().Severed; other != "" {
		t.Errorf("the other node: %q", other)
	}
	say("a:1")
	if got := why(); got != "" {
		t.Errorf("when it is back: %q", got)
	}
	now = now.Add(time.Hour)
	w.look(false)
	if got := w.Job().First().History.Snapshot().Severed; got != "the hub does not answer" {
		t.Errorf("without the hub: %q", got)
	}
}

// A viewer that comes late is told that a node has long been silent, whatever its own clock says, as soon as
// it has read everything: until then, a node may have sent more.
func TestWhoComesLateSeesThatANodeIsSilent(t *testing.T) {
	now := time.Unix(1000, 0)
	w := NewWatch(WatchOptions{now: func() time.Time { return now }})
	defer w.Close()
	for rank, age := range []time.Duration{lostAfter + time.Second, lateAfter, 0} {
		w.take(bus.Message{Node: fmt.Sprint("n", rank), Kind: bus.Step, Age: age,
			Data: appendBatch(nil, batch{head: head{rank: maybe.Known(int64(rank))},
				steps: []capture.Step{aStep(0)}})})
	}
	check := func(when string, all ...string) {
		t.Helper()
		for i, want := range all {
			if got := w.Job().Processes()[i].History.Snapshot().Severed; got != want {
				t.Errorf("%s, rank %d: %q, not %q", when, i, got, want)
			}
		}
	}
	w.caughtUp(bus.Hello)
	w.look(true)
	check("while it reads", "", "", "")
	w.caughtUp(bus.Step)
	<-w.caught
	check("in the end", "lost: nothing from n0 for 31s", "late: nothing from n1 for 6s", "")
	for i, want := range []bool{true, false, false} {
		if w.Job().Processes()[i].History.Snapshot().Missing != want {
			t.Errorf("rank %d counts as lost: %v", i, !want)
		}
	}
}

// A viewer that falls behind reads old messages. It calls no node silent of which it may not have read the
// newest ones yet, but does so when no more come.
func TestAViewerThatFallsBehindCallsNobodyLost(t *testing.T) {
	now := time.Unix(1000, 0)
	w := NewWatch(WatchOptions{now: func() time.Time { return now }})
	defer w.Close()
	take := func(rank int64, age time.Duration) {
		w.take(bus.Message{Node: fmt.Sprint("n", rank), Kind: bus.Step, Age: age,
			Data: appendBatch(nil, batch{head: head{rank: maybe.Known(rank)},
				steps: []capture.Step{aStep(now.UnixNano())}})})
	}
	take(0, 0)
	take(1, 0)
	w.caughtUp(bus.Hello)
	w.caughtUp(bus.Step)
	silence := func() string {
		w.look(true)
		return w.Job().First().History.Snapshot().Severed
	}
	now = now.Add(2 * lostAfter)
	take(1, lostAfter)
	if got := silence(); got != "" {
		t.Errorf("while old messages are read: %q", got)
	}
	now = now.Add(lateAfter)
	if got := silence(); !strings.HasPrefix(got, "lost: nothing from n0") {
		t.Errorf("when no more come: %q", got)
	}
}
