package estimate_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
)

// TestAModelMovesToTheHostAndBack moves it after a step, while other code refers to its parameters, as
// trainers do at the end.
func TestAModelMovesToTheHostAndBack(t *testing.T) {
	r, said, err := program(t, estimate.Options{}, `
import torch, torch.nn as nn
model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Flatten(), nn.Linear(64 * 36, 1000)).cuda()
weight = model[0].weight
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(4, 3, 8, 8, device="cuda")).sum().backward()
    optimizer.step()
step()
held = torch.cuda.memory_allocated()
loss = model(torch.randn(4, 3, 8, 8, device="cuda")).sum()  # its graph refers to the parameters
model.cpu()
del loss
assert model[0].weight is weight and weight.device.type == weight.grad.device.type == "cpu", weight.device
assert torch.cuda.memory_allocated() < 1 << 20, (held, torch.cuda.memory_allocated())
model(torch.randn(4, 3, 8, 8)).sum().backward()
model.cuda()
assert weight.device.type == "cuda" and torch.cuda.memory_allocated() == held, torch.cuda.memory_allocated()
step()
step()
`)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if got := peaks(t, r.Trace); len(got) != 3 || got[1].peak != got[2].peak {
		t.Errorf("three like steps peak at %v", got)
	}
}

// holding is a part of a script with a function step(). What a thread was given counts for two more steps,
// even if the thread ends before, unless the script waits for it or asks.
const holding = `
import threading, weakref
def given():
    x = torch.zeros(1000, device="cuda")
    thread = threading.Thread(target=lambda x, y: None, args=(x,), kwargs={"y": [x]})
    thread.start()
    return thread, weakref.ref(x)
def end(thread):
    while thread in threading.enumerate(): pass
left, there = given()
end(left)
asked, known = given()
end(asked)
assert known() is not None and not asked.is_alive() and known() is None
waited, gone = given()
waited.join()
assert gone() is None
step()
assert there() is not None
step()
assert there() is None
`

// saysWhoHolds reports whether notes name the line that started a thread with tensors.
func saysWhoHolds(notes []string) bool {
	return slices.ContainsFunc(notes, func(n string) bool {
		return strings.Contains(n, "a thread is given tensors on the GPU") && strings.Contains(n, ".py:")
	})
}

// TestCopiesOfTensors: a copy takes memory on the device of its original, and has its values if they are
// known. A parameter's type makes parameters. Other threads may copy to the host while the main one trains,
// and to the device; what they were given is held. A script that only tries to trace its model goes on.
func TestCopiesOfTensors(t *testing.T) {
	r, said, err := program(t, estimate.Options{}, `
import copy, threading, torch, torch.nn as nn
from concurrent.futures import ThreadPoolExecutor
one = torch.tensor(3)
two = copy.deepcopy(one)
one.add_(torch.tensor(1))
assert (one.item(), two.item()) == (4, 3), (one.item(), two.item())
pair = copy.deepcopy([one, one])
assert pair[0] is pair[1]
model = nn.Linear(1000, 1000).cuda()
held = torch.cuda.memory_allocated()
average = copy.deepcopy(model)
assert average.weight.device.type == "cuda" and torch.cuda.memory_allocated() == 2 * held, held
count = torch.tensor([3, 4]).cuda()
model.register_buffer("count", count)
other = copy.deepcopy(model).count
loaded = type(model.weight)(model.weight.data.half(), requires_grad=False, **vars(model.weight)).to("cuda")
assert isinstance(loaded, nn.Parameter) and loaded.dtype == torch.half and not loaded.requires_grad, loaded
count += 1
assert other.is_cuda and count.tolist() == [4, 5] and other.tolist() == [3, 4], other.tolist()
optimizer = torch.optim.SGD(model.parameters())  # without one, each backward pass would be a step
images, read, done = torch.randn(4, 1000, device="cuda"), [], threading.Event()
def draw():
    while not done.is_set():
        read.append(images.cpu().float().numpy().shape)
drawing = threading.Thread(target=draw, daemon=True)
drawing.start()
for _ in range(30):
    model(images).sum().backward()
done.set()
drawing.join()
assert set(read) == {(4, 1000)}, read
try:
    torch.jit.trace(model, images)
except RuntimeError as e:
    assert "--allocator real" in str(e), e
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(lambda: torch.zeros(9).to("cuda")).result().is_cuda
step = optimizer.step
`+holding+`
print("held")
`)
	if err != nil || !strings.Contains(said, "held\n") || !saysWhoHolds(r.Notes) {
		t.Fatalf("%v, %+v\n%s", err, r, said)
	}
}

