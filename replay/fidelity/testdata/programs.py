"""Runs small programs on PyTorch's own allocator and writes a memory snapshot of each.

usage: programs.py FOLDER SETTINGS

Each program has the whole card to itself. SETTINGS is PYTORCH_CUDA_ALLOC_CONF. A snapshot also holds what our
recordings add to an allocator's history: the release and the device. Prints the names of the programs.
"""
import os
import pickle
import random
import sys

folder, os.environ["PYTORCH_CUDA_ALLOC_CONF"] = sys.argv[1:]
import torch
from torch.cuda import memory

SIZES = (700, 60_000, 900_000, 1_500_000, 7_000_001, 12_000_003, 40_000_001)
KEEP = []


class Program:
    def __init__(self, name):
        self.random, self.held = random.Random(name), []

    def bytes(self, size):
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    def mixed(self, steps, held=None):
        """Allocates and frees at random."""
        held = self.held if held is None else held
        for _ in range(steps):
            if held and self.random.random() < 0.48:
                held.pop(self.random.randrange(len(held)))
            else:
                held.append(self.bytes(self.random.randrange(1, self.random.choice(SIZES))))


def mixed(p):
    p.mixed(300)


def emptied(p):
    for _ in range(4):
        p.mixed(80)
        torch.cuda.empty_cache()


def streams(p):
    side = torch.cuda.Stream()
    p.mixed(80)
    with torch.cuda.stream(side):
        p.mixed(80)
    for t in p.held[::3]:
        t.record_stream(side)
    p.mixed(80)


def trained(p):
    layers = [m for _ in range(3) for m in (torch.nn.Linear(512, 512), torch.nn.GELU())]
    net = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.randn(512, 512, device="cuda")).square().mean().backward()
        optimizer.step()
    p.held += [net, optimizer]


def full(p):
    """Fills the card until the cache is released, and then asks for more than there is."""
    for _ in range(12):
        p.held.append(p.bytes(40_000_001))
    del p.held[::2]
    p.mixed(40)
    p.held.append(p.bytes(150_000_001))
    try:
        p.bytes(2_000_000_001)
    except torch.OutOfMemoryError:
        p.mixed(40)
    else:
        raise SystemExit("a request beyond the card was served")


def share(p):
    """The same, within the share of the card that the program allows itself."""
    torch.cuda.set_per_process_memory_fraction(0.5)
    for _ in range(8):
        p.held.append(p.bytes(40_000_001))
    del p.held[::2]
    p.mixed(40)
    try:
        p.bytes(780_000_001)
    except torch.OutOfMemoryError:
        p.mixed(40)
    else:
        raise SystemExit("a request beyond the share was served")


def snapshot(path):
    held = memory._snapshot()
    major, minor = torch.__version__.split(".")[:2]
    held["allocator_settings"]["gmemtop_torch"] = [int(major), int(minor)]
    held["allocator_settings"]["gmemtop_devices"] = {"0": {
        "total_bytes": torch.cuda.get_device_properties(0).total_memory,
        "memory_fraction": torch.cuda.get_per_process_memory_fraction(0)}}
    with open(path, "wb") as f:
        pickle.dump(held, f)


torch.cuda.init()
for run in mixed, emptied, streams, trained, full, share:
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    memory._record_memory_history(max_entries=1_000_000)
    program = Program(run.__name__)
    run(program)
    snapshot(os.path.join(folder, run.__name__ + ".pickle"))
    memory._record_memory_history(enabled=None)
    torch.cuda.set_per_process_memory_fraction(1.0)
    program.held.clear()
    print(run.__name__)
