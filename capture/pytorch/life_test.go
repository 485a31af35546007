package pytorch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestRanksAreFollowedAndLearnTheSame(t *testing.T) {
	t.Parallel()
	scenario, kinds := "ranks", []string{"ddp", "fsdp"}
	if version(t) < fsdp2 {
		scenario, kinds = "ddp", kinds[:1]
		t.Run("fsdp", func(t *testing.T) { needs(t, fsdp2, "torch.distributed.fsdp.fully_shard on the CPU") })
	}
	without := control(t, scenario)
	w := watch(t, scenario)
	for _, kind := range kinds {
		w.until(kind+"'s gates", func(v capture.View) bool {
			return printed("at "+kind+"-0")(v) && printed("at "+kind+"-1")(v)
		})
		w.until("both ranks to speak", func(v capture.View) bool {
			// a parent that only waits never steps
			return w.count(v, func(v capture.View) bool { return len(v.Steps) > 0 }) == 2
		})
		err := w.job.Order(context.Background(), capture.Order{Do: capture.Describe, Steps: 2})
		if err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		others := slices.Clone(w.ctl)
		w.mu.Unlock()
		for _, s := range others {
			_ = s.Order(context.Background(), capture.Order{Do: capture.Describe, Steps: 2})
		}
		w.until("both ranks to have heard", func(v capture.View) bool {
			return w.count(v, func(v capture.View) bool {
				return len(v.Steps) > 0 && said("asked", "capturing 2")(v)
			}) == 2
		})
		w.open(kind + "-0")
		w.open(kind + "-1")
	}
	v := w.end()
	with, truths := learnt(t, v.Output)
	if !slices.Equal(with, without) {
		t.Errorf("with capture:\n%s\nwithout:\n%s", strings.Join(with, "\n"), strings.Join(without, "\n"))
	}
	ranks := [][]capture.Window{v.Windows}
	w.mu.Lock()
	for _, r := range w.ranks {
		ranks = append(ranks, r.Snapshot().Windows)
	}
	w.mu.Unlock()
	ranks = slices.DeleteFunc(ranks, func(x []capture.Window) bool { return len(x) == 0 })
	if len(ranks) != 2 || len(ranks[0]) != len(kinds) || len(ranks[1]) != len(kinds) {
		t.Fatalf("windows of %d ranks, want 2 ranks with %d each; losses %v, notices %v",
			len(ranks), len(kinds), v.Losses, v.Notices)
	}
	for _, windows := range ranks {
		check(t, "ddp", windows[0].Trace, truths["ddp-0"])
		if len(kinds) > 1 {
			checkSharded(t, windows[1].Trace, truths["fsdp-0"])
		}
	}
	if !v.Info.Rank.IsKnown() || v.Info.WorldSize != maybe.Known(2) {
		t.Errorf("rank %v of %v", v.Info.Rank, v.Info.WorldSize)
	}
}

// count returns for how many processes of a job something holds.
func (w *watching) count(shown capture.View, ok func(capture.View) bool) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ok(shown) {
		n++
	}
	for _, r := range w.ranks {
		if ok(r.Snapshot()) {
			n++
		}
	}
	return n
}

// checkSharded checks a rank that holds its shards, and gathers whole parameters to use them.
func checkSharded(t *testing.T, tr *traces.Trace, want truth) {
	t.Helper()
	alive, _ := held(tr)
	if alive["parameter"] < want.Parameters || alive["gradient"] != want.Gradients ||
		alive["optimizer_state"] != want.OptimizerState {
		t.Errorf("held %v, the rank has %+v", alive, want)
	}
	category := map[uint64]string{}
	for i := range tr.Events.Len() {
		if e := tr.Events.At(i); e.Action == traces.Alloc {
			category[e.Addr] = tr.Text(tr.DetailOf(i).Category)
		}
	}
	// Whole parameters are gathered and split into buffers that are refilled each time, so they are not
	// inputs; the reduced values are the rank's gradients.
	made := map[string]int{}
	for _, a := range tr.Accesses {
		name := tr.Text(tr.Ops[a.Op].Name)
		for _, what := range []string{"gather", "split_with_sizes_copy", "reduce_scatter"} {
			if a.Mode != traces.Read && strings.Contains(name, what) {
				made[what+" "+category[a.Addr]]++
			}
		}
	}
	for what, n := range made {
		switch what {
		case "gather activation": // gloo's thread may hold the last buffer until a backward pass begins
		case "gather temporary", "gather autograd_detail", "split_with_sizes_copy temporary",
			"reduce_scatter gradient":
		default:
			t.Errorf("%d times %s", n, what)
		}
	}
	if made["gather temporary"] == 0 || made["split_with_sizes_copy temporary"] == 0 ||
		made["reduce_scatter gradient"] == 0 {
		t.Errorf("gathering, splitting and reducing gives %v", made)
	}
}

