"""Windows recorded by torch or its allocator, for programs that cannot be described op by op.

Under a dispatch mode, code made by torch.compile would run as eager ops, so the description would not show
the code that trains. Allocations and frees can still be recorded: on a GPU by the caching allocator's
history, with Python stacks; on a CPU by torch's profiler, which names the op of each allocation, or by the
pool. None of them says which op uses which memory.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import tempfile
import time
from typing import TYPE_CHECKING, Any, Iterator

from .compat import memory_snapshot, record_history
from .pool import Pool
from .window import Window

if TYPE_CHECKING:
    from .kinds import Device

HISTORY_ENTRIES = 200000
LOG_LEVEL = "KINETO_LOG_LEVEL"


class Recorded(Window):
    """A window that torch records."""

    def __init__(self, torch: Any, now: int, library: str, device: Device | None) -> None:
        self.torch = torch
        self.start = now
        self.steps: list[tuple[int, int]] = []
        self.cost = 0
        self.idle = False  # recording has stopped
        self.lost = 0
        self.graphs = 0
        self.library, self.device = library, device

    @property
    def stopped(self) -> bool:
        return self.idle

    def stop(self) -> None:
        self.idle = True


class History(Recorded):
    """A window of the caching allocator's own history."""

    on = False  # whether the allocator records

    def begin(self) -> None:
        record = record_history(self.torch)
        wanted = {
            "enabled": "all",
            "context": "alloc",
            "stacks": "python",
            "max_entries": HISTORY_ENTRIES,
            # torch's setting for one thread can be undone only by that thread, but the sending thread ends
            # the recording
            "global_record_annotations": True,
        }
        known = inspect.signature(record).parameters
        self.on = True
        record(**{k: v for k, v in wanted.items() if k in known})

    def end(self) -> None:
        pass  # the sending thread takes the snapshot and then ends the recording, unless take() did so before

    def unhook(self) -> None:
        if self.on:
            self.on = False
            record_history(self.torch)(enabled=None)

    def take(self) -> None:
        self.taken = memory_snapshot(self.torch)
        self.unhook()

    def pieces(self, head: dict[str, Any]) -> Iterator[bytes]:
        begin = time.perf_counter_ns()
        if self.taken is None:
            self.take()
        snapshot, self.taken = self.taken, None
        self.pools.count(snapshot["segments"], (self.device.index or 0) if self.device is not None else 0)
        settings = snapshot.setdefault("allocator_settings", {})
        for key, value in allocator_rules(self.torch).items():
            settings.setdefault(key, value)
        whole = pickle.dumps(snapshot, protocol=4)
        self.cost += time.perf_counter_ns() - begin
        for at in range(0, len(whole), 1 << 20):
            yield whole[at : at + (1 << 20)]


def allocator_rules(torch: Any) -> dict[str, Any]:
    """What the allocator's decisions depend on: which allocator it is, its environment variables, torch's
    release, and for each device its size and the share of it that the program may use."""
    try:
        cuda = torch.cuda
        devices: dict[str, dict[str, float]] = {}
        major, minor = str(torch.__version__).split(".")[:2]
        backend = cuda.get_allocator_backend() if cuda.device_count() else ""
        for i in range(cuda.device_count()):
            devices[str(i)] = {"total_bytes": int(cuda.get_device_properties(i).total_memory)}
            # older releases cannot tell, and the program's own allocator has no such share
            if hasattr(cuda, "get_per_process_memory_fraction") and backend != "pluggable":
                devices[str(i)]["memory_fraction"] = float(cuda.get_per_process_memory_fraction(i))
        rules: dict[str, Any] = {"gmemtop_torch": [int(major), int(minor)], "gmemtop_devices": devices}
        if backend:
            rules["gmemtop_allocator"] = str(backend)
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            if name in os.environ:
                rules[name] = os.environ[name]
        return rules
    except Exception:
        return {}  # the recording is useful without them


class Profile(Recorded):
    """A window of torch's profiler. After the first one, an idle thread of torch stays in the process."""

    bound = True
    runs = False

    def begin(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        self.profile, self.runs = profile(activities=[ProfilerActivity.CPU], profile_memory=True), True
        ours = LOG_LEVEL not in os.environ
        if ours:
            os.environ[LOG_LEVEL] = "99"  # or the profiler would log to the program's standard error
        try:
            self.profile.start()
        finally:
            if ours:
                del os.environ[LOG_LEVEL]

    def end(self) -> None:
        if self.runs:
            self.runs = False
            self.profile.stop()

    def leave(self) -> bool:
        self.end()
        return True

    def unhook(self) -> None:
        pass  # a profiler must end on the thread that began it

    def pieces(self, head: dict[str, Any]) -> Iterator[bytes]:
        handle, path = tempfile.mkstemp(prefix="gmemtop-", suffix=".json")
        try:
            os.close(handle)
            begin = time.perf_counter_ns()
            self.profile.export_chrome_trace(path)
            self.cost += time.perf_counter_ns() - begin
            self.profile = None
            with open(path, "rb") as f:
                os.unlink(path)
                path = ""
                yield from iter(lambda: f.read(1 << 20), b"")
        finally:
            if path:
                os.unlink(path)


class Events(Recorded):
    """A window of the allocator's calls, recorded by the pool."""

    def begin(self) -> str:
        self.pool = Pool(self.torch, self.library, self.device)
        self.heard: Any = None
        why = self.pool.record()
        if why:
            self.pool.remove()
        return why

    def next(self) -> None:
        self.pool.step()

    def end(self) -> None:
        self.heard = self.pool.events()
        self.unhook()

    def unhook(self) -> None:
        self.pool.remove()

    def pieces(self, head: dict[str, Any]) -> Iterator[str]:
        heard, self.heard = self.heard or {"events": []}, None
        rows = heard.pop("events")
        yield json.dumps(heard)[:-1] + ',"events":[' if heard else '{"events":['
        # in small pieces, since training waits for the interpreter lock meanwhile
        for at in range(0, len(rows), 1000):
            yield ("," if at else "") + json.dumps(rows[at : at + 1000], separators=(",", ":"))[1:-1]
        yield "]}"


RECORDED = {"history": History, "profile": Profile, "events": Events}
