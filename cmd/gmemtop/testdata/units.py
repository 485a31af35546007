"""Make memory snapshots with PyTorch's own recorder, and write down what PyTorch says about the same moments.

usage: units.py FOLDER CASE...   CASE-ANYTHING is the same case with other random numbers

For each case it writes FOLDER/CASE.pickle, the snapshot, and FOLDER/CASE.json: memory_stats() of every device
at that moment, and, for each request that failed, the error's message with memory_stats() at the failure. A
case that this PyTorch cannot run writes nothing.
"""
import gc
import inspect
import json
import pickle
import random
import sys

import torch
from torch.cuda import memory

SIZES = (700, 60_000, 900_000, 1_500_000, 7_000_001, 12_000_003, 40_000_001)


class Unsupported(Exception):
    pass


class Case:
    def __init__(self, name):
        self.random = random.Random(name)
        self.keep, self.failed = [], []

    def bytes(self, size, **options):
        return torch.empty(size, dtype=torch.uint8, device=options.pop("device", "cuda"), **options)

    def mixed(self, steps, device="cuda"):
        """Allocates and frees at random, and returns what is left."""
        held = []
        for _ in range(steps):
            if held and self.random.random() < 0.48:
                held.pop(self.random.randrange(len(held)))
            else:
                held.append(self.bytes(self.random.randrange(1, self.random.choice(SIZES)), device=device))
        return held

    def refuse(self, size, device=0):
        try:
            self.bytes(size, device=f"cuda:{device}")
        except torch.OutOfMemoryError as error:
            self.failed.append({"device": device, "requested": size, "message": str(error),
                                "stats": torch.cuda.memory_stats(device)})
        else:
            raise SystemExit(f"a request of {size} bytes was served")


def record(max_entries=1_000_000, **options):
    for name in options:
        if name not in inspect.signature(memory._record_memory_history).parameters:
            raise Unsupported(name)
    memory._record_memory_history(max_entries=max_entries, **options)
    for device in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.reset_accumulated_memory_stats(device)


def plain(case):
    record()
    case.keep = case.mixed(200)


def middle(case):
    before = case.mixed(60)
    record()
    case.keep = case.mixed(150)
    del before[:30]
    case.keep += before


def truncated(case):
    record(max_entries=150)
    case.keep = case.mixed(300)
    case.keep = case.keep[::2]


def failed(case):
    record()
    case.keep = case.mixed(60)
    case.refuse(5_000_000_001)
    del case.keep[:10]


def full(case):
    record()
    while torch.cuda.mem_get_info()[0] > 64 << 20:
        case.keep.append(case.bytes(50_000_001))
    while torch.cuda.mem_get_info()[0] >= 20 << 20:
        case.keep.append(case.bytes(20 << 20))
    case.refuse(6_000_001)


def streams(case):
    record()
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    case.keep = case.mixed(60)
    for stream in side, other:
        with torch.cuda.stream(stream):
            case.keep += case.mixed(60)
    for tensor in case.keep[:20]:
        tensor.record_stream(side)
    del case.keep[:10]
    case.refuse(5_000_000_001)


def devices(case):
    record()
    case.keep = case.mixed(80, "cuda:0") + case.mixed(80, "cuda:1")
    case.refuse(5_000_000_001, device=1)


def pools(case):
    pool = torch.cuda.MemPool()
    record()
    case.keep = case.mixed(50)
    with torch.cuda.use_mem_pool(pool):
        inside = case.mixed(80)
    case.keep += inside[::2] + [pool]
    del inside
    case.refuse(5_000_000_001)


def whole_segments(case, left=True):
    if "no_split" not in inspect.signature(torch.cuda.MemPool.__init__).parameters:
        raise Unsupported("no_split")
    pool = torch.cuda.MemPool(no_split=True)
    record()
    case.keep = case.mixed(50)
    with torch.cuda.use_mem_pool(pool):
        inside = [case.bytes(n) for n in (1_500_000, 700, 7_000_001, 30_000_001)]
    case.keep += (inside if left else []) + [pool]


def whole_segments_freed(case):
    whole_segments(case, left=False)


def graph(case):
    record()
    case.keep = [case.bytes(3_000_000)]
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        case.keep += [case.bytes(5_000_001), case.bytes(700_000)]
        case.bytes(2_000_001)
        case.keep.append(torch.zeros(1_000_000, device="cuda"))
    case.keep += [g] + case.mixed(40)
    case.refuse(5_000_000_001)


def pinned(case):
    record(record_pinned_host_memory=True)
    case.keep = case.mixed(30) + [torch.empty(n, dtype=torch.uint8, pin_memory=True)
                                  for n in (1000, 70_000, 3_000_001)]
    torch.empty(9_000_001, dtype=torch.uint8, pin_memory=True)


def run(folder, name):
    case = Case(name)
    try:
        globals()[name.split("-")[0]](case)
    except (Unsupported, RuntimeError) as error:
        if isinstance(error, Unsupported) or "doesn't currently support" in str(error):
            memory._record_memory_history(enabled=None)
            return
        raise
    snapshot = memory._snapshot()
    said = {"stats": [torch.cuda.memory_stats(d) for d in range(torch.cuda.device_count())],
            "failed": case.failed}
    if hasattr(torch.cuda, "host_memory_stats"):
        said["host"] = torch.cuda.host_memory_stats()
    memory._record_memory_history(enabled=None)
    with open(f"{folder}/{name}.pickle", "wb") as f:
        pickle.dump(snapshot, f)
    with open(f"{folder}/{name}.json", "w") as f:
        json.dump(said, f)
    case.keep.clear()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


torch.cuda.init()
for name in sys.argv[2:]:
    run(sys.argv[1], name)
