"""The figures that come with each step; the cheaper a figure, the more often it is taken.

How long a figure takes is measured. On a busy machine the measured time is often too long, because the thread
was off its processor. To limit the effect of such a measurement, the estimated cost of a figure at most
doubles each time, and the first estimate is at most twice the expected cost.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from .compat import address_of, is_rmm, local_shard, memory_stats, records_history, sparse_parts
from .outbox import NOT_TAKEN
from .says import Says
from .storages import Addresses
from .waiting import waits

if TYPE_CHECKING:
    from .kinds import Clock, Device, Tensor
    from .optimizers import Optimizers
    from .outbox import Outbox

EXPECTED = 250000  # nanoseconds that a figure is expected to take
SHARE = 400  # a figure that takes t is taken at most once every SHARE * t
RSS_SHARE = 2000  # the same for the process's memory, if it is a step's only figure
# counting private pools takes t: it is done at most once every POOLS_SHARE * t and every POOLS_REST
# nanoseconds
POOLS_SHARE, POOLS_REST = 2000, 2000000000
LOOKS_SHARE = 2000  # the same for looking for parameters that no optimizer has


def _cost(took: int, before: int) -> int:
    """The new cost estimate in nanoseconds, from the latest time and the previous estimate, 0 for none."""
    return min(took, 2 * (before or EXPECTED))


def foreign(torch: Any) -> Says | None:
    """The name of the allocator that serves GPU memory instead of torch's own; None if torch's own does."""
    name = getattr(torch.cuda, "get_allocator_backend", lambda: "native")()
    if name == "native":
        return None
    if name != "pluggable":
        return Says("allocator_named", name)
    return Says("allocator_rmm") if is_rmm(torch) else Says("allocator_pluggable")


class Pools:
    """What private pools (of CUDA graphs, of torch.cuda.MemPool) hold and no tensor uses: free only for their
    owners.

    None of the allocator's figures tells it. It takes the list of all segments, which is built block by block
    and too expensive for each step. Written from torch's sources, and never run on a GPU by its authors.
    """

    def __init__(self) -> None:
        # the bytes, and when they were counted, in nanoseconds of Unix time
        self.seen, self.next, self.cost = (-1, -1), 0, 0

    def take(self, torch: Any, index: int, clock: Clock) -> None:
        """Count, if that is cheap. It is not if the list includes the program's own allocation history."""
        try:
            begin, snapshot = clock(), torch.cuda.memory_snapshot
            how = (
                {"include_traces": False}
                if "include_traces" in inspect.signature(snapshot).parameters
                else {}
            )
            if how or not records_history(torch):
                self.count(snapshot(**how), index)
            self.cost = _cost(clock() - begin, self.cost)
            self.next = begin + max(POOLS_REST, POOLS_SHARE * self.cost)
        except Exception:  # an allocator without such a list: cudaMallocAsync, or the program's own
            self.seen, self.next = (-1, -1), 1 << 62

    def count(self, segments: list[dict[str, Any]], index: int) -> None:
        free, at = 0, time.time_ns()
        for s in segments:
            pool = s.get("segment_pool_id")
            if pool is None:
                return
            if s.get("device", index) == index and any(pool):
                free += s["total_size"] - s["active_size"]
        self.seen = free, at


