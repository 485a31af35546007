package pytorch_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// TestAWindowBeginsAtItsStep orders a window that begins at a later step, and one whose step is over. The
// training takes a step for each byte that it reads, so which step an order meets is no accident.
func TestAWindowBeginsAtItsStep(t *testing.T) {
	t.Parallel()
	const script = `
import os, sys, time, torch
weight = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
path = os.path.join(sys.argv[1], "bootstrap")
while not os.path.exists(path):
    time.sleep(0.01)
exec(compile(open(path).read(), "gmemtop_agent", "exec"), {"__name__": "gmemtop_agent"})
while sys.stdin.buffer.read(1):
    (weight - 1).square().sum().backward()
    optimizer.step()
`
	folder := t.TempDir()
	cmd := exec.Command(python(t), "-c", script, folder)
	cmd.Stderr = os.Stderr
	pace, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	ctx, cancel := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer cancel()
	s, err := pytorch.Attach(ctx, cmd.Process.Pid, func(_ context.Context, _ int, source string) error {
		part := filepath.Join(folder, "part")
		if err := os.WriteFile(part, []byte(source), 0o600); err != nil {
			return err
		}
		return os.Rename(part, filepath.Join(folder, "bootstrap"))
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := capture.NewHistory(capture.Limits{})
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, seen) }()
	// stepTo lets the training go on until step last is over and was heard of. The first step began before
	// the agent came and does not count.
	next := int64(-1)
	stepTo := func(last int64) {
		t.Helper()
		for ; next <= last; next++ {
			if _, err := io.WriteString(pace, "."); err != nil {
				t.Fatal(err)
			}
		}
		if err := seen.Until(ctx, func(v *capture.View) (bool, error) {
			n := len(v.Steps)
			return n > 0 && v.Steps[n-1].Index >= last, nil
		}); err != nil {
			t.Fatalf("step %d was not seen: %v", last, err)
		}
	}
	order := func(o capture.Order) capture.OrderID {
		t.Helper()
		o.ID, o.Do = capture.NewOrderID(), capture.Describe
		if err := s.Order(ctx, o); err != nil {
			t.Fatal(err)
		}
		if err := seen.Until(ctx, func(v *capture.View) (bool, error) {
			_, ok := v.Answered(o.ID)
			return ok, nil
		}); err != nil {
			t.Fatalf("the order was not accepted: %v", err)
		}
		return o.ID
	}
	stepTo(3)
	later := order(capture.Order{Steps: 2, From: 9})
	late := order(capture.Order{Steps: 1, From: 2})
	// The order comes while a step waits for its byte, which began before: that one is not captured whole.
	stepTo(12)
	got := map[capture.OrderID]string{}
	if err := seen.Until(ctx, func(v *capture.View) (bool, error) {
		for _, w := range v.Windows {
			for _, id := range w.Orders {
				got[id] = fmt.Sprintf("%d to %d", w.First, w.Last)
			}
		}
		return len(got) == 2, nil
	}); err != nil {
		t.Fatalf("windows: %v: %v", got, err)
	}
	if got[later] != "9 to 10" || got[late] != "5 to 5" {
		t.Errorf("the window that was ordered from step 9 on has steps %s, the late one %s", got[later],
			got[late])
	}
	if err := pace.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
