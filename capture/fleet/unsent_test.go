//go:build !nobus

package fleet

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// What a killed process had not sent is inferred from the pace of its steps.
func TestStepsOfAKilledProcessAreInferred(t *testing.T) {
	const ms = int64(time.Millisecond)
	steps := func(pace int64, n int64) (list []capture.Step) {
		for i := range n {
			list = append(list, capture.Step{Index: i, Start: i * pace, End: (i + 1) * pace})
		}
		list[1].End += pace / 3 // one that took longer does not matter
		return list
	}
	vanished := capture.End{Reason: capture.Exited, Detail: say.Vanished.Text()}
	for _, c := range []struct {
		what       string
		pace, late int64
		end        capture.End
		want       int64
	}{
		{"killed at once", 100 * ms, 90 * ms, vanished, 0},
		{"killed after four steps more", 100 * ms, 450 * ms, vanished, 4},
		{"killed by a signal that is known", 100 * ms, 450 * ms,
			capture.End{Reason: capture.Exited, Code: maybe.Known(int64(137))}, 4},
		{"killed, but its ring was read", 100 * ms, 450 * ms,
			capture.End{Reason: capture.Exited, Detail: vanished.Detail, Recovered: maybe.Known(int64(3))},
			0},
		{"slow steps, of which one may have ended", 3000 * ms, 3500 * ms, vanished, 1},
		{"it hung before it was killed", 100 * ms, 60_000 * ms, vanished, 0},
		{"it said goodbye", 100 * ms, 450 * ms,
			capture.End{Reason: capture.Exited, Code: maybe.Known(int64(0))}, 0},
		{"it raised an exception", 100 * ms, 450 * ms,
			capture.End{Reason: capture.Exited, Code: maybe.Known(int64(1)), Detail: "ValueError"}, 0},
		{"gmemtop left it", 100 * ms, 450 * ms, capture.End{Reason: capture.Detached}, 0},
		{"a clock that was set back", 100 * ms, -450 * ms, vanished, 0},
	} {
		v := capture.View{Steps: steps(c.pace, 30), Ended: true, End: c.end}
		if got := unsent(&v, time.Unix(0, 30*c.pace+c.late)); got != c.want {
			t.Errorf("%s: %d steps, want %d", c.what, got, c.want)
		}
	}
	if got := unsent(&capture.View{End: vanished}, time.Unix(0, 0)); got != 0 {
		t.Errorf("a process without a step lost %d", got)
	}
}

// A viewer counts them once, apart from the steps that are known to be lost.
func TestStepsOfAKilledProcessAreShown(t *testing.T) {
	j, ranks := ranksOf(t, 2, 0)
	n := newNode(j, NodeOptions{Identity: Identity{Node: "host"}})
	now := time.Now()
	for i := range int64(20) {
		end := now.Add(time.Duration(i-20) * 100 * time.Millisecond).UnixNano()
		ranks[0].Step(capture.Step{Index: i, Start: end - 1, End: end})
	}
	n.collect(now)
	ranks[0].End(capture.End{Reason: capture.Exited, Detail: say.Vanished.Text()})
	n.collect(now.Add(250 * time.Millisecond))
	n.collect(now.Add(time.Second)) // says the same again
	h, _ := openHub(t)
	c, err := h.Dial(bus.Agent)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	work.Go(func() { n.ring.Send(ctx, c) })
	defer work.Wait()
	defer stop()
	w := follow(t, h, WatchOptions{})
	first := w.Job().First().History
	until(t, "the end", func() bool { return first.Snapshot().Ended })
	n.put(bus.Hello, n.said) // repeats itself
	until(t, "the hello again", func() bool { return n.ring.Counts().Waiting == 0 })
	v := first.Snapshot()
	if len(v.Losses) != 1 || v.Losses[0].Name != "unsent_steps" || v.Losses[0].Count != 3 {
		t.Errorf("a viewer counts %+v, want 3 unsent steps", v.Losses)
	}
	if !v.Ended || len(v.Steps) != 20 {
		t.Errorf("%d steps, ended: %t", len(v.Steps), v.Ended)
	}
}