class Totals:
    """Takes the memory figures of the process."""

    def __init__(self, torch: Any, clock: Clock, optimizers: Optimizers, outbox: Outbox) -> None:
        self.torch, self.clock, self.optimizers, self.outbox = torch, clock, optimizers, outbox
        self.device: Device | None = None
        self.statm = -1
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.next_totals = 0
        self.next_known = 0
        self.pools, self.addresses = Pools(), Addresses()
        self.cost_totals = self.cost_known = 0
        self.counts = True  # the allocator says how much it holds
        self.room = -1  # bytes of the device that the program may use, as found in its first step

    def step_ended(self, now: int, watched: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The figures of a step, and finer ones, as _take_totals returns them. watched says whether a viewer
        is connected."""
        totals = self._take_totals(now, watched) if now >= self.next_totals else NOT_TAKEN
        if now >= self.next_known:
            self._take_known(now)
        return totals[0] + self.outbox.known, totals[1]

    def close(self) -> None:
        """Close the open file."""
        statm, self.statm = self.statm, -1
        if statm >= 0:
            try:
                os.close(statm)
            except OSError:
                pass

    def _take_totals(self, now: int, watched: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The figures of the allocator and the system, and finer ones: the bytes asked for, the bytes in use,
        the free bytes of private pools and when they were counted; -1 for an unknown figure."""
        device = self.device
        if device is None or device.type != "cuda":
            device = self.device = self.optimizers.device()
        if self.statm < 0:
            self.statm = (
                os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
                if sys.platform.startswith("linux")
                else -1
            )
        rss = int(os.pread(self.statm, 128, 0).split()[1]) * self.page if self.statm >= 0 else -1
        figures: tuple[int, ...] = (-1, -1, -1, -1, rss, -1, -1)
        finer: tuple[int, ...] = ()
        if device is not None and device.type == "cuda":
            s = self._counted(device.index)
            if s is not None:
                a, r = s["allocated_bytes"]["all"], s["reserved_bytes"]["all"]
                figures = (
                    a["current"],
                    r["current"],
                    a["peak"],
                    r["peak"],
                    rss,
                    s["num_alloc_retries"],
                    s["num_ooms"],
                )
                finer = tuple(
                    s[name]["all"]["current"] if name in s else -1
                    for name in ("requested_bytes", "active_bytes")
                )
            if self.room < 0:
                self.room = self._room(device, figures[1] if s is not None else 0)
        self.cost_totals = _cost(self.clock() - now, self.cost_totals)
        self.next_totals = now + (SHARE if finer else RSS_SHARE) * self.cost_totals
        if device is not None and finer and watched and now >= self.pools.next:
            self.pools.take(self.torch, device.index, self.clock)
        return figures, finer + self.pools.seen if finer else NOT_TAKEN[1]

    def _counted(self, index: int) -> Any:
        """The figures of a device's allocator; None if the program has replaced torch's with one that counts
        nothing."""
        if not self.counts:
            return None
        try:
            return memory_stats(self.torch)(index)
        except RuntimeError:
            if foreign(self.torch) is None:
                raise
            self.counts = False
            self.outbox.say(Says("allocator_counts_nothing", foreign(self.torch)), "allocator")
            return None

    def _room(self, device: Device, reserved: int) -> int:
        """What the allocator holds of the device plus what is free there, limited to the share that the
        program allows itself; 0 if torch does not say."""
        cuda = self.torch.cuda
        try:
            free, total = cuda.mem_get_info(device)
            share = getattr(cuda, "get_per_process_memory_fraction", lambda device: 1.0)(device)
            return min(int(free) + reserved, int(total * share))
        except (AttributeError, RuntimeError):
            return 0

    def _take_known(self, now: int) -> None:
        """Take the bytes of parameters, gradients and optimizer state, each storage once. Parameters include
        those on the same device that no optimizer has: frozen ones, and copies of a model."""
        self.addresses.look(self.torch, self.clock, LOOKS_SHARE)
        begin, sums = self.clock(), [0, 0, 0]
        seen: set[int] = set()
        for p in self.optimizers.parameters():
            sums[0] += self._bytes_of(p, seen)
            if p.grad is not None:
                sums[1] += self._bytes_of(p.grad, seen)
        device = self.optimizers.device()
        for key, there in self.addresses.parameters.items():
            storage = there()
            if storage is not None and storage.device == device and key not in seen:
                seen.add(key)
                sums[0] += storage.nbytes()
        for o in self.optimizers.alive():
            for state in o.state.values():
                for t in state.values() if isinstance(state, dict) else ():
                    if isinstance(t, self.torch.Tensor) and not waits(type(t)):
                        sums[2] += self._bytes_of(t, seen)
        self.outbox.known = tuple(sums)
        self.cost_known = _cost(self.clock() - begin, self.cost_known)
        self.next_known = now + max(1000000000, 5 * SHARE * self.cost_known)

    def _bytes_of(self, t: Tensor, seen: set[int]) -> int:
        """The bytes of a tensor's storages that are not in seen; adds them to it."""
        t, held = local_shard(t), 0  # a distributed tensor holds its shard
        if t.layout == self.torch.sparse_coo:
            indices, t = sparse_parts(t)
            held = self._bytes_of(indices, seen)
        elif t.layout != self.torch.strided:
            return 0
        storage = t.untyped_storage()
        if address_of(storage) in seen:
            return held
        seen.add(address_of(storage))
        return held + int(storage.nbytes())
