//go:build standin

package estimate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// real estimates a Python program with PyTorch's own allocator, and also returns what it printed.
func real(t *testing.T, o estimate.RealOptions, script string) ([]estimate.Process, string, error) {
	t.Helper()
	standintest.Library(t)
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	path := filepath.Join(o.Dir, "train.py")
	if err := os.WriteFile(path, []byte(script), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if o.Argv == nil {
		o.Argv = []string{standintest.Interpreter(t), path}
	}
	o.Stdout, o.Stderr = out, out
	all, err := estimate.RunReal(t.Context(), o)
	said, _ := os.ReadFile(out.Name())
	return all, string(said), err
}

// one is like real, for a program with one training process.
func one(t *testing.T, o estimate.RealOptions, script string) (estimate.Process, string) {
	t.Helper()
	all, said, err := real(t, o, script)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if len(all) != 1 {
		t.Fatalf("%d processes, expected one", len(all))
	}
	return all[0], said
}

const network = `
import os, torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1000, 3000), nn.GELU(), nn.LayerNorm(3000), nn.Linear(3000, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def step(n=64):
    loss = model(torch.randn(n, 1000, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
`

// The estimate's figures equal those of PyTorch's allocator when the same script runs on the card without us,
// and those of the returned trace.
func TestQuickRealFiguresArePyTorchsOwn(t *testing.T) {
	for _, conf := range []string{"", "expandable_segments:True"} {
		t.Run(conf, func(t *testing.T) {
			o := estimate.RealOptions{Card: "a100", AllocConf: conf, Describe: conf == "", Snapshots: true}
			o.Device.LaunchGap = 5000
			p, _ := one(t, o, network+"while True: step(20_000)\n")
			t.Setenv("PYTORCH_CUDA_ALLOC_CONF", conf)
			alone := standintest.Python(t, standin.Machine{Model: "a100"}, network+`
for _ in range(3): step(20_000)
import json
s = torch.cuda.memory_stats()
print(json.dumps({"device": 0, "allocated": s["allocated_bytes.all.peak"],
                  "requested": s["requested_bytes.all.peak"],
                  "reserved": s["reserved_bytes.all.peak"], "retries": s["num_alloc_retries"]}))
del model, optimizer`)
			var want estimate.Peaks
			if err := json.Unmarshal([]byte(alone), &want); err != nil {
				t.Fatalf("%v: %s", err, alone)
			}
			if got := p.Fullest(); got != want || p.Steps != 3 {
				t.Errorf("estimated %+v in %d steps, PyTorch's own books say %+v", got, p.Steps, want)
			}
			tl, err := timeline.Build(t.Context(), p.Trace, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := tl.Main().Totals
			if got.PeakAllocated != want.Allocated || got.PeakReserved != maybe.Known(want.Reserved) {
				t.Errorf("the trace peaks at %d of %v, the books at %d of %d", got.PeakAllocated,
					got.PeakReserved, want.Allocated, want.Reserved)
			}
			if _, err := torchsnapshot.Read(t.Context(), bytes.NewReader(p.Snapshot), nil); err != nil {
				t.Errorf("the snapshot: %v", err)
			}
			if o.Describe {
				checkDescribed(t, &p)
			}
			if p.PeakStep != 2 {
				t.Errorf("the peak is in step %d; the second is the first with all of the optimizer's state",
					p.PeakStep)
			}
		})
	}
}

// Without the allocator's history the figures are the same, and an out-of-memory still names its line.
func TestPeaksNeedNoHistory(t *testing.T) {
	script := network + "while True: step(20_000)\n"
	whole, _ := one(t, estimate.RealOptions{Card: "a100"}, script)
	peaks, _ := one(t, estimate.RealOptions{Card: "a100", PeaksOnly: true}, script)
	if !slices.Equal(peaks.Books, whole.Books) || peaks.Steps != whole.Steps ||
		peaks.PeakStep != whole.PeakStep {
		t.Errorf("without the history %+v, with it %+v", peaks, whole)
	}
	if peaks.Trace != nil || whole.Trace == nil {
		t.Error("the history is there though it was not wanted, or missing")
	}
	full, _ := one(t, estimate.RealOptions{Card: "t4", PeaksOnly: true}, network+"step(2_000_000)\n")
	if !full.Died || len(full.OutOfMemory) != 1 || full.OutOfMemory[0].Request <= 0 ||
		!strings.Contains(full.OutOfMemory[0].Line, "train.py:") {
		t.Errorf("%+v", full)
	}
}

// A run on any card tells which cards this torch has no kernels for; on one of those, that is the error.
func TestWhichCardsThisTorchServes(t *testing.T) {
	p, _ := one(t, estimate.RealOptions{Card: "h100"}, network+"while True: step()\n")
	if p.Oldest == [2]int{} || p.Oldest[0] > 9 {
		t.Fatalf("the oldest card that torch %s has kernels for is of capability %v", p.Torch, p.Oldest)
	}
	old := [2]int{7, 0}
	_, _, err := real(t, estimate.RealOptions{Card: "v100"}, network+"while True: step()\n")
	none := (*estimate.NoKernels)(nil)
	switch served := slices.Compare(old[:], p.Oldest[:]) >= 0; {
	case served && err != nil:
		t.Error(err)
	case !served && (!errors.As(err, &none) || *none != estimate.NoKernels{Torch: p.Torch, Capability: old,
		Oldest: p.Oldest}):
		t.Errorf("on a V100: %v", err)
	}
}

// checkDescribed compares the described steps with those that PyTorch's figures are about.
func checkDescribed(t *testing.T, p *estimate.Process) {
	t.Helper()
	if p.Described == nil {
		t.Fatalf("nothing was described: %q", p.Undescribed)
	}
	tl, err := timeline.Build(t.Context(), p.Described, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := tl.Main()
	// what an op takes for itself counts as if all of it existed at once
	if got, want := d.Totals.PeakAllocated, p.Fullest().Requested; got < want || got > want+want/10_000 {
		t.Errorf("a described step holds %d bytes at its peak, PyTorch was asked for %d", got, want)
	}
	if n := len(p.Described.Marks); n != 2 {
		t.Fatalf("%d steps are described", n)
	}
	problem, err := plan.FromDevice(t.Context(), d, plan.BuildOptions{Iteration: plan.SteadyIteration})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, op := range problem.Ops {
		if op.Name != "aten::addmm" {
			continue
		}
		if seen++; op.Duration != 5000 {
			t.Errorf("a product takes %d ns on a device that is only known to launch in 5000", op.Duration)
		}
	}
	if seen != 2 {
		t.Errorf("a step has %d products of two layers", seen)
	}
}

// Libraries such as transformers check whether torch is installed before they import it.
func TestQuickRealOfAScriptThatLooksForTorchFirst(t *testing.T) {
	p, said := one(t, estimate.RealOptions{}, "import importlib.util\nimportlib.util.find_spec('torch')\n"+
		network+"for _ in range(9): step()\n")
	if p.Steps != 3 {
		t.Errorf("%d steps, expected 3\n%s", p.Steps, said)
	}
}

// What a script reads from the device is answered, and counted under the script's own line.
func TestQuickRealNamesTheLinesThatAskedForValues(t *testing.T) {
	p, said := one(t, estimate.RealOptions{}, network+`
for _ in range(9):
    loss = step()
    if loss.item() > 0.5 and not torch.isnan(loss):
        print("as answered")
    x = model(torch.zeros(1, 1000, device="cuda")).detach()[0, :10].contiguous()
    print(x[x > 3].shape, torch.nonzero(x).shape, x.unique().shape)
`)
	if !strings.Contains(said, "as answered") ||
		!strings.Contains(said, "torch.Size([10]) torch.Size([10, 1]) torch.Size([10])") {
		t.Errorf("the script printed %s", said)
	}
	doubts := map[string]estimate.Doubt{"item": estimate.NoDoubt, "unique": estimate.TooHigh}
	for _, a := range p.Answers {
		if want, ok := doubts[a.Op]; ok && (a.Doubt != want || a.Sized != (a.Op != "item")) {
			t.Errorf("the answer to %s: %+v", a.Op, a)
		}
	}
	lines := strings.Split(network, "\n")
	for op, want := range map[string]string{"item": "if loss.item()", "nonzero": "print(x[x",
		"unique": "print(x[x"} {
		i := slices.IndexFunc(p.Answers, func(a estimate.RealAnswer) bool { return a.Op == op })
		if i < 0 {
			t.Errorf("no %s among the answers: %v", op, p.Answers)
			continue
		}
		number := strings.TrimPrefix(filepath.Base(p.Answers[i].Line), "train.py:")
		at := map[string]string{"if loss.item()": "4", "print(x[x": "7"}[want]
		if n := len(lines) - 1; number != sum(n, at) {
			t.Errorf("%s was asked for in line %s, which is %q by %s", op, number, want, sum(n, at))
		}
	}
}

func sum(n int, text string) string {
	b, _ := json.Marshal(n + int(text[0]-'0'))
	return string(b)
}

// An out-of-memory error that ends the script is the answer; one that the script catches is not.
func TestRealOutOfMemory(t *testing.T) {
	big := network + "\nfor _ in range(9): step(2_000_000)\n"
	p, said := one(t, estimate.RealOptions{Card: "t4"}, big)
	if !p.Died || p.Steps != 0 || len(p.OutOfMemory) == 0 || p.OutOfMemory[0].Step != 1 ||
		!strings.HasSuffix(p.OutOfMemory[0].Line, "train.py:7") {
		t.Errorf("died %v in %d steps: %+v\n%s", p.Died, p.Steps, p.OutOfMemory, said)
	}
	p, said = one(t, estimate.RealOptions{Card: "t4"}, network+`
try: step(2_000_000)
except torch.OutOfMemoryError: optimizer.zero_grad()
for _ in range(9): step()
`)
	if p.Died || p.Steps != 3 || len(p.OutOfMemory) != 1 {
		t.Errorf("died %v in %d steps: %+v\n%s", p.Died, p.Steps, p.OutOfMemory, said)
	}
	p, said = one(t, estimate.RealOptions{Card: "t4", Memory: 200 << 20, Outside: 100 << 20},
		network+"while True: step()\n")
	if !p.Died {
		t.Errorf("52 MiB of parameters fit 100 MiB, with gradients and AdamW's state: %+v\n%s", p, said)
	}
}

// If a script updates its parameters itself, each backward pass ends a step.
func TestRealCountsStepsWithoutAnOptimizer(t *testing.T) {
	p, said := one(t, estimate.RealOptions{}, `
import torch
w = torch.zeros(1000, 1000, device="cuda", requires_grad=True)
for i in range(9):
    print("began", i, flush=True)
    torch.mm(w, w).sum().backward()
    w.data.add_(w.grad, alpha=-0.1); w.grad = None
raise SystemExit("the script came to its end")
`)
	if p.Steps != 3 || !strings.Contains(said, "began 2") || strings.Contains(said, "began 3") {
		t.Errorf("%d steps:\n%s", p.Steps, said)
	}
}

// A command that is not Python and a script that fails by itself give different errors.
func TestRealErrors(t *testing.T) {
	_, _, err := real(t, estimate.RealOptions{}, "import torch\nraise SystemExit(7)\n")
	var failed *estimate.Failed
	if !errors.As(err, &failed) || failed.Code != 7 {
		t.Errorf("a script that ends with 7: %v", err)
	}
	_, _, err = real(t, estimate.RealOptions{Card: "t4"}, network+`
try: step(2_000_000)
except torch.OutOfMemoryError: optimizer.zero_grad()
raise ValueError("another fault")
`)
	if !errors.As(err, &failed) {
		t.Errorf("a script that survives an out-of-memory and fails by itself: %v", err)
	}
	for name, script := range map[string]string{"no torch": "pass\n", "nothing allocated": "import torch\n",
		"compiles": network + "torch.compile(model)\n"} {
		if _, _, err := real(t, estimate.RealOptions{}, script); !errors.Is(err, estimate.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	noPython := estimate.RealOptions{Options: estimate.Options{Argv: []string{"true"}}}
	if _, _, err := real(t, noPython, ""); !errors.Is(err, estimate.ErrUnsupported) {
		t.Errorf("no Python: %v", err)
	}
}
