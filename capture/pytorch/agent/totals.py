"""The figures that come with each step, taken as often as they are cheap.

A figure that takes long is taken rarely. How long it takes is measured, and on a busy machine a measurement
is often too long because the thread was off its processor. So that one such measurement counts for little, a
figure is never taken to cost more than twice what it cost before, nor the first one more than twice what is
expected.
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
SHARE = 400  # a figure is taken at most every SHARE times as long as it takes
RSS_SHARE = 2000  # the same for the process's memory, where that is the only one of a step
# private pools are counted at most every POOLS_SHARE times as long as that takes, and every so many
# nanoseconds
POOLS_SHARE, POOLS_REST = 2000, 2000000000
LOOKS_SHARE = 2000  # parameters that no optimizer has are looked for at most every so many times as long


def _cost(took: int, before: int) -> int:
    """Nanoseconds that something costs which took so long now and was taken to cost so much before, 0 for
    nothing yet."""
    return min(took, 2 * (before or EXPECTED))


def foreign(torch: Any) -> Says | None:
    """What serves the memory of GPUs in the place of torch's own allocator, in words; None where nothing
    does."""
    name = getattr(torch.cuda, "get_allocator_backend", lambda: "native")()
    if name == "native":
        return None
    if name != "pluggable":
        return Says("allocator_named", name)
    return Says("allocator_rmm") if is_rmm(torch) else Says("allocator_pluggable")


class Pools:
    """What private pools (of CUDA graphs, of torch.cuda.MemPool) hold and no tensor uses: free for nobody but
    their owners.

    Of the allocator's figures none tells it, only the list of all its segments, which is made block by
    block: too dear for each step. Written from torch's sources, and never run on a GPU by its authors.
    """

    def __init__(self) -> None:
        # bytes, and when that was, in nanoseconds of Unix time
        self.seen, self.next, self.cost = (-1, -1), 0, 0

    def take(self, torch: Any, index: int, clock: Clock) -> None:
        """Count, where that is cheap: a list that holds the program's own history of allocations is not."""
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
        except Exception:  # an allocator that keeps no list: cudaMallocAsync, one of the program's own
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
    """Looks at memory as a whole."""

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
        self.room = -1  # bytes of the device that the program may have, as its first step found it

    def step_ended(self, now: int, watched: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The figures of a step, and finer ones, as take_totals returns them. watched says whether a viewer
        is there."""
        totals = self._take_totals(now, watched) if now >= self.next_totals else NOT_TAKEN
        if now >= self.next_known:
            self._take_known(now)
        return totals[0] + self.outbox.known, totals[1]

    def close(self) -> None:
        """Close what is open."""
        statm, self.statm = self.statm, -1
        if statm >= 0:
            try:
                os.close(statm)
            except OSError:
                pass

    def _take_totals(self, now: int, watched: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the allocator and the system hold, and finer: what was asked for, what is in use, what
        private pools keep free and when that was counted; -1 where there is none."""
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
        """The figures of a device's allocator; None where the program has put one in torch's place that
        counts nothing."""
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
        """What the allocator holds of the device and what is free there, within the share that the program
        allows itself; 0 where torch does not say."""
        cuda = self.torch.cuda
        try:
            free, total = cuda.mem_get_info(device)
            share = getattr(cuda, "get_per_process_memory_fraction", lambda device: 1.0)(device)
            return min(int(free) + reserved, int(total * share))
        except (AttributeError, RuntimeError):
            return 0

    def _take_known(self, now: int) -> None:
        """The bytes of parameters, gradients and optimizer state, each storage once. Parameters include those
        that no optimizer has, on its device: frozen ones, and copies of a model."""
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
        """The bytes of a tensor's storages that have not been seen."""
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
