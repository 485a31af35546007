package estimate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
)

// TestProcessesThatTrainTogether pretends that there are other ranks: gradients also have buckets, and a
// sharded model holds only its shard.
func TestProcessesThatTrainTogether(t *testing.T) {
	const text = `
import sys, torch, torch.nn as nn, torch.distributed as dist
dist.init_process_group("nccl")
assert dist.get_world_size() == 4
model = nn.Sequential(nn.Linear(512, 2048, bias=False), nn.Linear(2048, 512, bias=False)).cuda()
if "%s" == "ddp":
    model = nn.parallel.DistributedDataParallel(model)
else:
    from torch.distributed.fsdp import fully_shard
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model(torch.randn(16, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
`
	const parameters = 2 * 512 * 2048 * 4
	for name, want := range map[string]map[string]int64{
		"ddp":  {"parameter": parameters, "optimizer_state": 2 * parameters},
		"fsdp": {"parameter": parameters / 4, "optimizer_state": 2 * parameters / 4},
	} {
		r, said, err := program(t, estimate.Options{Processes: 4}, fmt.Sprintf(text, name))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, said)
		}
		got := peaks(t, r.Trace)[2]
		for category, n := range want {
			// the optimizer counts its steps in a few bytes, on the CPU or beside the states
			if d := got.categories[category] - n; d < 0 || d > 64 {
				t.Errorf("%s: %d bytes of %s, not %d", name, got.categories[category], category, n)
			}
		}
		if name == "ddp" && got.categories["gradient"] < 2*parameters {
			t.Errorf("ddp: %d bytes of gradients and buckets, not %d", got.categories["gradient"],
				2*parameters)
		}
	}
}

// TestALauncherIsLetThrough: the first process that a launcher starts is estimated, as one of many. A
// launcher that waits for other machines is refused, since they never come.
func TestALauncherIsLetThrough(t *testing.T) {
	const text = `
import torch, torch.nn as nn, torch.distributed as dist
dist.init_process_group("nccl")
assert dist.get_world_size() == 2 and dist.get_rank() == 0
model = nn.parallel.DistributedDataParallel(nn.Linear(512, 512).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(16, 512, device="cuda")).sum().backward()
    optimizer.step()
`
	dir := t.TempDir()
	path := filepath.Join(dir, "train.py")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	launched := func(more ...string) (*estimate.Result, string, error) {
		return run(t, estimate.Options{Dir: dir}, slices.Concat([]string{"-m", "torch.distributed.run"}, more,
			[]string{"--nproc-per-node", "2", path})...)
	}
	for _, alone := range [][]string{
		{"--nnodes", "1"},
		{"--nnodes", "1:4", "--rdzv-backend", "c10d", "--rdzv-endpoint", "nowhere.invalid:29400"},
	} {
		r, said, err := launched(alone...)
		if err != nil || r.Steps != 3 || !slices.ContainsFunc(r.Notes, func(n string) bool {
			return strings.Contains(n, "one process of 2")
		}) {
			t.Errorf("%q: %+v, %v\n%s", alone, r, err, said)
		}
	}
	refused := func(where string, _ *estimate.Result, said string, err error) {
		t.Helper()
		if !errors.Is(err, estimate.ErrUnsupported) ||
			!strings.Contains(err.Error(), "waits for 2 machines") {
			t.Errorf("two machines in its %s: %v\n%s", where, err, said)
		}
	}
	r, said, err := launched("--nnodes", "2")
	refused("arguments", r, said, err)
	t.Setenv("PET_NNODES", "2")
	r, said, err = launched()
	refused("environment", r, said, err)
}
