//go:build standin

package estimate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/timeline"
)

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
