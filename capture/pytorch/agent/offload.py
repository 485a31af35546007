"""Makes a training fit into its memory until there is a plan: every saved tensor waits on the host until it
is needed.

A plan is made from two steps that ran, but a training that does not fit runs none. So if a plan is wanted
from the start, this replaces it from the first forward pass on, and again whenever a plan has ended. It is
slow, since compute waits for each copy. But it uses as little memory as possible without knowing what comes:
parameters, what is being computed, and one saved tensor at a time.

It is a Carrier without a plan, so the same things are checked: changes in place, graphs that are kept or
never run backward, tensors that come back different.

A step described meanwhile must look as if every tensor had stayed, since plans are made from it. So the
window is told which storages leave and where their bytes come back, and shows a single storage that was there
all the time. The time that compute waited is subtracted from the window's clock.

The host memory is not pinned: torch's cache would keep pinned memory for a few steps.

Rejected: describing a smaller batch and scaling it (a running program cannot be asked for one); fake tensors
in the real process (its optimizer, data and kernels differ there; gmemtop estimate does this separately);
stopping at the out-of-memory error (what was computed until then is lost).
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from .carry import Carrier
from .compat import address_of, local_shard, without_dispatch
from .values import Handle, Kept, Value, bytes_of, movable, space_for

if TYPE_CHECKING:
    from .carry import Iteration
    from .kinds import Device, DType, Entry, Module, Moved, Tensor, UntypedStorage
    from .storages import Storages

LEAST = 1 << 12  # bytes: smaller tensors stay


class _Waiting(Value):
    """A value that a window may show as if it had never left."""

    __slots__ = ("carrier", "storages", "number")

    def __init__(self, storage: UntypedStorage) -> None:
        Value.__init__(self, storage)
        self.carrier: Offload | None = None
        self.storages: Storages | None = None  # the window's
        self.number: int | None = None

    def __del__(self) -> None:
        if self.carrier is not None:
            self.carrier.held -= self.bytes
        if self.storages is not None and self.number is not None:
            self.storages.let_go(self.number)


class Offload(Carrier):
    """Moves saved tensors of the given device types to the host, up to `room` bytes at a time; None is no
    limit. If a window describes ops meanwhile, it is told where the bytes are."""

    offloads = True

    def __init__(
        self, torch: Any, types: tuple[str, ...], room: int | None = None, least: int = LEAST
    ) -> None:
        Carrier.__init__(self, torch, {})
        self.types = types
        self.room = room
        self.least = least
        self.window = None
        self.held = 0  # bytes on the host now
        # ids of modules, and the storages of their parameters and buffers, which stay on the device anyway
        self.met: set[int] = set()
        self.staying: set[int] = set()

    def begin(self) -> None:
        Carrier.begin(self)
        self.region.pop()
        self.region.thread = 0  # the first to enter a module; the thread that imported torch need not be it

    def next(self) -> Moved:
        if self.region.depth == 0:
            self.region.thread = threading.get_ident()
        self.met, self.staying = set(), set()
        return Carrier.next(self)

    def entering(self, module: Module | None) -> Any:
        if module is not None and id(module) not in self.met:
            self.met.add(id(module))
            for t in list(module.parameters()) + list(module.buffers()):
                t = local_shard(t)
                if type(t) in self.plain and t.layout == self.strided:
                    self.staying.add(address_of(t.untyped_storage()))
        return Carrier.entering(self, module)

    def _save(self, it: Iteration, t: Tensor) -> Kept | Handle:
        n, it.saved = it.saved, it.saved + 1
        if not movable(t, self.plain, self.strided):
            return Kept(it, t)
        storage = t.untyped_storage()
        value, size = it.known(storage), storage.nbytes()
        if value is None:
            stays = (
                size < self.least
                or storage.device.type not in self.types
                or t.is_leaf
                and t.requires_grad
                or address_of(storage) in self.staying
            )
            if stays or self.room is not None and self.held + size > self.room:
                it.missed += not stays
                return Kept(it, t)
            value = _Waiting(storage)
            value.changed(t)
            value.entry = self.entries[n] = {
                "save": n,
                "how": "swap",
                "bytes": size,
                "device": storage.device,
            }
            try:
                if it.checks and self.window is None:  # a check would make a described step longer
                    value.sum = self.same.sum(storage)
                self._out(it, value, storage, value.entry)
            except RuntimeError:  # no memory on the host, or on the device for the sum
                it.missed += 1
                return Kept(it, t)
            it.values[address_of(storage)] = weakref.ref(value)
            self.away[value] = weakref.ref(it)
        elif value.changed(t):
            self._anew(it, value, storage)
        return Handle(it, value, t).watch(self.torch, t)

    def _anew(self, it: Iteration, value: Any, storage: UntypedStorage) -> None:
        with without_dispatch(self.torch), self.torch.no_grad():
            begin = self._idle(storage.device)
            value.host.copy_(bytes_of(self.torch, storage, self.torch.uint8))
            self._paused(begin)
        if value.sum is not None:
            value.sum = self.same.sum(storage)

    def _out(self, it: Iteration, value: Any, storage: UntypedStorage, entry: Entry) -> None:
        torch = self.torch
        with without_dispatch(torch), torch.no_grad():
            begin = self._idle(storage.device)
            host = torch.empty(value.bytes, dtype=torch.uint8)
            host.copy_(bytes_of(torch, storage, torch.uint8))
            self._paused(begin)
        value.host, value.carrier = host, self
        self.held += value.bytes
        it.out += value.bytes
        if self.window is not None:
            value.number = self.window.storages.goes(storage)
            value.storages = None if value.number is None else self.window.storages

    def fetch(self, it: Iteration, value: Any, dtype: DType) -> None:
        torch, device = self.torch, value.entry["device"]
        with without_dispatch(torch), torch.no_grad():
            begin = self._idle(device)
            base = space_for(torch, value.bytes, dtype, device)
            bytes_of(torch, base.untyped_storage(), torch.uint8).copy_(value.host)
            self._paused(begin)
        value.base, value.stream = base, torch.cuda.current_stream(device) if base.is_cuda else None
        it.back += value.bytes
        if value.storages is not None:
            value.storages.comes_back(value.number, base.untyped_storage())

    def _idle(self, device: Device) -> int:
        """The time, after waiting for the device's work if a window is open: any wait from here on is for the
        copy, not for compute."""
        if self.window is not None and device.type == "cuda":
            self.torch.cuda.current_stream(device).synchronize()
        return time.perf_counter_ns()

    def _paused(self, begin: int) -> None:
        if self.window is not None:
            self.window.rows.paused(begin, time.perf_counter_ns())
