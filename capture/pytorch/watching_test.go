package pytorch_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// watching is a training under the agent, and what was seen of it.
type watching struct {
	*capture.History
	t    *testing.T
	job  *pytorch.Job
	gate string
	done chan error
	stop context.CancelFunc

	mu    sync.Mutex
	ranks []*capture.History
	ctl   []*pytorch.Session
}

// watch starts the scenarios under the agent.
func watch(t *testing.T, scenarios string, env ...string) *watching {
	t.Helper()
	w := &watching{History: capture.NewHistory(capture.Limits{}), t: t, gate: t.TempDir(),
		done: make(chan error, 1)}
	var err error
	w.job, err = pytorch.Start(pytorch.Launch{
		Argv: []string{python(t), "testdata/train.py", scenarios},
		Env:  append(os.Environ(), append(env, "GATE="+w.gate, "PYTHONDONTWRITEBYTECODE=1")...),
		Each: func(s *pytorch.Session) capture.Sink {
			w.mu.Lock()
			defer w.mu.Unlock()
			x := capture.NewHistory(capture.Limits{})
			w.ranks, w.ctl = append(w.ranks, x), append(w.ctl, s)
			return x
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.job.Signal(os.Kill)
		_, _ = w.job.Wait(context.Background())
	})
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	t.Cleanup(w.stop)
	go func() { w.done <- w.job.Run(ctx, w) }()
	return w
}

// until waits until ok holds of what was seen.
func (w *watching) until(what string, ok func(v capture.View) bool) capture.View {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), torchtest.Patience(w.t))
	defer cancel()
	for {
		v := w.Snapshot()
		if ok(v) {
			return v
		}
		if v.Ended && !ok(w.Snapshot()) {
			w.t.Fatalf("it ended before %s: %+v; output:\n%s\nnotices: %v losses: %v", what, v.End, v.Output,
				v.Notices, v.Losses)
		}
		wait, next := context.WithTimeout(ctx, 50*time.Millisecond) // other ranks have sessions of their own
		_, _ = w.Wait(wait, v.Version)
		if next(); ctx.Err() != nil {
			w.t.Fatalf("%s never came; output:\n%s\nnotices: %v losses: %v",
				what, v.Output, v.Notices, v.Losses)
		}
	}
}

// heard waits until the agent has heard an order.
func heard(ctx context.Context, s *capture.History, id capture.OrderID) error {
	return s.Until(ctx, func(v *capture.View) (bool, error) {
		if _, ok := v.Answered(id); ok {
			return true, nil
		}
		if v.Ended {
			return false, fmt.Errorf("it ended before it had heard: %+v", v.End)
		}
		return false, nil
	})
}

func said(key, text string) func(capture.View) bool {
	return func(v capture.View) bool {
		return slices.ContainsFunc(v.Notices, func(n capture.Notice) bool {
			return n.Key == key && strings.Contains(n.Text, text)
		})
	}
}

func printed(text string) func(capture.View) bool {
	return func(v capture.View) bool { return bytes.Contains(v.Output, []byte(text+"\n")) }
}

func (w *watching) open(gate string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.gate, gate), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// describe orders two steps of a scenario that waits at its gate, and opens the gate.
func (w *watching) describe(scenario string) {
	w.t.Helper()
	w.until(scenario+"'s gate", printed("at "+scenario))
	o := capture.Order{ID: capture.NewOrderID(), Do: capture.Describe, Steps: 2}
	if err := w.job.Order(context.Background(), o); err != nil {
		v := w.Snapshot()
		w.t.Fatalf("%v; of process %d; notices: %v losses: %v; output:\n%s", err, w.job.PID(), v.Notices,
			v.Losses, v.Output)
	}
	w.until("the agent to have heard", func(v capture.View) bool {
		_, ok := v.Answered(o.ID)
		return ok
	})
	w.open(scenario)
}

// end waits for the end and returns all that was seen.
func (w *watching) end() capture.View {
	w.t.Helper()
	select {
	case err := <-w.done:
		if err != nil {
			w.t.Fatal(err)
		}
	case <-time.After(torchtest.Patience(w.t)):
		w.t.Fatal("the training does not end")
	}
	return w.Snapshot()
}