func TestAForkedChildIsASeparateProcess(t *testing.T) {
	t.Parallel()
	without := control(t, "forks")
	w := watch(t, "forks")
	w.until("the parent's gate", printed("at forks"))
	w.until("the child's gate", printed("at forks-child"))
	w.until("both to speak", func(capture.View) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.ranks) == 1
	})
	if err := w.job.Order(context.Background(), capture.Order{Do: capture.Describe, Steps: 2}); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	other, seen := w.ctl[0], w.ranks[0]
	w.mu.Unlock()
	if err := other.Order(context.Background(), capture.Order{Do: capture.Describe, Steps: 2}); err != nil {
		t.Fatal(err)
	}
	w.until("both to have heard", func(v capture.View) bool {
		return said("asked", "capturing 2")(v) && said("asked", "capturing 2")(seen.Snapshot())
	})
	w.open("forks")
	w.open("forks-child")
	v := w.end()
	with, truths := learnt(t, v.Output)
	if !slices.Equal(with, without) {
		t.Errorf("with capture:\n%s\nwithout:\n%s", strings.Join(with, "\n"), strings.Join(without, "\n"))
	}
	windows := append(slices.Clone(v.Windows), seen.Snapshot().Windows...)
	// the child ends by os._exit and may take its window along
	if len(windows) == 0 || len(truths) != 2 || len(v.Steps) == 0 || len(seen.Snapshot().Steps) == 0 {
		t.Fatalf("%d windows, truths of %v, %d and %d steps", len(windows), truths, len(v.Steps),
			len(seen.Snapshot().Steps))
	}
	for _, x := range windows {
		check(t, "forks", x.Trace, truths["forks"])
	}
}

// TestStepsThatCannotBeDescribedAreReportedAndProfiled: steps under torch.compile would run eagerly if they
// were watched op by op, and the program's own dispatch mode around the loop would be left in the wrong
// order. Torch's profiler, which does not interfere, replaces the description once that was reported. Workers
// that multiprocessing spawns carry the agent and stay silent.
func TestStepsThatCannotBeDescribedAreReportedAndProfiled(t *testing.T) {
	t.Parallel()
	// an optimizer that exists but is no longer used is given up after 64 steps of others
	scenarios := []string{"loader", "moded", "compiled@100"}
	if version(t) < compiledSteps {
		scenarios = scenarios[:2]
		t.Run("compiled", func(t *testing.T) {
			needs(t, compiledSteps, "torch.compile of an older one takes the hooks off the steps of all "+
				"optimizers, so that no step is seen")
		})
	}
	without := control(t, scenarios...)
	w := watch(t, strings.Join(scenarios, ","), "WORKERS=spawn")
	w.describe("loader")
	w.describe("moded")
	w.until("the mode to be named", said("ops", "its own dispatch mode"))
	means := []string{capture.HowOps}
	if len(scenarios) > 2 {
		w.describe(scenarios[2])
		means = append(means, capture.HowProfile)
	}
	v := w.end()
	if v.Info.Depth != capture.HowProfile {
		t.Errorf("captured with %q", v.Info.Depth)
	}
	with, _ := learnt(t, v.Output)
	if !slices.Equal(with, without) {
		t.Errorf("with capture:\n%s\nwithout:\n%s", strings.Join(with, "\n"), strings.Join(without, "\n"))
	}
	if len(v.Windows) != len(means) || len(v.Steps) < 8*len(scenarios)-4 {
		t.Fatalf("%d windows and %d steps", len(v.Windows), len(v.Steps))
	}
	for i, win := range v.Windows {
		if win.How != means[i] {
			t.Errorf("window %d is captured by %s, not %s", i, win.How, means[i])
		}
	}
	if last := v.Windows[len(v.Windows)-1]; last.How == capture.HowProfile {
		checkProfile(t, last)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ranks) != 0 {
		t.Errorf("%d workers reported", len(w.ranks))
	}
}

