//go:build standin

package standin_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// TestQuickTorchSeesTheCard: torch prints a card's figures as in the table of cards. This checks the layout
// of cudaDeviceProp for the CUDA that torch was built for.
func TestQuickTorchSeesTheCard(t *testing.T) {
	for model, want := range map[string]string{
		"a100":    "NVIDIA A100-SXM4-80GB 8.0 108 2048 41943040 32 167936 65536 4 False",
		"rtx4090": "NVIDIA GeForce RTX 4090 8.9 128 1536 75497472 32 102400 65536 4 False",
	} {
		got := standintest.Python(t, standin.Machine{Model: model}, `
import torch
p = torch.cuda.get_device_properties(0)
assert p.total_memory == torch.cuda.mem_get_info()[1], p
assert torch.cuda.device_count() == 1
print(p.name, f"{p.major}.{p.minor}", p.multi_processor_count, p.max_threads_per_multi_processor, p.L2_cache_size,
      getattr(p, "warp_size", 32), getattr(p, "shared_memory_per_multiprocessor", "untold"),
      p.regs_per_multiprocessor, getattr(p, "pci_bus_id", 4), bool(p.is_integrated))`)
		if shared := strings.Fields(want)[len(strings.Fields(want))-4]; strings.Contains(got, " untold ") {
			got = strings.Replace(got, "untold", shared, 1) // torch 2.6
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: %s, expected %s", model, got, want)
		}
	}
}

// TestQuickTorchTheAllocatorFillsTheCard: PyTorch's own allocator fills the card under each of its settings,
// and its figures match the board's.
func TestQuickTorchTheAllocatorFillsTheCard(t *testing.T) {
	for _, conf := range []string{"", "expandable_segments:True", "backend:cudaMallocAsync"} {
		t.Run(conf, func(t *testing.T) {
			t.Setenv("PYTORCH_CUDA_ALLOC_CONF", conf)
			standintest.Python(t, standin.Machine{Memory: "4GiB", Context: "500MiB", Order: standin.Late}, `
import torch
MiB = 1 << 20
s = torch.cuda.Stream()
a = torch.empty(300 * MiB, dtype=torch.uint8, device="cuda")
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s):
    b = a.clone(); a.record_stream(s)
del a
keep = []
try:
    while True: keep.append(torch.empty(300 * MiB, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as e: text = str(e)
import os
if "backend" not in os.environ["PYTORCH_CUDA_ALLOC_CONF"]: assert "4.00 GiB" in text, text
assert 10 <= len(keep) <= 11, len(keep)
free, total = torch.cuda.mem_get_info()
assert total - free >= torch.cuda.memory_reserved() + 500 * MiB
keep.clear(); del b
torch.cuda.synchronize(); torch.cuda.empty_cache()
free, total = torch.cuda.mem_get_info()
assert total - free <= 500 * MiB + torch.cuda.memory_reserved(), (total - free, torch.cuda.memory_reserved())
`)
		})
	}
}

// TestQuickTorchUsesAllOfTheRuntime: graphs, several devices, pinned memory, events, memory shared between
// processes.
func TestQuickTorchUsesAllOfTheRuntime(t *testing.T) {
	standintest.Computing(t)
	for _, order := range []string{standin.Once, standin.Late, "11"} {
		t.Run(order, func(t *testing.T) {
			standintest.Python(t, standin.Machine{Devices: 2, Order: order, Compute: true}, `
import torch, torch.multiprocessing as mp

def other(queue, back):
    x = queue.get()
    back.put(x.sum().item())
    x += 1
    torch.cuda.synchronize()
    del x
    back.put("done")

if __name__ == "__main__":
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph): y = x * 2
    for value in (1.0, 3.0):
        x.fill_(value); graph.replay()
        assert y.tolist() == [2 * value] * 4, y
    graph.reset()
    z = torch.arange(1000, device="cuda:0").to("cuda:1")
    assert z.sum().item() == 499500 and z.device.index == 1
    host = torch.arange(1000).pin_memory()
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(side):
        moved = host.to("cuda", non_blocking=True)
        event.record()
    torch.cuda.current_stream().wait_event(event)
    assert (moved + 1).sum().item() == 500500
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record(); moved = moved * 2; last.record(); last.synchronize()
    assert first.elapsed_time(last) >= 0
    ctx = mp.get_context("spawn")
    queue, back = ctx.Queue(), ctx.Queue()
    p = ctx.Process(target=other, args=(queue, back)); p.start()
    shared = torch.full((1000,), 2.0, device="cuda")
    queue.put(shared)
    assert back.get() == 2000 and back.get() == "done"
    p.join()
    assert shared.sum().item() == 3000
`)
		})
	}
}