// TestWhatIsSavedToABufferIsLoadedBack, also from a file that a library wrote the buffer to.
func TestWhatIsSavedToABufferIsLoadedBack(t *testing.T) {
	_, said, err := program(t, estimate.Options{}, `
import io, torch, torch.nn as nn
model = nn.Linear(1000, 1000).cuda()
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(4, 1000, device="cuda")).sum().backward()
optimizer.step()
buffer = io.BytesIO()
all = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "at": torch.tensor([3, 4])}
torch.save(all, buffer)
buffer.seek(0)
back = torch.load(buffer, map_location="cpu")
weight = back["model"]["weight"]
assert weight.shape == (1000, 1000) and weight.device.type == "cpu"
assert back["at"].tolist() == [3, 4], back["at"].tolist()
with open("new.ckpt", "wb") as f: f.write(buffer.getvalue())
with open("new.ckpt", "rb") as f: again = torch.load(f, weights_only=True)
assert again["model"]["weight"].is_cuda
optimizer.load_state_dict(torch.load("new.ckpt")["optimizer"])
`)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

// TestWhatIsLoadedAgainIsFreed: a script that loads its weights before each step needs no more in the third
// step than in the second.
func TestWhatIsLoadedAgainIsFreed(t *testing.T) {
	r, said, err := program(t, estimate.Options{}, `
import torch, torch.nn as nn
model = nn.Linear(1000, 1000).cuda()
optimizer = torch.optim.AdamW(model.parameters())
torch.save(model.state_dict(), "model.pt")
while True:
    model.load_state_dict(torch.load("model.pt"))
    model(torch.randn(4, 1000, device="cuda")).sum().backward()
    optimizer.step(); optimizer.zero_grad()
`)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if p := peaks(t, r.Trace); len(p) != 3 || p[2].peak != p[1].peak {
		t.Errorf("the steps' peaks: %v", p)
	}
}

// TestWeightsFromSafetensors: whatever way a script loads them, they take memory where they are loaded to,
// and whole numbers keep their values.
func TestWeightsFromSafetensors(t *testing.T) {
	made := exec.Command(python(t), "-c", `
import torch, safetensors.torch as tensors
whole = {"weight": torch.ones(1000, 1000), "half": torch.ones(9, 3).half(), "at": torch.tensor([7, 9])}
tensors.save_file(whole, "new.safetensors")`)
	made.Dir = t.TempDir()
	if said, err := made.CombinedOutput(); err != nil {
		if strings.Contains(string(said), "No module named 'safetensors'") {
			t.Skipf("needs the Python package %s: the script loads weights by it", "safetensors")
		}
		t.Fatalf("%v\n%s", err, said)
	}
	path := filepath.Join(made.Dir, "new.safetensors")
	_, said, err := program(t, estimate.Options{}, strings.ReplaceAll(`
import safetensors, safetensors.torch as tensors, torch, torch.nn as nn
from safetensors import safe_open
allocated = torch.cuda.memory_allocated
for device, expected in (("cpu", 0), ("cuda", 4_001_280), ("cuda:0", 4_001_280), (0, 4_001_280)):
    found = tensors.load_file("new.safetensors", device=device)
    assert found["weight"].shape == (1000, 1000) and found["half"].dtype == torch.float16, found
    assert found["at"].tolist() == [7, 9], found["at"].tolist()
    assert abs(allocated() - expected) < 4096, (device, allocated())
    del found
with safe_open("new.safetensors", framework="pt", device="cuda") as f:
    part = f.get_slice("weight")
    assert set(f.keys()) == {"weight", "half", "at"} and part.get_shape() == [1000, 1000], f.keys()
    assert part[:10].shape == (10, 1000) and f.get_tensor("half").is_cuda
f = safe_open("new.safetensors", framework="np")
assert float(f.get_tensor("weight").sum()) == 1000 * 1000
model = nn.Linear(1000, 1000, bias=False)
model.load_state_dict({"weight": tensors.load_file("new.safetensors")["weight"]})
model.cuda()(torch.randn(4, 1000, device="cuda")).sum().backward()
torch.optim.SGD(model.parameters()).step()
`, "new.safetensors", path))
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

// TestLightning trains for fewer steps than are estimated, so Lightning saves and ends by itself.
func TestLightning(t *testing.T) {
	if exec.Command(python(t), "-c", "import lightning").Run() != nil {
		t.Skipf("needs the Python package %s: the script trains by it", "lightning")
	}
	r, said, err := program(t, estimate.Options{}, `
import torch, torch.nn as nn, lightning
from torch.utils.data import DataLoader, TensorDataset
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 10))
    def training_step(self, batch, i):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, prog_bar=True)
        return loss
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
data = TensorDataset(torch.randn(8, 3, 8, 8), torch.randint(0, 10, (8,)))
lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1).fit(Net(), DataLoader(data, 4))
print("it came to its end", flush=True)
`)
	if err != nil || r.Steps != 2 || !strings.Contains(said, "it came to its end") {
		t.Fatalf("%v\n%s", err, said)
	}
}

// TestNumbersDrawnOnTheHostHaveValues: scripts choose their batches with such numbers.
func TestNumbersDrawnOnTheHostHaveValues(t *testing.T) {
	_, said, err := program(t, estimate.Options{}, `
import torch
data = list(range(2000))
starts = torch.randint(1000, (4,))
assert [len(data[i : i + 64]) for i in starts] == [64] * 4, starts
drawn = torch.randint(3, 1000, (200,)).tolist()
assert len(set(drawn)) > 10 and min(drawn) >= 3, drawn
layer = torch.nn.Linear(10, 10).cuda()
layer(torch.randn(4, 10, device="cuda")).sum().backward()
torch.optim.SGD(layer.parameters()).step()
`)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

// TestCodeWithoutLines reads values from code without line numbers, which some frames of CPython have.
func TestCodeWithoutLines(t *testing.T) {
	r, said, err := program(t, estimate.Options{}, `
import types, torch
def ask(t): return bool(t > 0)
asks = types.FunctionType(ask.__code__.replace(co_linetable=b""), globals())
w = torch.ones(1000, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for _ in range(9):
    loss = w.sum()
    assert asks(loss)
    loss.backward()
    optimizer.step()
`)
	if err != nil || r.Steps != 3 {
		t.Fatalf("%v: %+v\n%s", err, r, said)
	}
}

// TestAModelLeavesTritonsKernelsOut: they are not run, and what they may have written is not known. Triton's
// driver describes the card.
func TestAModelLeavesTritonsKernelsOut(t *testing.T) {
	if exec.Command(python(t), "-c", "import triton").Run() != nil {
		t.Skipf("needs the Python package %s: the script has kernels of it", "triton")
	}
	r, said, err := program(t, estimate.Options{}, `
import torch
`+launching+`
for _ in range(3): torch.ones(4, device="cuda", requires_grad=True).sum().backward()
`)
	if err != nil || !leftOut(r.Notes) || !strings.Contains(said, asLaunched) {
		t.Errorf("%v, %+v\n%s", err, r, said)
	}
}

// launching is a part of a script with kernels of Triton, with and without tuning. asLaunched is what it
// prints.
const (
	launching = `
import triton, triton.language as tl
def add(x, n: tl.constexpr): tl.store(x + tl.arange(0, n), 5)
plain = triton.jit(add)
tuned = triton.autotune([triton.Config({"n": n}) for n in (4, 8)], key=[])(triton.jit(add))
x = torch.tensor([3, 4, 5, 6], device="cuda")
before = x.sum().item()
plain[(1,)](x, n=4)
tuned[lambda meta: (meta["n"],)](x)
card = triton.runtime.driver.active
print("sum", before, x.sum().item(), card.get_current_target().arch, card.get_active_torch_device(),
      card.utils.get_device_properties(0)["max_shared_mem"])
`
	asLaunched = "sum 18 1 90 cuda:0 232448\n"
)

// leftOut reports whether notes name the two lines that launch kernels.
func leftOut(notes []string) bool {
	return slices.ContainsFunc(notes, func(n string) bool {
		return strings.HasPrefix(n, "Triton's kernels were not compiled and not run: ") &&
			strings.Count(n, ".py:") == 2
	})
}

// TestOpsThatRepeatGiveTheSame repeats views, writes, new tensors and numbers: their results are kept.
func TestOpsThatRepeatGiveTheSame(t *testing.T) {
	r, said, err := program(t, estimate.Options{}, `
import torch
base, other = torch.empty(64, 8, device="cuda"), torch.empty(64, 8, device="cuda")
weight = torch.zeros(8, 8, device="cuda", requires_grad=True)
for k in range(6):
    held = torch.cuda.memory_allocated()
    for x in (base, other):
        part = x[4:12].view(2, 32)
        assert part.untyped_storage()._cdata == x.untyped_storage()._cdata, k
        assert (part.shape, part.storage_offset()) == ((2, 32), 32), (k, part.shape)
        assert part.add_(1) is part and part.device == x.device, k
        assert (x * 2).dtype == torch.float32 and (x.half() * 2).dtype == torch.float16, k
        assert (x @ weight).requires_grad and not (x + x).requires_grad, k
        sums = x + x
        assert sums.untyped_storage()._cdata != x.untyped_storage()._cdata, k
        assert torch.cuda.memory_allocated() == held + 64 * 8 * 4, k
        values, indices = sums.max(1)
        assert (values.shape, values.dtype, indices.dtype) == ((64,), torch.float32, torch.int64), k
        whole, count = torch.arange(10, device="cuda") * 2, torch.arange(10, device="cuda") * 2.0
        assert (whole.dtype, count.dtype) == (torch.int64, torch.float32), k
        assert [int(v) for v in whole[2:4]] == [4, 6], k
        del sums, values, indices, part, whole, count
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    (base @ weight).sum().backward()
    optimizer.step()
`)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if got := peaks(t, r.Trace); len(got) != 3 || got[1].peak != got[2].peak {
		t.Errorf("three like steps peak at %v", got)
	}
}
