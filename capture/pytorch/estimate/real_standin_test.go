//go:build standin

package estimate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
    x = torch.randn(10, device="cuda")
    print(x[x > 3].shape, torch.nonzero(x).shape, x.unique().shape)
`)
	if !strings.Contains(said, "as answered") ||
		!strings.Contains(said, "torch.Size([10]) torch.Size([10, 1]) torch.Size([1])") {
		t.Errorf("the script printed %s", said)
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

// Triton's kernels are left out, with or without tuning, and what they may have written is not known.
func TestQuickRealLeavesTritonsKernelsOut(t *testing.T) {
	standintest.Library(t)
	if exec.Command(standintest.Interpreter(t), "-c", "import triton").Run() != nil {
		t.Skipf("needs the Python package %s: the script has kernels of it", "triton")
	}
	p, said := one(t, estimate.RealOptions{}, network+`
import triton, triton.language as tl
def add(x, n: tl.constexpr): tl.store(x + tl.arange(0, n), 5)
plain = triton.jit(add)
tuned = triton.autotune([triton.Config({"n": n}) for n in (4, 8)], key=[])(triton.jit(add))
x = torch.tensor([3, 4, 5, 6], device="cuda")
plain[(1,)](x, n=4)
tuned[lambda meta: (meta["n"],)](x)
print("sum", x.sum().item())
while True: step()
`)
	const want = "Triton's kernels were not compiled and not run"
	if p.Steps != 3 || !slices.Contains(p.Notes, want) || !strings.Contains(said, "sum 1\n") {
		t.Errorf("%d steps, notes %q\n%s", p.Steps, p.Notes, said)
	}
}

// No existing file is changed, no checkpoint is written and no other machine is contacted.
func TestQuickRealLeavesFilesAndNetworkAlone(t *testing.T) {
	dir := t.TempDir()
	there := map[string]string{"log.txt": "mine", "best.pt": "weights", "gone.txt": "stays",
		"old/a.txt": "stays too", "target.txt": "not replaced", "other.txt": "another job's"}
	for name, text := range there {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777),
			os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	p, said := one(t, estimate.RealOptions{Options: estimate.Options{Dir: dir}}, network+`
import shutil, socket
step()
open("log.txt", "w").write("overwritten")
torch.save(model.state_dict(), "best.pt")
torch.save(model.state_dict(), "new.pt")
os.remove("gone.txt"); shutil.rmtree("old"); os.replace("best.pt", "moved.pt")
open("fresh.txt", "w").write("made"); os.remove("fresh.txt")
open("new.txt", "w").write("made"); os.replace("new.txt", "target.txt")
os.close(os.open("other.txt", os.O_WRONLY | os.O_APPEND))
os.utime("other.txt")  # as if another process had just written to it
open("other.txt", "w").write("overwritten")
import tempfile
with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as f: f.write("a")
with open(f.name, "w") as again: again.write("ab")
shutil.move(f.name, "cache.txt")
print("cached", open("cache.txt").read())
os.makedirs("runs/one"); open("runs/one/events", "w").write("a loss of 1")
os.makedirs("old/deeper"); open("old/deeper/more.txt", "a").write("more")
os.makedirs("tmp/config"); open("tmp/config/a.json", "w").write("{}"); os.rename("tmp", "checkpoint-2")
try: socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as e: print("refused:", e)
try: socket.getaddrinfo("weights.example.com", 443)
except OSError as e: print("not looked up:", e)
print("local", socket.gethostbyname("localhost"), socket.getaddrinfo("192.0.2.1", 80)[0][4])
while True: step()
`)
	for name, want := range there {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s holds %q (%v), before it held %q", name, got, err, want)
		}
	}
	there["train.py"] = "" // which the test itself made
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, dir+string(filepath.Separator))
		if _, was := there[name]; !was && path != dir && name != "old" {
			t.Errorf("%s is there", name)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(said, "cached ab\n") {
		t.Errorf("a temporary file of the script's own lost what was written to it:\n%s", said)
	}
	if !strings.Contains(said, "refused: [Errno 101] gmemtop refuses") {
		t.Errorf("the connection: %s", said)
	}
	if !strings.Contains(said, "not looked up: [Errno -4] gmemtop refuses") ||
		!strings.Contains(said, "local 127.0.0.1 ('192.0.2.1', 80)\n") {
		t.Errorf("the names of machines: %s", said)
	}
	for _, want := range []string{"log.txt was there already", "torch.save was called", "os.remove of",
		"shutil.rmtree of", "192.0.2.1",
		"files and folders that the script made were removed afterwards: 4 and 5"} {
		if !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("no note says %q: %q", want, p.Notes)
		}
	}
}

// A script can load what it saved, by path and by file, and also an existing file: with its shapes, tied
// weights and devices, though nothing was written.
func TestQuickRealLoadsBackWhatWasSaved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "old.pt")
	if err := os.WriteFile(path, []byte("weights"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, said := one(t, estimate.RealOptions{Options: estimate.Options{Dir: dir}}, network+`