// TestQuickTorchRacesShow: without a wait, results are right in the order "once" and wrong in "late".
func TestQuickTorchRacesShow(t *testing.T) {
	standintest.Computing(t)
	for order, want := range map[string]string{standin.Once: "7000.0", standin.Late: "0.0"} {
		got := standintest.Python(t, standin.Machine{Order: order, Compute: true}, `
import torch
source, copy = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
side = torch.cuda.Stream()
torch.cuda.synchronize()
source.fill_(7)
with torch.cuda.stream(side):
    copy.copy_(source)
side.synchronize()
print(copy.sum().item())`)
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: the sum is %s, expected %s", order, got, want)
		}
	}
}

// TestQuickTorchFreesMemoryWhileTheAllocatorWaits: the allocator runs out of memory and waits for work, which
// is Python, while another thread frees memory without releasing Python's interpreter lock.
func TestQuickTorchFreesMemoryWhileTheAllocatorWaits(t *testing.T) {
	standintest.Computing(t)
	got := standintest.Python(t, standin.Machine{Memory: "900MiB", Order: standin.Late, Compute: true}, `
import faulthandler, threading, time
import torch
faulthandler.dump_traceback_later(300, exit=True)
small, over = [torch.empty(1, device="cuda").untyped_storage() for _ in range(2000)], False
def free():
    while small and not over:
        small.pop()
        time.sleep(0.001)
side, w = torch.cuda.Stream(), torch.ones(400, 400, device="cuda")
x = torch.empty(20 << 20, dtype=torch.uint8, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = x[:4 * 400 * 400].view(torch.float32).view(400, 400)
    for _ in range(50): y.copy_(torch.mm(w, w))
x.record_stream(side)
del x, y
other = threading.Thread(target=free)
other.start()
big = torch.empty(370 << 20, dtype=torch.uint8, device="cuda")
over = True
other.join()
print(torch.cuda.memory_stats()["num_alloc_retries"])`)
	if got != "1\n" {
		t.Errorf("%s retries", strings.TrimSpace(got))
	}
}

// TestTorchMeetsErrors: a call that fails and a device that is lost arrive in Python as PyTorch's errors.
func TestTorchMeetsErrors(t *testing.T) {
	r := standintest.TryPython(t, standin.Machine{Fail: []string{"cudaEventCreateWithFlags:1=2",
		"cudaMemcpyAsync:2=719"}}, `
import torch
x = torch.zeros(10, device="cuda")
try: torch.cuda.Event().record()
except RuntimeError as e: print(str(e).splitlines()[0])
print(x.sum().item())
try: print(x.sum().item())
except RuntimeError as e: print(str(e).splitlines()[0])
try: torch.cuda.synchronize()
except RuntimeError as e: print(str(e).splitlines()[0])
import os; os._exit(0)`)
	want := "CUDA error: out of memory\n0.0\nCUDA error: unspecified launch failure\nCUDA error: " +
		"unspecified launch failure\n"
	if r.Err != nil || r.Stdout != want {
		t.Errorf("%v\n%s%s", r.Err, r.Stdout, r.Stderr)
	}
}
