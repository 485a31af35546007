//go:build !nobus

package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// opening opens every trace as alexnet.
func opening(string, planner.Task) func(context.Context, string) (*plan.Problem, error, error) {
	return alexnet
}

// serve opens a queue for a sweep and returns how workers join it.
func serve(t *testing.T, s *Sweep) (*bus.Work, bus.Join) {
	t.Helper()
	keys, err := bus.NewKeys(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	h, err := bus.OpenHub(bus.HubOptions{Run: "sweep", Listen: "127.0.0.1:0", Keys: keys, Work: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	said, err := s.about()
	if err != nil {
		t.Fatal(err)
	}
	w, err := h.Work(said)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w, h.Join(h.Address())
}

// plan plans units until ctx is done, or most of them.
func plans(ctx context.Context, t *testing.T, join bus.Join, paths []string, most int) {
	c, err := bus.Dial(ctx, bus.Access{Join: join, Role: bus.Worker, Name: "w"})
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	said, err := c.AboutWork(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	w, err := newMaker(ctx, said, paths, opening)
	if err != nil {
		t.Error(err)
		return
	}
	for n := 0; n < most && ctx.Err() == nil; n++ {
		if err := c.Take(ctx, w.do); err != nil && ctx.Err() == nil && !errors.Is(err, bus.ErrNoWork) {
			t.Error(err)
		}
	}
}

// Workers come and go, and the sweep itself is interrupted and goes on with another hub. The table has the
// bytes of one machine's.
func TestASweepByWorkersHasTheBytesOfOneMachine(t *testing.T) {
	o := asked(tracesOf(t, "a", "damage", "b"))
	dir := t.TempDir()
	want, _ := ran(t, o, filepath.Join(dir, "whole"), 0)
	others := tracesOf(t, "b", "damage", "a") // the same content, at other places
	journal := filepath.Join(dir, "served")
	for _, stop := range []int{7, 0} {
		s, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(journal, s)
		if err != nil {
			t.Fatal(err)
		}
		q, join := serve(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { plans(ctx, t, join, others, 3) }) // and goes
		work.Go(func() { plans(ctx, t, join, others, 1<<30) })
		made := 0
		err = s.handOut(ctx, q, j, func(p Progress) {
			if made++; made == stop+1 && stop > 0 {
				cancel()
			}
		})
		cancel()
		work.Wait()
		if stop > 0 {
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted: %v", err)
			}
		} else if err != nil {
			t.Fatal(err)
		} else {
			got, err := s.Finished(j)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(table(t, want), table(t, got)) {
				t.Error("the table of workers is another one")
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A worker plans nothing but what it is asked by the key, and knows a trace by its content alone.
func TestAWorkerRefusesWhatItWasNotAsked(t *testing.T) {
	paths := tracesOf(t, "a")
	s, err := New(t.Context(), asked(paths))
	if err != nil {
		t.Fatal(err)
	}
	said, err := s.about()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(said), filepath.Dir(paths[0])) {
		t.Errorf("workers are told a path: %s", said)
	}
	w, err := newMaker(t.Context(), said, paths, opening)
	if err != nil {
		t.Fatal(err)
	}
	u := s.units[0]
	ask := func(change func(o *order)) error {
		o := order{named{"t0.gmt", s.traces[0].hash}, 8, u.batch, u.manager, u.budget}
		change(&o)
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.do(t.Context(), u.key, data)
		return err
	}
	if err := ask(func(*order) {}); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(o *order){
		"another manager": func(o *order) { o.Manager = "autoswap" },
		"another budget":  func(o *order) { o.Budget = "99%" },
		"another trace":   func(o *order) { o.Hash = strings.Repeat("0", 64) },
		"a path":          func(o *order) { o.Hash = "/etc/passwd" },
	} {
		if err := ask(change); !errors.Is(err, errOther) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(a *about){
		"another program":    func(a *about) { a.Program = "another" },
		"a trace it lacks":   func(a *about) { a.Traces[0].Hash = "0" },
		"a file of hardware": func(a *about) { a.Task.Hardware = "/etc/gpu.json" },
		"a later version":    func(a *about) { a.Version++ },
	} {
		var a about
		if err := json.Unmarshal(said, &a); err != nil {
			t.Fatal(err)
		}
		change(&a)
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newMaker(t.Context(), text, paths, opening); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	file := asked(paths)
	file.Task.Hardware = "gpu.json"
	if _, err := (&Sweep{options: file}).about(); err == nil {
		t.Error("a sweep with a file of hardware is served")
	}
}

// tired is a queue whose units nobody can do.
type tired struct{ left int }

func (q *tired) Offer(context.Context, string, []byte) error { q.left++; return nil }

func (q *tired) Results(ctx context.Context, _ func(string, []byte)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (q *tired) Left(context.Context) (int, int, error) {
	n := q.left
	q.left = 0
	return n, 0, nil
}

func TestUnitsThatEndTheirWorkersAreGivenUp(t *testing.T) {
	s, err := New(t.Context(), asked(tracesOf(t, "a")))
	if err != nil {
		t.Fatal(err)
	}
	j, err := OpenJournal(filepath.Join(t.TempDir(), "j"), s)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	err = s.handOut(t.Context(), &tired{}, j, func(Progress) {})
	if err == nil || !strings.Contains(err.Error(), "40 plans were given up") {
		t.Errorf("%v", err)
	}
}
