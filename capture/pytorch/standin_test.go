//go:build standin

package pytorch_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	description "github.com/gmemtop/gmemtop/traces/described"
)

// onStandin runs a script of testdata on a stand-in GPU with the agent's source, or with other files in its
// place, and returns its output. It must leave nothing behind.
func onStandin(t *testing.T, m standin.Machine, script string, agents ...string) string {
	t.Helper()
	lib := standintest.Library(t)
	if len(agents) == 0 {
		agents = []string{pytorch.Agent()}
	}
	dir := t.TempDir()
	args := []string{filepath.Join("testdata", script)}
	for k, source := range agents {
		path := filepath.Join(dir, strconv.Itoa(k)+".py")
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	r := standintest.Run(t, lib, m, standintest.Interpreter(t), args...)
	r.Check(t)
	return r.Stdout
}

// TestQuickADescribedStepHoldsWhatTheAllocatorHolds: libraries' workspaces and what the previous step left
// are in it, so the two peaks are equal to the byte.
func TestQuickADescribedStepHoldsWhatTheAllocatorHolds(t *testing.T) {
	t.Log(onStandin(t, standin.Machine{}, "within.py"))
}

// TestQuickOpsOfADescribedStepDoNotOverlap: a copy to the GPU that waits for it has the copy's time alone.
func TestQuickOpsOfADescribedStepDoNotOverlap(t *testing.T) {
	t.Log(onStandin(t, standin.Machine{Clock: standin.Program}, "overlap.py"))
}

// TestQuickAttentionsSeedsAreNotCompared: attention without dropout leaves its seed and offset unwritten, so
// recomputed ones hold other bytes, and nothing depends on them.
func TestQuickAttentionsSeedsAreNotCompared(t *testing.T) {
	out := onStandin(t, standin.Machine{Compute: true}, "unwritten.py")
	if strings.Count(out, " runs again\n") != 3 || strings.Count(out, "\n") != 3 {
		t.Error(out)
	}
}

// TestQuickOptimizerStateWaitsOnTheHost: it leaves a GPU, and kernels that take lists of tensors get it back.
func TestQuickOptimizerStateWaitsOnTheHost(t *testing.T) {
	if out := onStandin(t, standin.Machine{Compute: true}, "parked.py"); out != "on cuda:0\n" {
		t.Error(out)
	}
}

// TestQuickTheLastWindowOfAnOutOfMemoryArrives: a dying process waits until the history of its failing step
// is assembled and read.
func TestQuickTheLastWindowOfAnOutOfMemoryArrives(t *testing.T) {
	t.Setenv("LASTWINDOW", "slow")
	out := onStandin(t, standin.Machine{}, "lastwindow.py")
	if out != "exit code 1, 1 requests failed, 0 steps between were not captured, OutOfMemoryError\n" {
		t.Error(out)
	}
}

// TestAHistoryOfEveryStepHoldsTheRequestThatFailed: also in the step after a captured one, and however far
// behind the agent is; and no history stays on that nobody reads.
func TestAHistoryOfEveryStepHoldsTheRequestThatFailed(t *testing.T) {
	for what, want := range map[string]string{
		"every":  "exit code 1, 1 requests failed, 0 steps between were not captured, OutOfMemoryError\n",
		"behind": "exit code 1, 1 requests failed, 0 steps between were not captured, OutOfMemoryError\n",
		"leave": "exit code 0, 0 requests failed, 0 steps between were not captured, detached\nhistory is " +
			"off and another window can be opened\n",
		"lost": "exit code 0, 0 requests failed, 0 steps between were not captured, None\nhistory is off " +
			"and another window can be opened\n",
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("LASTWINDOW", what)
			if out := onStandin(t, standin.Machine{}, "lastwindow.py"); out != want {
				t.Error(out)
			}
		})
	}
}