// checkProfile checks a stretch that torch's profiler recorded: most of it is allocated within its two steps,
// whose bounds the agent saw; on an overloaded machine, some more lies before them.
func checkProfile(t *testing.T, w capture.Window) {
	t.Helper()
	allocs, steps, inside := 0, 0, 0
	tr := w.Trace
	for _, m := range tr.Marks {
		if m.Kind != traces.MarkIteration || !strings.HasPrefix(tr.Strings[m.Name], "step ") {
			continue
		}
		steps++
		for i := range tr.Events.Len() {
			if at := tr.Events.Time[i]; tr.Events.Action[i] == traces.Alloc && m.Start <= at && at < m.End {
				inside++
			}
		}
	}
	for i := range tr.Events.Len() {
		if tr.Events.Action[i] == traces.Alloc {
			allocs++
		}
	}
	if steps != 2 || allocs < 20 || inside*2 < allocs || tr.Kind() != traces.Lifetimes {
		t.Errorf("%d steps, %d allocations, %d of them within the steps, of kind %s", steps, allocs,
			inside, tr.Kind())
	}
}

func TestAnExceptionInTheLoopIsTheProgramsOwn(t *testing.T) {
	t.Parallel()
	without := control(t, "raises")
	w := watch(t, "raises")
	w.describe("raises")
	v := w.end()
	with, _ := learnt(t, v.Output)
	if !slices.Equal(with, without) {
		t.Errorf("with capture:\n%s\nwithout:\n%s", strings.Join(with, "\n"), strings.Join(without, "\n"))
	}
	if v.End.Code != maybe.Known(1) || !strings.Contains(v.End.Detail, "ValueError: a bad batch") ||
		!bytes.Contains(v.Output, []byte("ValueError: a bad batch")) {
		t.Errorf("%+v\n%s", v.End, v.Output)
	}
	if bytes.Contains(v.Output, []byte("gmemtop")) {
		t.Errorf("the traceback shows the agent:\n%s", v.Output)
	}
	if len(v.Windows) != 1 || !v.Windows[0].Partial {
		t.Errorf("the step that failed was not kept: %d windows, losses %v", len(v.Windows), v.Losses)
	}
}

func TestCtrlCReachesTheProgram(t *testing.T) {
	t.Parallel()
	w := watch(t, "interrupted")
	w.describe("interrupted")
	w.until("a window", func(v capture.View) bool { return len(v.Windows) > 0 })
	// the interrupt meets the agent at work
	if err := w.job.Order(context.Background(), capture.Order{Do: capture.Every, Steps: 1}); err != nil {
		t.Fatal(err)
	}
	w.until("windows", func(v capture.View) bool { return len(v.Windows) > 2 })
	if err := w.job.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	v := w.end()
	if v.End.Code != maybe.Known(7) || !bytes.Contains(v.Output, []byte("interrupted")) {
		t.Errorf("%+v\n%s", v.End, v.Output)
	}
}

