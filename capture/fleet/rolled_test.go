//go:build !nobus

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// spanFrom sums up the steps [from, to).
func spanFrom(from, to int64) (p capture.Span) {
	for i := from; i < to; i++ {
		s := aStep(i)
		one := capture.SpanOf(&s)
		p.Merge(&one)
	}
	return p
}

// A hub has dropped the steps before number 750 of rank 0, and all of rank 1, which ended long ago. A viewer
// that comes now still sees what they held, and so does the sealed run.
func TestStepsThatTheHubNoLongerHasAreSummedUp(t *testing.T) {
	h, _ := openHub(t)
	store := storeOf(t, h)
	heads := []head{{0, 0, 4000, maybe.Known(int64(0)), maybe.Known(int64(2))},
		{1, 0, 4001, maybe.Known(int64(1)), maybe.Known(int64(2))}}
	for i, p := range []capture.Span{spanFrom(0, 300), spanFrom(300, 600), spanFrom(600, 900)} {
		message := appendRolled(nil, rolled{heads[0], p})
		if i < 2 {
			message = appendRolled(message, rolled{heads[1], p})
		}
		store(bus.Roll, fmt.Sprint("roll", i), message)
	}
	var steps []capture.Step
	for i := int64(750); i < 900; i++ {
		steps = append(steps, aStep(i))
	}
	store(bus.Step, "steps", appendBatch(nil, batch{heads[0], steps}))
	text, err := json.Marshal(hello{Version: wireVersion, Host: "a", Over: true, Ranks: []rank{
		{ID: 0, PID: 4000, Rank: heads[0].rank, WorldSize: heads[0].worldSize, First: maybe.Known(int64(0)),
			Step: 899, End: &end{Reason: capture.Exited}},
		{ID: 1, PID: 4001, Rank: heads[1].rank, WorldSize: heads[1].worldSize, First: maybe.Known(int64(0)),
			Step: 599, End: &end{Reason: capture.Exited}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	store(bus.Hello, "hello", text)

	check := func(what string, j *job.Job) {
		t.Helper()
		for r, p := range j.Processes() {
			v := p.History.Snapshot()
			if len(v.Rolled) == 0 || v.Rolled[0].First != 0 || v.Rolled[len(v.Rolled)-1].Last != 599 ||
				v.Seen() != int64(600+150*(1-r)) || len(v.Losses) > 0 {
				t.Errorf("%s: rank %d has %d spans, saw %d steps and lost %v", what, r, len(v.Rolled),
					v.Seen(), v.Losses)
				continue
			}
			var all capture.Span
			for i := range v.Rolled {
				all.Merge(&v.Rolled[i])
			}
			if want := spanFrom(0, 600); all != want {
				t.Errorf("%s: rank %d is summed up as\n%+v, want\n%+v", what, r, all, want)
			}
		}
	}
	w := follow(t, h, WatchOptions{})
	<-w.summed
	check("watched", w.Job())

	viewer, err := h.Dial(bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	defer viewer.Close()
	dir := filepath.Join(t.TempDir(), "run")
	s, err := Seal(t.Context(), viewer, dir)
	if err != nil || s.Steps != 150 || s.Summed != 1200 || s.Gone != 150 || s.Lost != 0 {
		t.Fatalf("sealed: %+v, %v", s, err)
	}
	j, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	check("opened", j)
}

// A node sums up each minute of its ranks, and what is left when a rank or the node ends: nothing is missing
// in the sums and nothing is in two of them.
func TestANodeSumsUpAllItsSteps(t *testing.T) {
	h, _ := openHub(t)
	j, ranks := ranksOf(t, 2, 0, 1)
	n := newNode(j, NodeOptions{Identity: Identity{Node: "a"}})
	const steps = 900
	now, sums := time.Now(), 0
	for i := range int64(steps) {
		ranks[0].Step(aStep(i))
		if i < steps/2 {
			ranks[1].Step(aStep(i))
		} else if i == steps/2 {
			ranks[1].End(capture.End{Reason: capture.Exited})
		}
		now = now.Add(time.Second)
		n.collect(now)
	}
	n.rollUp(true)
	c, err := h.Dial(bus.Agent)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() { n.ring.Send(ctx, c) })
	if err := n.ring.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	viewer, err := h.Dial(bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	defer viewer.Close()
	all := map[int]*capture.Span{0: {}, 1: {}}
	reading, enough := context.WithCancel(t.Context())
	viewer.Read(reading, func(m bus.Message) {
		if err := readRolled(m.Data, func(x rolled) {
			p := all[x.id]
			if p.Steps > 0 && x.span.First != p.Last+1 {
				t.Errorf("rank %d: a span from %d after one to %d", x.id, x.span.First, p.Last)
			}
			p.Merge(&x.span)
			sums++
		}); err != nil {
			t.Error(err)
		}
	}, func(bus.Kind) { enough() }, bus.Roll)
	for id, want := range map[int]capture.Span{0: spanFrom(0, steps), 1: spanFrom(0, steps/2)} {
		if *all[id] != want {
			t.Errorf("rank %d is summed up as\n%+v, want\n%+v", id, *all[id], want)
		}
	}
	// 900 and 450 seconds, and one sum more where a rank ends: there is no process of that number
	if sums < 15+7 || sums > 16+9+2 {
		t.Errorf("%d sums", sums)
	}
}

// FuzzRolled: reading what arrives neither fails badly nor takes more memory than a multiple of it, and what
// was read is read again from what is written of it.
func FuzzRolled(f *testing.F) {
	good := appendRolled(nil, rolled{head{3, 1, 99, maybe.Known(int64(7)), maybe.Known(int64(8))},
		spanFrom(0, 9)})
	f.Add(good)
	f.Add(appendRolled(good, rolled{head{id: 4}, spanFrom(5, 6)}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var list, second []rolled
		if err := readRolled(data, func(x rolled) { list = append(list, x) }); err != nil {
			return
		}
		again := []byte{wireVersion}
		for _, x := range list {
			again = appendRolled(again, x)
		}
		if err := readRolled(again, func(x rolled) { second = append(second, x) }); err != nil ||
			!reflect.DeepEqual(list, second) || len(list) > len(data) {
			t.Errorf("%v, written and read again: %v, %v", list, second, err)
		}
	})
}

// A viewer was away while the hub took and dropped steps 300 to 899: when it is back, it gets their sums, and
// counts as lost only what no whole sum covers.
func TestStepsThatAreMissingInTheMiddleAreSummedUp(t *testing.T) {
	h, _ := openHub(t)
	store := storeOf(t, h)
	of := head{0, 0, 4000, maybe.Known(int64(0)), maybe.Known(int64(2))}
	steps := func(from, to int64) {
		var list []capture.Step
		for i := from; i < to; i++ {
			list = append(list, aStep(i))
		}
		store(bus.Step, fmt.Sprint("steps", from), appendBatch(nil, batch{of, list}))
	}
	w := follow(t, h, WatchOptions{})
	<-w.summed
	steps(0, 150)
	steps(150, 300)
	for from := int64(0); from < 900; from += 200 {
		store(bus.Roll, fmt.Sprint("roll", from), appendRolled(nil, rolled{of, spanFrom(from, from+200)}))
	}
	steps(900, 1000)
	until(t, "the sums are here", func() bool { return w.Job().First().History.Snapshot().Rolled != nil })
	v := w.Job().First().History.Snapshot()
	if len(v.Losses) != 1 || v.Losses[0].Count != 200 || v.Seen() != 800 || len(v.Steps) != 100 ||
		v.Steps[0].Index != 900 {
		t.Errorf("saw %d steps, lost %v, and has %d one by one", v.Seen(), v.Losses, len(v.Steps))
	}
	var all capture.Span
	for i := range v.Rolled {
		all.Merge(&v.Rolled[i])
	}
	want, more := spanFrom(0, 300), spanFrom(400, 800)
	if want.Merge(&more); all != want {
		t.Errorf("it is summed up as\n%+v, want\n%+v", all, want)
	}
}

// storeOf returns a function that stores messages of node a with a hub, until the test ends.
func storeOf(t *testing.T, h *bus.Hub) func(k bus.Kind, id string, data []byte) {
	t.Helper()
	c, err := h.Dial(bus.Agent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func(k bus.Kind, id string, data []byte) {
		t.Helper()
		if err := c.Store(t.Context(), "a", k, id, data); err != nil {
			t.Fatal(err)
		}
	}
}
