package pytorch_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// reaching is an Injector that counts, and skips the test if tracing is forbidden.
type reaching struct {
	t     *testing.T
	mu    sync.Mutex
	pids  []int
	first time.Time
}

func (r *reaching) inject(ctx context.Context, pid int, source string) error {
	r.mu.Lock()
	if len(r.pids) == 0 {
		r.first = time.Now()
	}
	r.pids = append(r.pids, pid)
	r.mu.Unlock()
	_, err := inject.Inject(ctx, pid, inject.Bootstrap{Source: source, Name: "gmemtop_agent"})
	return err
}

func (r *reaching) reached() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pids)
}

func traceable(t *testing.T) {
	t.Helper()
	f := inject.Check(os.Getppid())
	for _, o := range f.Obstacles {
		if errors.Is(o, inject.ErrNotPermitted) || errors.Is(o, inject.ErrUnsupported) {
			t.Skip("needs the permission to trace a process of one's own: ", o)
		}
	}
}

// TestProgramsWithoutOurEnvironmentAreAttachedTo runs Pythons that ignore the environment, get another one,
// or run under a wrapper that does either, or whose parent has ended while the command waits. The command
// itself is a child of this process, which also traces it.
func TestProgramsWithoutOurEnvironmentAreAttachedTo(t *testing.T) {
	t.Parallel()
	p := python(t)
	traceable(t)
	without := control(t, "mlp@16")
	// orphan orphans a command, and waits for it to end.
	orphan := func(command string) []string {
		return []string{"sh", "-c", "(" + command +
			" testdata/train.py mlp@16 & echo $! >$GATE/orphan); p=$(cat $GATE/orphan); " +
			"while case $(cat /proc/$p/stat 2>/dev/null) in ''|*') Z '*) false; esac; do sleep 0.05; " +
			"done; exit 0"}
	}
	for name, argv := range map[string][]string{
		"isolated": {p, "-I", "testdata/train.py", "mlp@16"},
		"without environment": {"env", "-i", "PACE=0.05", "GATE=GATE", p,
			"testdata/train.py", "mlp@16"},
		"below a wrapper": {"sh", "-c", "env -u PYTHONPATH " + p + " -S -c 'import site; " +
			"site.main(); import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], " +
			"run_name=\"__main__\")' testdata/train.py mlp@16; exit $?"},
		"an orphan":                     orphan(p + " -I"),
		"an orphan without environment": orphan("env -i PACE=0.05 GATE=GATE " + p),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := t.TempDir()
			for i := range argv {
				argv[i] = strings.ReplaceAll(argv[i], "GATE=GATE", "GATE="+gate)
			}
			r := &reaching{t: t}
			job, err := pytorch.Start(pytorch.Launch{Argv: argv,
				Env: append(os.Environ(), "PACE=0.05", "GATE="+gate), First: 2, Reach: r.inject})
			if err != nil {
				t.Fatal(err)
			}
			seen := capture.NewHistory(capture.Limits{})
			done := make(chan error, 1)
			go func() { done <- job.Run(context.Background(), seen) }()
			// attempts during an import repeat, ever later
			ctx, cancel := context.WithTimeout(t.Context(), torchtest.Patience(t))
			defer cancel()
			err = seen.Until(ctx, func(v *capture.View) (bool, error) {
				return v.Said("reach") != "" || v.Ended, nil
			})
			if v := seen.Snapshot(); v.Said("reach") == "" {
				_ = job.Signal(os.Kill)
				t.Fatalf("no process was reached: %v, ended %v, %v, %+v\n%s", err, v.Ended, r.reached(),
					v.Notices, v.Output)
			}
			if err := os.WriteFile(gate+"/mlp@16", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			v := seen.Snapshot()
			if with, _ := learnt(t, v.Output); !slices.Equal(with, without) {
				t.Errorf("attached to:\n%s\nalone:\n%s\n%s", strings.Join(with, "\n"),
					strings.Join(without, "\n"), v.Output)
			}
			if v.End.Code != maybe.Known(0) || v.End.Reason != capture.Exited ||
				len(v.Steps) == 0 || len(v.Windows) == 0 {
				t.Errorf("%+v, %d steps, %d windows, %+v", v.End, len(v.Steps), len(v.Windows), v.Notices)
			}
			pids := r.reached()
			if slices.ContainsFunc(pids, func(pid int) bool { return pid != v.Info.PID }) {
				t.Errorf("attached to %v, and only %d trains", pids, v.Info.PID)
			}
			said := ""
			for _, n := range v.Notices {
				if n.Key == "reach" {
					said = n.Text
				}
			}
			if !strings.HasPrefix(said, "process "+strconv.Itoa(v.Info.PID)+" (") ||
				!strings.Contains(said, "did not get gmemtop's environment") {
				t.Errorf("it reports %q", said)
			}
		})
	}
}

// TestAReachedProcessIsLeftAlone runs a training that has our environment, with workers of both kinds: we
// attach to none of them. On a busy machine the training may take longer than the half minute that it gets to
// import torch, and is attached to after that; a worker never is.
func TestAReachedProcessIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := &reaching{t: t}
	began := time.Now()
	job, err := pytorch.Start(pytorch.Launch{Argv: []string{python(t), "testdata/train.py", "loader"},
		Env: append(os.Environ(), "WORKERS=spawn"), Reach: r.inject})
	if err != nil {
		t.Fatal(err)
	}
	seen := capture.NewHistory(capture.Limits{})
	if err := job.Run(context.Background(), seen); err != nil {
		t.Fatal(err)
	}
	v := seen.Snapshot()
	pids := r.reached()
	worker := slices.ContainsFunc(pids, func(pid int) bool { return pid != v.Info.PID })
	tooEarly := len(pids) > 0 && r.first.Sub(began) < 30*time.Second
	if worker || tooEarly {
		t.Errorf("attached to %v, first after %v; %d trains", pids, r.first.Sub(began), v.Info.PID)
	}
	if v.End.Code != maybe.Known(0) || len(v.Steps) == 0 {
		t.Errorf("%+v, %d steps", v.End, len(v.Steps))
	}
}