// TestMain lets the test binary be a viewer that can be killed.
func TestMain(m *testing.M) {
	if pid, err := strconv.Atoi(os.Getenv(envAttach)); err == nil {
		fmt.Println(attachUntilKilled(pid))
		os.Exit(1)
	}
	if argv := os.Getenv("TEST_VIEWER"); argv != "" {
		job, err := pytorch.Start(pytorch.Launch{Argv: strings.Split(argv, " "), Detached: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(job.PID(), job.OutputPath())
		s := capture.NewHistory(capture.Limits{})
		go func() {
			_ = s.Until(context.Background(), func(v *capture.View) (bool, error) {
				if len(v.Steps) > 3 {
					_ = job.Order(context.Background(), capture.Order{Do: capture.Every, Steps: 1})
				}
				if len(v.Windows) > 1 {
					fmt.Println("watching")
				}
				return false, nil
			})
		}()
		_ = job.Run(context.Background(), s)
		return
	}
	// sockets, markers and output of all tests: short, since a socket's path has to be
	dir, err := os.MkdirTemp("", "gm")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Setenv("XDG_RUNTIME_DIR", dir)
	os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func TestAKilledViewerHurtsNothingAndTheNextContinues(t *testing.T) {
	t.Parallel()
	p := python(t)
	without := control(t, "mlp@400")
	gate := t.TempDir()
	viewer := exec.Command(os.Args[0])
	viewer.Env = append(os.Environ(), "TEST_VIEWER="+p+" testdata/train.py mlp@400", "GATE="+gate,
		"PACE=0.02", "PYTHONDONTWRITEBYTECODE=1")
	out, err := viewer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := viewer.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(gate, "mlp@400"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var pid int
	var output, word string
	if _, err := fmt.Fscanln(out, &pid, &output); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if _, err := fmt.Fscanln(out, &word); err != nil || word != "watching" {
		t.Fatal(word, err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), torchtest.Patience(t))
	defer cancel()
	_, err = pytorch.Connect(ctx, pid)
	if !errors.Is(err, pytorch.ErrWatched) ||
		!strings.Contains(err.Error(), strconv.Itoa(viewer.Process.Pid)) {
		t.Errorf("a second viewer: %v", err)
	}

	if err := viewer.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = viewer.Wait()
	s, err := pytorch.Connect(ctx, pid)
	if err != nil {
		t.Fatal(err)
	}
	seen := capture.NewHistory(capture.Limits{})
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, seen) }()
	if err := seen.Until(ctx, func(v *capture.View) (bool, error) {
		return len(v.Steps) >= 5, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	v := seen.Snapshot()
	b, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	with, truths := learnt(t, b)
	if !slices.Equal(with, without) {
		t.Errorf("after the viewer was killed:\n%s\nwithout:\n%s\n%s", strings.Join(with, "\n"),
			strings.Join(without, "\n"), b)
	}
	if v.End.Reason != capture.Exited || v.Steps[len(v.Steps)-1].Index != 399 {
		t.Errorf("%+v after step %d", v.End, v.Steps[len(v.Steps)-1].Index)
	}
	// A step reports what the program computes from its own tensors.
	last, own := v.Steps[len(v.Steps)-1], truths["mlp@400"]
	if last.Parameters != maybe.Known(own.Parameters) || last.Gradients != maybe.Known(own.Gradients) ||
		last.OptimizerState != maybe.Known(own.OptimizerState) || own.OptimizerState == 0 {
		t.Errorf("the last step holds %v, %v and %v bytes of parameters, gradients and optimizer state, "+
			"the program %+v", last.Parameters, last.Gradients, last.OptimizerState, own)
	}
}

// TestDetachLeavesNothing brings the agent into a training process: by running its source where the process
// waits for it, and with package inject, which stops the process for a moment.
func TestDetachLeavesNothing(t *testing.T) {
	t.Run("run", func(t *testing.T) {
		private(t)
		h := torchtest.NewHost(t)
		comesAndGoes(t, h, h.Bring)
	})
	t.Run("injected", func(t *testing.T) {
		private(t)
		comesAndGoes(t, torchtest.NewHost(t), injected(t))
	})
	// it sees none of the folders of this process's environment
	t.Run("of another user in a container", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("needs root: it makes a mount namespace and a process of another user")
		}
		private(t)
		h := torchtest.NewHost(t)
		h.In("mount --make-rprivate / && mount -t tmpfs none $XDG_RUNTIME_DIR", "65534")
		ownMounts(h.Command)
		comesAndGoes(t, h, injected(t))
	})
}

// injected brings the agent in with package inject, and skips the test if tracing is forbidden.
func injected(t *testing.T) pytorch.Injector {
	return func(ctx context.Context, pid int, source string) error {
		_, err := inject.Inject(ctx, pid, inject.Bootstrap{Source: source, Name: "gmemtop_agent"})
		if errors.Is(err, inject.ErrNotPermitted) {
			t.Skip("needs the permission to trace a process of one's own: ", err)
		}
		return err
	}
}

// comesAndGoes brings an agent into a host, watches, and detaches.
func comesAndGoes(t *testing.T, h *torchtest.Host, way pytorch.Injector) {
	ctx, cancel := context.WithTimeout(context.Background(), torchtest.Patience(t))
	defer cancel()
	h.Start(ctx)
	s, err := pytorch.Attach(ctx, h.PID(), way)
	if err != nil {
		t.Fatal(err)
	}
	seen := capture.NewHistory(capture.Limits{})
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, seen) }()
	if err := seen.Until(ctx, func(v *capture.View) (bool, error) {
		if len(v.Steps) > 0 && len(v.Windows) < 2 {
			_ = s.Order(ctx, capture.Order{Do: capture.Every, Steps: 10})
		}
		return len(v.Windows) >= 2, nil
	}); err != nil {
		t.Fatalf("%v: %+v\n%s", err, seen.Snapshot(), h.Said())
	}
	begin := time.Now()
	if err := s.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("detached after %s", time.Since(begin))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if v := seen.Snapshot(); v.End.Reason != capture.Detached || len(v.Losses) > 0 {
		t.Errorf("%+v, %v", v.End, v.Losses)
	}
	h.Compare()
	dir, _ := pytorch.Folder()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}
