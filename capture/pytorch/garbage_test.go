package pytorch_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// TestAgentsThatLeaveDoNotPileUp attaches to a training without a garbage collector, captures a window and
// detaches, again and again. The agent's classes and functions stay after the first time, and serve again.
// Nothing that an agent makes stays.
func TestAgentsThatLeaveDoNotPileUp(t *testing.T) {
	t.Parallel()
	const script = `
import gc, sys, threading, time, types, torch
gc.disable()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def ours(o):
    kind = o if isinstance(o, (type, types.FunctionType)) else type(o)
    return kind.__module__ == "gmemtop_agent"
def begin():
    for path in sys.stdin:
        name = {"__name__": "gmemtop_agent"}
        exec(compile(open(path.strip()).read(), "gmemtop_agent", "exec"), name)
        del name
        while not any(t.name == "gmemtop" for t in threading.enumerate()):
            time.sleep(0.01)
        while any(t.name.startswith("gmemtop") for t in threading.enumerate()):
            time.sleep(0.01)
        objects = [o for o in gc.get_objects() if ours(o)]
        made = [type(o).__name__ for o in objects if not isinstance(o, (type, types.FunctionType))]
        print(len(objects), *sorted(set(made)), flush=True)
        del objects
threading.Thread(target=begin, daemon=True).start()
while True:
    model(torch.ones(4)).square().sum().backward()
    optimizer.step()
    time.sleep(0.01)
`
	ctx, cancel := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, python(t), "-c", script)
	paths, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	counts, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	source := filepath.Join(t.TempDir(), "source")
	bring := func(_ context.Context, _ int, text string) error {
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			return err
		}
		_, err := io.WriteString(paths, source+"\n")
		return err
	}
	first, lines := "", bufio.NewScanner(counts)
	for round := range 3 {
		s, err := pytorch.Attach(ctx, cmd.Process.Pid, bring)
		if err != nil {
			t.Fatal(err)
		}
		seen := capture.NewHistory(capture.Limits{})
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, seen) }()
		if err := s.Order(ctx, capture.Order{ID: 1, Do: capture.Describe, Steps: 2}); err != nil {
			t.Fatal(err)
		}
		whole := func(v *capture.View) (bool, error) { return len(v.Windows) > 0, nil }
		if err := seen.Until(ctx, whole); err != nil {
			t.Fatalf("no window: %v", err)
		}
		if err := s.Detach(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatalf("the training ended: %v", lines.Err())
		}
		now := lines.Text()
		if first == "" {
			first = now
		}
		// Says are constants of the modules: sentences that are often said. Names is one, too, and empty.
		if fields := strings.Fields(now); now != first || fmt.Sprint(fields[1:]) != "[Names Says]" {
			t.Errorf("round %d leaves %q of the agent's objects, not %q; only Names and Says may be left",
				round, now, first)
		}
	}
}