// TestTheReasonForNotAttachingIsShown refuses every attempt, and expects only one.
func TestTheReasonForNotAttachingIsShown(t *testing.T) {
	t.Parallel()
	p := python(t)
	var asked []int
	job, err := pytorch.Start(pytorch.Launch{
		Argv: []string{p, "-I", "-c", "import time, torch; time.sleep(5); raise SystemExit(3)"},
		Reach: func(_ context.Context, pid int, source string) error {
			asked = append(asked, pid)
			if !strings.Contains(source, "\n\nreach(") {
				t.Error("the source starts nothing")
			}
			return errors.New("it is forbidden here: ask for leave")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := capture.NewHistory(capture.Limits{})
	if err := job.Run(context.Background(), seen); err != nil {
		t.Fatal(err)
	}
	v := seen.Snapshot()
	if len(asked) != 1 || asked[0] != job.PID() || v.End.Code != maybe.Known(3) {
		t.Errorf("asked %v out of %d, %+v", asked, job.PID(), v.End)
	}
	said := false
	for _, n := range v.Notices {
		said = said || n.Key == "reach" && strings.Contains(n.Text, "ask for leave") &&
			strings.Contains(n.Text, "-I -c")
	}
	if !said || bytes.Contains(v.Output, []byte("gmemtop")) {
		t.Errorf("%+v\n%s", v.Notices, v.Output)
	}
}

// TestWithoutATorchOptimizerTheScreenSaysWhyThereAreNoRows steps its parameters by hand; a program that
// switches to torch's optimizer in the end gets no notice.
func TestWithoutATorchOptimizerTheScreenSaysWhyThereAreNoRows(t *testing.T) {
	t.Parallel()
	const script = `
import sys, torch
w = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for i in range(230):
    w.grad = None
    (w - 1).square().sum().backward()
    if i < int(sys.argv[1]):
        with torch.no_grad():
            w -= 0.01 * w.grad
    else:
        optimizer.step()
`
	for _, c := range []struct {
		byHand      string
		steps, told int
	}{{"230", 0, 1}, {"210", 20, 0}} {
		job, err := pytorch.Start(pytorch.Launch{Argv: []string{python(t), "-c", script, c.byHand}})
		if err != nil {
			t.Fatal(err)
		}
		seen := capture.NewHistory(capture.Limits{})
		if err := job.Run(context.Background(), seen); err != nil {
			t.Fatal(err)
		}
		v := seen.Snapshot()
		told := 0
		for _, n := range v.Notices {
			if n.Key == "steps" && strings.Contains(n.Text, "no optimizer step") {
				told++
			}
		}
		if v.End.Code != maybe.Known(0) || len(v.Steps) != c.steps || told != c.told {
			t.Errorf("%s by hand: %+v, %d steps, told %d times, %+v\n%s", c.byHand, v.End, len(v.Steps), told,
				v.Notices, v.Output)
		}
	}
}

// TestTheAgentItselfLeavesWorkersAlone injects the agent into a worker of the program, which the look from
// outside skips.
func TestTheAgentItselfLeavesWorkersAlone(t *testing.T) {
	t.Parallel()
	traceable(t)
	const script = `
import multiprocessing, os, sys, time
def work(path):
    import torch
    with open(path + ".part", "w") as f:
        f.write(str(os.getpid()))
    os.rename(path + ".part", path)
    while os.path.exists(path):
        time.sleep(0.01)
    time.sleep(3)
    parameter = torch.nn.Parameter(torch.zeros(1))
    threads = [t.name for t in __import__("threading").enumerate()]
    print("a worker of", torch.multiprocessing.parent_process().name, threads)
if __name__ == "__main__":
    import torch
    c = multiprocessing.get_context("spawn").Process(target=work, args=(sys.argv[1],))
    c.start()
    c.join()
`
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/w.py", []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	tried := 0
	job, err := pytorch.Start(pytorch.Launch{
		Argv: []string{python(t), "-I", dir + "/w.py", dir + "/pid"},
		Reach: func(ctx context.Context, _ int, source string) error {
			var b []byte
			for len(b) == 0 && ctx.Err() == nil {
				time.Sleep(20 * time.Millisecond) // the worker writes a file
				b, _ = os.ReadFile(dir + "/pid")
			}
			pid, err := strconv.Atoi(string(b))
			if err != nil {
				return err
			}
			_, err = inject.Inject(ctx, pid, inject.Bootstrap{Source: source, Name: "gmemtop_agent"})
			if err == nil {
				tried++
			}
			return errors.Join(err, os.Remove(dir+"/pid"), errors.New("once is enough"))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := capture.NewHistory(capture.Limits{})
	if err := job.Run(context.Background(), seen); err != nil {
		t.Fatal(err)
	}
	v := seen.Snapshot()
	if tried != 1 || v.End.Code != maybe.Known(0) || v.Info.Torch != "" ||
		!bytes.Contains(v.Output, []byte("a worker of MainProcess ['MainThread']\n")) {
		t.Errorf("%d attempts, %+v, %+v\n%s", tried, v.End, v.Info, v.Output)
	}
}
