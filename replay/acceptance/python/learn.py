"""Train an example by its own code, and print what it learned, to the last bit, and how much memory it took.

usage: learn.py plain|checkpoint|offload SCRIPT [ARGUMENT...]

gmemtop's plans are compared with this training, in which gmemtop takes no part. checkpoint runs each block
again in the backward pass, by torch.utils.checkpoint. offload keeps everything that autograd saves on a GPU
in pinned host memory, with copies on their own streams, as libraries for fine-tuning do. plain changes
nothing.

After the script's own lines it prints "digest N HEX", of all parameters, gradients and buffers after step N,
and "peak BYTES", the most that torch's allocator held in one of the last ten steps (0 on a CPU). Training
ends after the first step at which the file named by STOP in the environment exists, or after step LAST. After
MOST seconds the process ends in any case.
"""
import gc
import importlib.util
import os
import signal
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

BLOCKS = "Block", "Bottleneck"  # the examples' names for the part of a network that is checkpointed
LEAST = 1024  # bytes; smaller tensors are not offloaded
CHUNK = 1 << 22  # words of a tensor that are summed at a time: little memory beside any network
if os.environ.get("MOST"):
    signal.alarm(int(os.environ["MOST"]))
LAST, STOP = int(os.environ.get("LAST", "0")), os.environ.get("STOP", "")


class Offload(object):
    """Hooks that keep everything on the host."""

    def __init__(self):
        self.out = self.back = None

    def pack(self, t):
        if not t.is_cuda or isinstance(t, torch.nn.Parameter) or t.numel() * t.element_size() < LEAST:
            return t
        if self.out is None:
            self.out, self.back = torch.cuda.Stream(t.device), torch.cuda.Stream(t.device)
        self.out.wait_stream(torch.cuda.current_stream(t.device))
        with torch.cuda.stream(self.out):
            host = torch.empty_like(t, device="cpu", pin_memory=True)
            host.copy_(t, non_blocking=True)
        t.record_stream(self.out)  # the next user of its memory waits for the copy
        return t.device, host, self.out.record_event()

    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        device, host, gone = packed
        now = torch.cuda.current_stream(device)
        self.back.wait_event(gone)
        with torch.cuda.stream(self.back):
            t = torch.empty_like(host, device=device)
            t.copy_(host, non_blocking=True)
        now.wait_stream(self.back)
        t.record_stream(now)
        return t


def digest(t):
    """A sum of a tensor's words, each weighted by an odd number that depends on its position."""
    words, total = t.detach().contiguous().flatten().view(torch.int32), 0
    for at in range(0, words.numel(), CHUNK):
        part = words[at:at + CHUNK].to(torch.int64)
        total += int((part * (2 * torch.arange(at, at + part.numel(), device=part.device) + 1)).sum())
    return total


def over():
    """Print what was learned, and end."""
    total = 0
    for group in optimizers[0].param_groups:
        for p in group["params"]:
            for t in (p, p.grad):
                total = (total * 1000003 + (7 if t is None else digest(t))) % (1 << 61)
    modules = (m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module))
    buffers = (b for m in modules for b in m._buffers.values())
    total = (total + sum(digest(b) for b in buffers if b is not None)) % (1 << 61)
    print("digest %d %x" % (len(peaks), total))
    print("peak %d" % max(peaks[-10:]), flush=True)
    raise SystemExit(0)


def stepped(optimizer, args, kwargs):
    optimizers[:] = [optimizer]
    peaks.append(0)
    if torch.cuda.is_initialized():
        peaks[-1] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    if len(peaks) == LAST or STOP and os.path.exists(STOP):
        over()


def checkpointed(forward):
    from torch.utils.checkpoint import checkpoint

    return lambda self, *args: checkpoint(forward, self, *args, use_reentrant=False)


peaks, optimizers, how = [], [], sys.argv[1]
sys.argv = sys.argv[2:]
spec = importlib.util.spec_from_file_location("example", sys.argv[0])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
register_optimizer_step_post_hook(stepped)
if how == "checkpoint":
    blocks = [getattr(example, name) for name in BLOCKS if hasattr(example, name)]
    if not blocks:
        sys.exit("%s has none of %s" % (sys.argv[0], ", ".join(BLOCKS)))
    for block in blocks:
        block.forward = checkpointed(block.forward)
    example.main()
elif how == "offload":
    hooks = Offload()
    with torch.autograd.graph.saved_tensors_hooks(hooks.pack, hooks.unpack):
        example.main()
else:
    example.main()
over()
