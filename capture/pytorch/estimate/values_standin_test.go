//go:build standin

package estimate_test

import (
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// following skips where torch cannot follow values.
func following(t *testing.T) {
	t.Helper()
	standintest.Library(t)
	if version(t) < 209 {
		t.Skip("needs torch 2.9: before it there is no torch.library.get_kernel to follow values by")
	}
}

// What follows from the host's own numbers is read back as it is, under both allocators, and what depends on
// an op that is not tracked is made up. So are values that were known until such an op wrote to their tensor.
// Random numbers and indices are believed.
func TestQuickTheHostsOwnNumbersAreReadBack(t *testing.T) {
	following(t)
	const script = network + `
x = torch.tensor([3, 0, 5], device="cuda")
y = torch.zeros(3, dtype=torch.long, device="cuda")
y += 2
y[1] = 5
print("sum", (x + y).sum().item(), "most", torch.stack([x, y]).max().item(), "any", bool((x > 4).any()))
print("where", torch.nonzero(x).flatten().tolist(), x[x > 0].tolist(), x.unique().numel(), x.equal(x))
print("remainders", [int(i) for i in torch.remainder(x, 4)], bool((x % 2 == 1).any()))
full = torch.full((), 7, device="cuda").add_(1)
print("full", full.item(), "arange", torch.arange(9, device="cuda")[4].item())
mask = torch.ones(4, 2048, dtype=torch.bool, device="cuda")
print("mask", bool(mask.all()), mask.sum().item())
made = model(torch.zeros(4, 1000, device="cuda")).detach()[:, :4].contiguous()
print("made up", made.argmax().item(), bool((made > 0).all()), (made > 0).sum().item())
boxes = torch.tensor([[0, 0.5], [1, 0.25], [1, 0.125], [2, 8]]).cuda()
print("floats", boxes[:, 0].unique(return_counts=True)[1].max().item(), boxes[boxes[:, 1] > 0.2].shape,
      (boxes / 2).sum().item(), boxes.sqrt().amax().item() < 2.9)
chosen = made.topk(2).indices
places = torch.where(chosen == 0)[0]
print("chosen", chosen.tolist(), places.tolist(), made.argmax(1).unique().numel(), made.unique().numel(),
      (made > 0).int().unique().numel(), made[made.argsort(descending=True)[0] > 1].shape)
marks = torch.zeros_like(made[0], dtype=torch.uint8)
marks[torch.randperm(4, device="cuda")[:3]] = 1
print("marks", torch.where(marks)[0].shape, made.new_full((2,), 3).tolist())
print("close", torch.allclose(made, made.clone(), atol=0.1))
below = torch.rand(1000, device="cuda") < 0.25
print("drawn", 200 < below.sum().item() < 300, sorted(torch.randperm(4, device="cuda").tolist()))
some = torch.ones(4, device="cuda", requires_grad=True)
selected = torch.tensor([1, 0, 1, 1], device="cuda") == 1
torch.zeros(4, device="cuda").masked_scatter(selected, some[:3]).sum().backward()
print("selected", some.detach().masked_select(selected).shape, some.grad.shape)
x[0] = made.sum()
print("spoiled", x.sum().item())
y.random_(5)
y.random_(3, 4)
print("random", y.sum().item())
rows = torch.tensor([[8, 57], [8, 31]], device="cuda")
wide = torch.zeros(2, 60, device="cuda")[:, :rows[0, 1]]
print("sizes", max(row[1] for row in rows.cpu()).item(), wide.shape)
part = rows[1]
part.zero_()
print("parts", rows.tolist())
with torch.inference_mode():
    count = torch.tensor([4, 4], device="cuda")
    count += 1
    print("inference", count.tolist(), bool((count == 5).all()))
while True: step()
`
	_, said := one(t, estimate.RealOptions{}, script)
	_, modelled, err := program(t, estimate.Options{}, script)
	if err != nil {
		t.Fatalf("with fake tensors: %v\n%s", err, modelled)
	}
	for _, want := range []string{"sum 17 most 5 any True", "where [0, 2] [3, 5] 3 True",
		"remainders [3, 0, 1] True", "full 8 arange 4",
		"mask True 8192", "made up 8 True 1", "spoiled 1", "random 9",
		"floats 2 torch.Size([3, 2]) 6.4375 True",
		"chosen [[2, 3], [0, 1], [2, 3], [0, 1]] [1, 3] 4 16 2 torch.Size([2, 4])",
		"drawn True [0, 1, 2, 3]", "marks torch.Size([3]) [3.0, 3.0]", "close True",
		"selected torch.Size([3]) torch.Size([4])", "sizes 57 torch.Size([2, 57])",
		"parts [[8, 57], [0, 0]]", "inference [5, 5] True"} {
		if !strings.Contains(said, want+"\n") {
			t.Errorf("no %q in\n%s", want, said)
		}
		if !strings.Contains(modelled, want+"\n") {
			t.Errorf("no %q with fake tensors:\n%s", want, modelled)
		}
	}
}

// Lists and arrays of made-up values hold what item() would return, under both allocators, and are counted
// like it.
func TestQuickRealAnswersCopiesToTheHost(t *testing.T) {
	following(t)
	const script = network + `
loss = step().detach()
two = torch.stack([loss, loss])
print("lists", two.tolist(), two.cpu().numpy().tolist(), (two > 3).tolist(), two.argmax(0).cpu().tolist(),
      loss.to("cpu", non_blocking=True).item(), two.half().tolist())
pinned = torch.empty(2, pin_memory=True).copy_(two)
print("pinned", pinned.tolist(), "known", torch.tensor([3, 4], device="cuda").tolist())
large = torch.zeros(1 << 20, device="cuda").cpu()
while True: step()
`
	p, said := one(t, estimate.RealOptions{}, script)
	_, modelled, err := program(t, estimate.Options{}, script)
	if err != nil {
		t.Fatalf("with fake tensors: %v\n%s", err, modelled)
	}
	for _, want := range []string{"lists [1.0, 1.0] [1.0, 1.0] [False, False] 1 1.0 [1.0, 1.0]",
		"pinned [1.0, 1.0] known [3, 4]"} {
		if !strings.Contains(said, want+"\n") {
			t.Errorf("no %q in\n%s", want, said)
		}
		if !strings.Contains(modelled, want+"\n") {
			t.Errorf("no %q with fake tensors:\n%s", want, modelled)
		}
	}
	first := strings.Count(network, "\n") + 1
	counts := map[int]int64{}
	for _, a := range p.Answers {
		if a.Op == "copy to the host" {
			_, number, _ := strings.Cut(filepath.Base(a.Line), ":")
			line, _ := strconv.Atoi(number)
			counts[line-first] += a.Count
		}
	}
	want := map[int]int64{3: 4, 4: 2, 5: 1, 7: 1}
	if !maps.Equal(counts, want) {
		t.Errorf("copies by line after the network: %v, expected %v: %+v", counts, want, p.Answers)
	}
}

// Ranks exchange flags, counts and pickled objects through their devices; large collectives move nothing and
// touch no memory.
func TestRealRanksSendWhatTheyKnow(t *testing.T) {
	following(t)
	script := `
import os, resource, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
stop = torch.tensor([0], device="cuda")
dist.broadcast(stop, src=0)
votes = torch.tensor(int(rank == 1), device="cuda")
dist.all_reduce(votes)
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank, "text": "x" * (100 + rank)})
said = [{"from": rank}]
dist.broadcast_object_list(said, src=0)
print("rank", rank, "stop", stop.item(), "votes", bool(votes == size), votes.item(),
      "objects", [o["rank"] for o in objects], "said", said[0]["from"], flush=True)
dist.all_reduce(torch.zeros(1 << 30, device="cuda"))
print("resident", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 3 << 20, flush=True)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 1000).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.zeros(8, 1000, device="cuda")).sum().backward()
    optimizer.step(); optimizer.zero_grad()
`
	_, said := twoRanks(t, script)
	for _, want := range []string{"rank 0 stop 0 votes False 1 objects [0, 1] said 0",
		"rank 1 stop 0 votes False 1 objects [0, 1] said 0", "resident True"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}

// Flex attention, which scripts compile, takes the memory of its compiled kernels, much less than the score
// matrix. Other compiled functions are refused only when they are called.
func TestRealCompiledFunctions(t *testing.T) {
	following(t)
	script := network + `
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
attend, never = torch.compile(flex_attention), torch.compile(lambda x: x + 1)
q = torch.randn(1, 8, 4096, 64, device="cuda", requires_grad=True)
was = torch.cuda.memory_allocated()
out = attend(q, q, q)
print("forward", torch.cuda.memory_allocated() - was >= 8 << 20)
out.sum().backward()
mask = torch.compile(create_block_mask)
mask(lambda b, h, q, k: q >= k, None, None, 16384, 16384, device="cuda")
print("peak", torch.cuda.max_memory_allocated() - was < 64 << 20, flush=True)
`
	_, said := one(t, estimate.RealOptions{}, script+"while True: step()\n")
	if !strings.Contains(said, "forward True\npeak True\n") {
		t.Errorf("eight heads of 4096 rows, and a mask of 16384 squared:\n%s", said)
	}
	if _, said, err := real(t, estimate.RealOptions{}, script+"never(q)\n"); err == nil ||
		!strings.Contains(err.Error(), "--eager") {
		t.Errorf("a compiled function that is called: %v\n%s", err, said)
	}
}

// Comparisons act as if every number were 1, under both allocators, so scripts that check their results
// continue.
func TestQuickTruthsFollowFromWhatIsMadeUp(t *testing.T) {
	following(t)
	const script = `
import torch, torch.nn as nn
net = nn.Linear(100, 100).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
labels = torch.randint(0, 2, (1000, 1000)).cuda()
@torch.inference_mode()
def evaluate():
    x = net(torch.ones(4, 100, device="cuda"))
    assert bool(x.min() >= 0) and x.sum().item() == 1.0 and int(x.sum()) == 1 and x.sum()
for i in range(9):
    evaluate()
    assert labels.min() >= 0 and labels.max() < 2, "more classes than two"
    loss = net(torch.randn(64, 100, device="cuda")).square().mean()
    assert torch.isfinite(loss).all() and not torch.isnan(loss) and not torch.isinf(loss)
    loss.backward()
    for p in net.parameters(): assert torch.isfinite(p.grad).all()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
    drawn = torch.rand(1 << 20, device="cuda").bernoulli().bool()  # too large to be followed
    truths = bool(loss < 3), bool((loss < 3).cpu()), bool((loss > 3).any()), bool(drawn.any())
    three = torch.tensor(3, device="cuda")
    print("truths", *truths, bool(loss < three), bool((three > 2).all()), bool(three < loss), flush=True)
    optimizer.step(); optimizer.zero_grad()
`
	_, said := one(t, estimate.RealOptions{}, script)
	r, modelled, err := program(t, estimate.Options{}, script)
	if err != nil || r.Steps != 3 {
		t.Fatalf("with fake tensors: %v\n%s", err, modelled)
	}
	const want = "truths True True False False True True False\n"
	if !strings.Contains(said, want) || !strings.Contains(modelled, want) {
		t.Errorf("expected %q under both allocators:\n%s\nwith fake tensors:\n%s", want, said, modelled)
	}
}

// Distributions check the numbers that they are made of and those drawn from them, also by arithmetic that is
// not followed: made-up numbers are valid.
func TestQuickDistributionsFindMadeUpNumbersValid(t *testing.T) {
	following(t)
	const script = `
import torch, torch.nn as nn
from torch import distributions as d
net = nn.Linear(8, 6).cuda()
optimizer = torch.optim.Adam(net.parameters())
for i in range(9):
    x = net(torch.ones(4, 8, device="cuda"))
    drawn = d.Categorical(logits=x)
    action = drawn.sample()
    chosen = drawn.log_prob(action) + d.Categorical(probs=x.softmax(-1)).entropy()
    spread = d.Normal(x[:, 0], x[:, 1].exp())
    chosen = chosen + spread.log_prob(spread.rsample()) + d.Dirichlet(x.exp()).entropy()
    scale = torch.eye(6, device="cuda") * x.exp().unsqueeze(-1)
    chosen = chosen + d.MultivariateNormal(x, scale_tril=scale).rsample().sum(-1)
    chosen.mean().backward()
    optimizer.step(); optimizer.zero_grad()
    print("actions", action.cpu().numpy().tolist(), flush=True)
`
	_, said := one(t, estimate.RealOptions{}, script)
	r, modelled, err := program(t, estimate.Options{}, script)
	if err != nil || r.Steps != 3 {
		t.Fatalf("with fake tensors: %v\n%s", err, modelled)
	}
	if !strings.Contains(said, "actions [3, 4, 5, 0]\n") {
		t.Errorf("the actions are not spread:\n%s", said)
	}
}
