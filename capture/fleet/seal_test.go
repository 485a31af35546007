//go:build !nobus

package fleet

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A sealed folder holds every step that the hub has of every rank, and opens as the job that it was.
func TestASealedRunOpensAsItWas(t *testing.T) {
	h, path := openHub(t)
	var want [][]capture.Step
	for k, numbers := range [][]int64{{0, 1}, {2, 3}} {
		j, ranks := ranksOf(t, 4, numbers...)
		n := StartNode(j, NodeOptions{Identity: Identity{Node: fmt.Sprint("n", k)}, Join: path})
		for r, p := range ranks {
			for i := range int64(600) {
				if r == 1 && i == 5 {
					continue // a step that never arrived
				}
				s := aStep(i + 1)
				s.RSS, s.Retries = maybe.Known(int64(r)), maybe.Known(int64(0))
				p.Step(s)
			}
			want = append(want, p.History.Snapshot().Steps)
		}
		until(t, "the steps were collected", func() bool { return n.ring.Counts().Sent > 2 })
		j.End(capture.End{Reason: capture.Exited, Code: maybe.Known(int64(0))})
		n.Close()
	}
	c, err := h.Dial(bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := filepath.Join(t.TempDir(), "run")
	s, err := Seal(t.Context(), c, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Files) != 4 || s.Steps != 4*600-2 || s.Lost != 2 || s.Gone != 0 {
		t.Errorf("sealed: %+v", s)
	}
	if !OnlySteps(t.Context(), dir) || OnlySteps(t.Context(), "../../traces/samples") {
		t.Error("a sealed run has only steps, and recordings with events have more")
	}
	j, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	list := j.Processes()
	for r, p := range list {
		v := p.History.Snapshot()
		if !reflect.DeepEqual(v.Steps, want[r]) {
			t.Errorf("the steps of rank %d changed: %d of %d", r, len(v.Steps), len(want[r]))
		}
		if x := v.Info; x.Rank != maybe.Known(int64(r)) || x.Host != fmt.Sprint("n", r/2) ||
			x.PID != 4000+r ||
			x.Device != "cuda:0" || x.WorldSize != maybe.Known(int64(4)) {
			t.Errorf("rank %d: %+v", r, x)
		}
		if lost := len(v.Losses); lost != r%2 || lost > 0 && v.Losses[0].Count != 1 {
			t.Errorf("rank %d lost: %+v", r, v.Losses)
		}
	}
	if _, err := Seal(t.Context(), c, dir); err == nil || len(list) != 4 {
		t.Errorf("%d processes; a folder is sealed twice: %v", len(list), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".gmemtop-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