// TestAnOutOfMemoryOutsideWindowsArrives: before the first step, and in a stretch longer than steps, without
// an order for a history. A program that ends well leaves none, and keeps its own.
func TestAnOutOfMemoryOutsideWindowsArrives(t *testing.T) {
	const all = ", 0 steps between were not captured, "
	died := "exit code 1, 1 requests failed" + all + "OutOfMemoryError\n1 windows\n"
	well := "exit code 0, 0 requests failed" + all + "exit\n0 windows\nhistory is on\n"
	for what, want := range map[string]string{"first": died, "late": died, "fine": well, "own": well} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("LASTWINDOW", what)
			if out := onStandin(t, standin.Machine{}, "lastwindow.py"); out != want {
				t.Error(out)
			}
		})
	}
}

// TestADescriptionHasTheAllocatorsLimits: torch's release, the device's bytes and the share that the program
// allows itself, as in a history.
func TestADescriptionHasTheAllocatorsLimits(t *testing.T) {
	t.Setenv("LASTWINDOW", "ops")
	line, _, _ := strings.Cut(onStandin(t, standin.Machine{Memory: "4GiB"}, "lastwindow.py"), "\n")
	text := `{"gmemtop":"described","version":1,"torch":"2.15","steps":[],"rules":` + line + "}\n"
	tr, err := description.Read(t.Context(), strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	const total = 4 << 30
	var torch [2]int
	var devices map[string]map[string]float64
	if err := errors.Join(json.Unmarshal([]byte(tr.Setting("gmemtop_torch")), &torch),
		json.Unmarshal([]byte(tr.Setting("gmemtop_devices")), &devices)); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if torch[0] != 2 || len(devices) != 1 || devices["0"]["total_bytes"] != total ||
		devices["0"]["memory_fraction"] != float64(1<<28)/total {
		t.Error(line)
	}
}

// TestQuickADescriptionNamesTheAllocator: PyTorch's own, the driver's, or one that the program installed, for
// which PyTorch knows no share of the device.
func TestQuickADescriptionNamesTheAllocator(t *testing.T) {
	for backend, conf := range map[string]string{
		"native": "", "cudaMallocAsync": "backend:cudaMallocAsync", "pluggable": "",
	} {
		t.Run(backend, func(t *testing.T) {
			t.Setenv("PYTORCH_CUDA_ALLOC_CONF", conf)
			got := onStandin(t, standin.Machine{Memory: "4GiB"}, "allocators.py", pytorch.Agent(), backend)
			var rules struct {
				Allocator string `json:"gmemtop_allocator"`
				Devices   map[string]struct {
					Total int64 `json:"total_bytes"`
				} `json:"gmemtop_devices"`
			}
			if err := json.Unmarshal([]byte(got), &rules); err != nil {
				t.Fatalf("%v: %s", err, got)
			}
			if rules.Allocator != backend || rules.Devices["0"].Total != 4<<30 {
				t.Error(got)
			}
		})
	}
}

// orders are when a device may do its work: at once, as late as possible, or at random.
var orders = []string{standin.Once, standin.Late, "2", "3"}

// TestPlansLearnTheSameInEveryOrder compares training under plans with training without, to the bit: swapping
// and dropping, with graphs that outlive their plan, partly traversed graphs, and modules on two streams.
func TestPlansLearnTheSameInEveryOrder(t *testing.T) {
	for _, order := range orders {
		t.Run(order, func(t *testing.T) {
			out := onStandin(t, standin.Machine{Compute: true, Order: order}, "waits.py")
			if out != "0.py the same\n" {
				t.Error(out)
			}
		})
	}
}

// wait is a line of the agent that orders work of streams.
var wait = regexp.MustCompile(
	`^(\s+)(?:\S+\.)?(wait_stream|wait_event|record_stream|synchronize|wait)\(.*\)(?:\s+#.*)?$`)

// unordered are such lines that no result depends on, and why.
var unordered = map[string]string{
	"self.torch.cuda.current_stream(device).synchronize()": "what is timed behind it is the copy alone",
	"torch.cuda.synchronize(device)": "of pinned memory, which torch gives out again " +
		"later or sooner",
	"self.torch.cuda.synchronize(self.device)": "memory has run out, and what is freed has " +
		"to be free at once",
	"self.torch.cuda.synchronize()": "of the pool: waits where no stream is in use, before memory goes " +
		"back to the driver",
}

// TestEachWaitBetweenStreamsIsNeeded removes each wait and each record_stream of the agent in turn: in one of
// the orders the results change.
func TestEachWaitBetweenStreamsIsNeeded(t *testing.T) {
	lines := strings.Split(pytorch.Agent(), "\n")
	agents, names := []string{pytorch.Agent()}, []string{"all of them there"}
	for k, line := range lines {
		found := wait.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		text, _, _ := strings.Cut(strings.TrimSpace(line), "  #")
		if _, ok := unordered[text]; ok {
			continue
		}
		lines[k] = found[1] + "pass"
		agents, names = append(agents, strings.Join(lines, "\n")), append(names, text)
		lines[k] = line
	}
	if len(agents) < 6 {
		t.Fatalf("only %d waits were found: %q", len(agents)-1, names)
	}
	shown := make([][]string, len(agents))
	for _, order := range orders[1:] {
		for line := range strings.Lines(onStandin(t, standin.Machine{Compute: true, Order: order}, "waits.py",
			agents...)) {
			file, what, _ := strings.Cut(strings.TrimSpace(line), " ")
			k, err := strconv.Atoi(strings.TrimSuffix(file, ".py"))
			if err != nil || k >= len(agents) {
				t.Fatalf("%q", line)
			}
			if what != "the same" {
				shown[k] = append(shown[k], order+": "+what)
			}
		}
	}
	if len(shown[0]) > 0 {
		t.Errorf("with all waits: %s", shown[0])
	}
	for k, name := range names[1:] {
		if len(shown[k+1]) == 0 {
			t.Errorf("without %s all orders learn the same: it is not needed, or no scenario shows it", name)
		} else {
			t.Logf("without %s: %s", name, strings.Join(shown[k+1], " | "))
		}
	}
}

// TestAttachingToAGPULeavesNothing attaches gmemtop to a training on a GPU that does its work at once, and on
// one that does it as late as possible, and detaches. The training itself compares what is left in it,
// including device and pinned memory, with what was there before; and losses, parameters, gradients and
// optimizer state, to the bit, with the same steps alone.
func TestAttachingToAGPULeavesNothing(t *testing.T) {
	standintest.Computing(t)
	lib := standintest.Library(t)
	for _, order := range []string{standin.Once, standin.Late} {
		t.Run(order, func(t *testing.T) {
			private(t)
			h, dir := torchtest.NewHost(t), t.TempDir()
			m := standin.Machine{Compute: true, Order: order, Board: filepath.Join(dir, "board"), Report: dir}
			h.Env = append(lib.Environ(m), "DEVICE=cuda", "OMP_NUM_THREADS=1")
			comesAndGoes(t, h, injected(t))
			reports, err := standin.ReadReports(dir)
			if err != nil || len(reports) != 1 {
				t.Errorf("%d processes reported: %v", len(reports), err)
			}
			standintest.Result{Reports: reports}.Check(t)
		})
	}
}

// TestAPlanEndsWhereACUDAGraphIsCaptured captures a forward pass, a backward pass, the rest of one, an
// optimizer's step and a whole step under a plan: the plan ends, none of its copies is captured, and the
// results are the same to the bit.
func TestAPlanEndsWhereACUDAGraphIsCaptured(t *testing.T) {
	standintest.Computing(t)
	const why = ": the same: graph captured\n"
	var want strings.Builder
	for _, what := range []string{"forward", "backward", "rest", "optimizer", "whole"} {
		want.WriteString(what + why)
	}
	out := onStandin(t, standin.Machine{Compute: true, Order: standin.Late}, "captures.py")
	if out != want.String() {
		t.Error(out)
	}
}

// TestQuickMemoryThatRunsOutUnderAPlanEndsNoTraining: dropped tensors that cannot be recomputed, and swapped
// ones that cannot return, come back after other saved tensors have moved to the host.
func TestQuickMemoryThatRunsOutUnderAPlanEndsNoTraining(t *testing.T) {
	out := onStandin(t, standin.Machine{Compute: true}, "rescued.py")
	if out != "drop rerun_retried OutOfMemoryError some\nswap fetch_retried OutOfMemoryError some\n" {
		t.Error(out)
	}
}