import pathlib, shutil
os.mkdir("runs")
step()
tied = model[0].weight
torch.save({"a": tied, "b": tied.t(), "step": torch.tensor(7), "name": "x"}, "state.pt")
back = torch.load("state.pt", map_location="cpu")
assert back["a"].shape == (3000, 1000) and back["a"].device.type == "cpu" and back["step"].item() == 7
assert back["a"].data_ptr() == back["b"].data_ptr() and back["b"].stride() == (1, 1000)
assert back["name"] == "x"
assert torch.load("state.pt")["a"].is_cuda
with open("old.pt", "wb") as f: torch.save(model, f)
with open("old.pt", "rb") as f: again = torch.load(f, weights_only=False)
assert isinstance(again[0].weight, nn.Parameter) and again[0].weight is not tied
again.load_state_dict(model.state_dict())
torch.save({"n": 1}, "part.pt")
os.replace("part.pt", "last.pt"); os.link("last.pt", "best.pt"); shutil.copy("last.pt", dst="runs")
assert os.path.exists("best.pt") and not os.path.exists("part.pt") and torch.load("runs/last.pt")["n"] == 1
os.remove("last.pt")
assert pathlib.Path("best.pt").exists() and not pathlib.Path("last.pt").exists()
print("loaded")
while True: step()
`)
	if !strings.Contains(said, "loaded") {
		t.Errorf("it was not loaded back:\n%s", said)
	}
	if got, _ := os.ReadFile(path); string(got) != "weights" {
		t.Errorf("old.pt holds %q", got)
	}
	for _, pattern := range []string{"*.pt", "runs/*"} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 && found[0] != path {
			t.Errorf("%v were written", found)
		}
	}
}

// A card full of tensors costs the host next to nothing, wherever the model was made.
func TestRealTouchesNoMemory(t *testing.T) {
	p, said := one(t, estimate.RealOptions{Card: "h100"}, `
import resource, torch, torch.nn as nn
model = nn.Sequential(*[nn.Linear(16384, 16384) for _ in range(4)])
for layer in model: nn.init.trunc_normal_(layer.weight)
model = model.cuda()
optimizer = torch.optim.Adam(model.parameters())
while True:
    model(torch.zeros(65536, 16384, device="cuda")).sum().backward()
    optimizer.step(); optimizer.zero_grad()
    print("resident", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
`)
	at := strings.LastIndex(said, "resident ")
	if at < 0 {
		t.Fatal(said)
	}
	var kib int64
	if err := json.Unmarshal([]byte(strings.Fields(said[at:])[1]), &kib); err != nil {
		t.Fatal(err)
	}
	if most := p.Fullest().Allocated; most < 30<<30 || kib > 3<<20 {
		t.Errorf("%d bytes of the device took %d KiB of the host", most, kib)
	}
}

// One rank of many under FSDP2 holds its share of the state that lasts.
func TestRealOneRankOfManyUnderFSDP2(t *testing.T) {
	script := `
import os, torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
with torch.device("meta"):
    model = nn.Sequential(*[nn.Linear(4096, 4096, bias=False) for _ in range(8)])
for layer in model: fully_shard(layer)
fully_shard(model)
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters())
while True:
    model(torch.zeros(16, 4096, device="cuda")).sum().backward()
    optimizer.step(); optimizer.zero_grad()
`
	held := func(n int) int64 {
		p, _ := one(t, estimate.RealOptions{Options: estimate.Options{Processes: n}}, script)
		tl, err := timeline.Build(t.Context(), p.Trace, nil)
		if err != nil {
			t.Fatal(err)
		}
		return tl.Main().Totals.EndAllocated
	}
	// Parameters, gradients and two moments, 512 MiB each over all ranks, exist when a step ends.
	two, eight := held(2), held(8)
	if two < 4*512<<20/2 || eight > two/3 {
		t.Errorf("at the end of a step one of 2 ranks holds %d bytes, one of 8 holds %d", two, eight)
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

// The processes that load data end with the training process: otherwise they complain at length that it is
// gone.
func TestRealEndsWhatLoadsData(t *testing.T) {
	_, said := one(t, estimate.RealOptions{}, network+`
import time
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i):
        print("worker", os.getpid(), flush=True)
        if i > 3: time.sleep(120)
        return torch.randn(64, 1000)
for x in torch.utils.data.DataLoader(Slow(), num_workers=2, pin_memory=True): step()
`)
	workers := 0
	for line := range strings.Lines(said) {
		var pid int
		if n, _ := fmt.Sscanf(line, "worker %d", &pid); n == 0 {
			continue
		}
		workers++
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("process %d, which loads data, is still there", pid)
		}
	}
	if workers == 0 || strings.Contains(said, "Traceback") {
		t.Errorf("%d items were loaded:\n%s", workers, said)
	}
}

// twoRanks estimates a script that torchrun starts twice, and also returns what it printed.
func twoRanks(t *testing.T, script string) (all []estimate.Process, said string) {
	t.Helper()
	dir := t.TempDir()
	o := estimate.RealOptions{Options: estimate.Options{Dir: dir, Argv: []string{standintest.Interpreter(t),
		"-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
		filepath.Join(dir, "train.py")}}}
	all, said, err := real(t, o, script)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d processes: %v\n%s", len(all), err, said)
	}
	return all, said
}

// Under torchrun, each process finds its own card, and there is a card for each pretended process.
func TestRealOneCardForEachProcess(t *testing.T) {
	script := `
import os, torch, torch.distributed as dist
assert torch.cuda.device_count() == 2, torch.cuda.device_count()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 1000).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.zeros(8, 1000, device="cuda")).sum().backward()
    optimizer.step(); optimizer.zero_grad()
`
	all, _ := twoRanks(t, script)
	for rank, p := range all {
		if p.Rank != rank || p.Steps != 3 || p.Fullest().Device != rank {
			t.Errorf("process %d: rank %d, %d steps, %+v", rank, p.Rank, p.Steps, p.Books)
		}
	}
	one(t, estimate.RealOptions{Options: estimate.Options{Processes: 2}}, script)
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
