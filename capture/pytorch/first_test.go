package pytorch_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// TestAStepIsShownAtOnce uses an agent that checks once an hour for something to send, in a training that
// stops after its first complete step, and again after the next one: each is sent all the same.
func TestAStepIsShownAtOnce(t *testing.T) {
	t.Parallel()
	const script = `
import os, sys, time, torch
def wait(name):
    path = os.path.join(sys.argv[1], name)
    while not os.path.exists(path):
        time.sleep(0.01)
    return path
weight = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
exec(compile(open(wait("bootstrap")).read(), "gmemtop_agent", "exec"), {"__name__": "gmemtop_agent"})
wait("begin")
def step():
    (weight - 1).square().sum().backward()
    optimizer.step()
step()
step()
wait("more")
step()
wait("end")
`
	folder := t.TempDir()
	open := func(name, text string) error {
		part := filepath.Join(folder, "part")
		if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
			return err
		}
		return os.Rename(part, filepath.Join(folder, name))
	}
	cmd := exec.Command(python(t), "-c", script, folder)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	ctx, cancel := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer cancel()
	s, err := pytorch.Attach(ctx, cmd.Process.Pid, func(_ context.Context, _ int, source string) error {
		const often = "TICK, SLOWEST = 500, 2000"
		if strings.Count(source, often) != 1 {
			t.Errorf("the agent does not check as often as %q says", often)
		}
		return open("bootstrap", strings.Replace(source, often, "TICK, SLOWEST = 3600000, 3600000", 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := capture.NewHistory(capture.Limits{})
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, seen) }()
	if err := open("begin", ""); err != nil {
		t.Fatal(err)
	}
	for i, next := range []string{"more", "end"} {
		if err := seen.Until(ctx, func(v *capture.View) (bool, error) {
			return len(v.Steps) > i, nil
		}); err != nil {
			t.Fatalf("step %d was not sent: %v, %+v", i, err, seen.Snapshot())
		}
		if err := open(next, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
