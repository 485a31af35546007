"""Train on a GPU, and print what each step learnt and, at the end, what is left in the process besides the
training.

usage: toggled.py

A step's line is a digest of all parameters, gradients, buffers and optimizer state after it. STEPS in the
environment is how many steps to run; without it, steps run until the file named by STOP exists and no thread
runs besides the training. While the file named by HOLD exists, no further step begins. The last line holds no
figure of the training itself: an unwatched run prints the same.
"""
import gc
import hashlib
import os
import threading
import time

import torch
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optimizers

LAST, STOP, HOLD = int(os.environ.get("STEPS", "0")), os.environ.get("STOP", ""), os.environ.get("HOLD", "")
WIDTH = 64


class Net(torch.nn.Module):
    """Layers that save tensors worth moving and tensors that one op can recompute, random numbers, and statistics
    that are not parameters."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm, self.head = torch.nn.BatchNorm1d(WIDTH), torch.nn.Linear(WIDTH, 10)

    def forward(self, x):
        for layer in self.layers:
            x = torch.sigmoid(torch.relu(layer(x)) * 1.5)
        return self.head(torch.nn.functional.dropout(self.norm(x), 0.1, self.training))


def digest(net, optimizer):
    h = hashlib.sha256()
    state = [t for s in optimizer.state.values() for _, t in sorted(s.items()) if isinstance(t, torch.Tensor)]
    for t in [*net.parameters(), *(p.grad for p in net.parameters()), *net.buffers(), *state]:
        h.update(t.detach().cpu().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


def left():
    """What an agent could leave behind, in words and figures."""
    gc.collect()
    torch.cuda.synchronize()
    torch.empty(1, pin_memory=True)  # torch reclaims pinned memory of finished copies on the next request
    tables = sum(len(t) for n, t in vars(hooks).items() if n.startswith("_global_") and isinstance(t, dict))
    steps = sum(len(t) for n, t in vars(optimizers).items() if n.startswith("_global_") and isinstance(t, dict))
    functions = torch._C._autograd._saved_tensors_hooks_disable, torch.cuda.CUDAGraph.replay, torch.cuda.CUDAGraph.capture_begin
    patched = [f.__qualname__ for f in functions if hasattr(f, "__wrapped__")]
    objects = sorted({type(o).__name__ for o in gc.get_objects() if "gmemtop" in str(getattr(type(o), "__module__", ""))})
    return "hooks %d and %d, patched %s, objects %s, modes %d, threads %d, allocated %d, pinned %d" % (
        tables, steps, patched, objects, torch._C._len_torch_dispatch_stack(), threading.active_count(),
        torch.cuda.memory_stats()["requested_bytes.all.current"], torch.cuda.host_memory_stats()["active_bytes.current"])


def main():
    torch.manual_seed(3)
    net = Net().cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    target, digests = torch.arange(512, device="cuda") % 10, []
    while len(digests) < LAST or not LAST and not (os.path.exists(STOP) and threading.active_count() == 1):
        x = torch.randn(512, WIDTH, device="cuda")
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), target).backward()
        optimizer.step()
        digests.append(digest(net, optimizer))
        while os.path.exists(HOLD):
            time.sleep(0.01)
    for n, d in enumerate(digests):
        print("digest %d %s" % (n, d))
    print("digest left", left())
    print("pinned at most %d" % torch.cuda.host_memory_stats()["allocated_bytes.peak"])


main()
