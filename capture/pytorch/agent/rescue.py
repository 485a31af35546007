"""Brings dropped and swapped tensors back when the first try fails.

A tensor comes back inside the backward pass, where an error would end the training. So nothing that goes
wrong there may end a training that would survive without a plan:

- A tensor with a spare takes its bytes from there (see Spares).
- Otherwise memory is freed, and it is tried again: first without what was fetched before its use, then with
  every saved tensor on the host that can wait there. They come back one by one, as they are needed, and ops
  run again with nothing on the device but their own arguments and results.

This cannot save a training if a single op needs more memory to run again than all saved tensors take, if the
host has no room for these, or if an op that was rerun before, on the same path, raises three times in a row
for another reason than memory.

Saved tensors that stay are found through the garbage collector, so that they cost nothing until then.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any, Callable

from .compat import address_of, without_dispatch
from .host import HOST_SHARE, host_room, local_ranks
from .says import Says
from .streams import capturing
from .values import Handle, Kept, Value, bytes_of, movable

if TYPE_CHECKING:
    from .carry import Carrier, Iteration
    from .kinds import DType, Tensor

LEAST_MOVED = 1 << 12  # bytes: smaller tensors stay


class Rescue:
    """Brings tensors of one plan back."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier, self.torch = carrier, carrier.torch
        self.device = carrier.plan.get("device", "cpu")
        self.moves = self.device != "cpu"  # whether moving a tensor to the host frees memory
        self.room = 0  # bytes that may still move to the host
        self.moved = 0  # bytes that have moved

    # -- dropped tensors -------------------------------------------------------------------------------------

    def again(self, it: Iteration, value: Value, dtype: DType) -> None:
        """Recompute a dropped value. If that fails, its spare takes its place, and the plan ends with the
        step."""
        rerun, group = self.carrier.rerun, value.entry["group"]
        rerun.failed = ""
        if value.spare is None:
            moved = self.moved
            said = self.attempt(it, lambda serially: rerun.again(it, value, serially))
            if said:
                mib = (self.moved - moved) >> 20
                self.carrier.end(it, Says("rerun_retried", self._ops(group), said[0], said[1], mib))
            if value.base is None:
                self.back(it, value, dtype)
            return
        if group not in it.failed:
            try:
                rerun.again(it, value)
                return self._prove(it, group)
            except Exception as e:
                it.failed.add(group)
                self.carrier.end(it, Says("rerun_failed", self._ops(group), type(e).__name__, str(e)))
        self.restore(it, value, dtype)

    def _ops(self, group: int) -> str:
        names = {name for name, _ in self.carrier.plan["groups"][group]}
        return self.carrier.rerun.failed or ", ".join(sorted(names))

    def _prove(self, it: Iteration, group: int) -> None:
        """A group has been rerun. What it made is compared with what is still on the device right away, so
        that both exist no longer than this takes."""
        for value, made in list(self.carrier.away.items()):
            if value.spare is None or made() is not it or value.entry.get("group") != group:
                continue
            there = value.storage()
            if there is not None and not value.spoiled:
                if value.base is not None:
                    self.carrier.compare(it, value, self.torch.uint8)
                value.base = bytes_of(self.torch, there, self.torch.uint8)
                value.stream = value.spare = value.sum = None

    def restore(self, it: Iteration, value: Value, dtype: DType) -> None:
        """Take a value from its spare."""
        spare, value.spare, value.sum = value.spare, None, None
        if spare is None:
            return
        if spare.stays:
            value.base, value.stream = spare.bytes, None
            return
        value.base, value.host = None, spare.bytes
        self.back(it, value, dtype)
        if value.stream is not None:
            self.carrier.streams.meet(value)

    # -- any tensor ------------------------------------------------------------------------------------------

    def back(self, it: Iteration, value: Value, dtype: DType) -> None:
        """Fetch a value from the host."""
        moved = self.moved
        said = self.attempt(it, lambda serially: self.carrier.fetch(it, value, dtype))
        if said:
            self.carrier.end(it, Says("fetch_retried", said[0], said[1], (self.moved - moved) >> 20))

    def attempt(self, it: Iteration, act: Callable[[bool], None]) -> tuple[str, ...]:
        """Call act. While it raises, free memory and call it again, the last time with True: one op after the
        other. Returns the type and the text of what it raised, () if nothing."""
        said: tuple[str, ...] = ()
        for free in (self._early, self._all):
            try:
                act(False)
                return said
            except Exception as e:
                if capturing(self.torch):  # the steps below would break the capture
                    raise
                said = type(e).__name__, str(e)
            free(it)  # here the error is gone, and with it the frames that hold tensors
        act(True)
        return said

    def _early(self, it: Iteration) -> None:
        """Drop what came back from the host and is not in use. Then no copy is running."""
        if self.device != "cpu":
            self.torch.cuda.synchronize(self.device)
        for value, made in list(self.carrier.away.items()):
            its = made()
            if self._on_host(value) and value.base is not None and its and value not in its.leaving:
                self._drop(value)
        if self.device != "cpu":
            self.torch.cuda.empty_cache()

    def _on_host(self, value: Value) -> bool:
        """Whether a value's bytes are on the host. Once they have come back, its slot may belong to
        another value."""
        entry = value.entry
        if value.host is None or entry is None or entry["how"] != "swap" or "slot" not in entry:
            return value.host is not None
        there = self.carrier.owners.get(entry["slot"])
        return there is not None and there() is value

    def _drop(self, value: Value) -> None:
        """Free the bytes of a value that is on the host too, unless somebody uses them."""
        value.arrived = None
        there = weakref.ref(value.base.untyped_storage())
        value.base = None
        still = there()
        if still is not None:
            value.base = bytes_of(self.torch, still, self.torch.uint8)

    def _all(self, it: Iteration) -> None:
        """Move every saved tensor to the host that nobody else holds."""
        self._early(it)
        if not self.moves:
            return
        room = host_room()
        self.room = 1 << 62 if room is None else int(room * HOST_SHARE) // local_ranks()
        # by storage: the saved tensors and the values that hold it
        holders: dict[int, tuple[list[Kept], list[Value]]] = {}
        for value in self._values(it):
            if value.base is not None and not self._on_host(value):
                holders.setdefault(address_of(value.base.untyped_storage()), ([], []))[1].append(value)
        for kept in self._kept():
            if kept.iteration is it or kept.iteration.lock.acquire(blocking=False):
                try:
                    if movable(kept.tensor, self.carrier.plain, self.carrier.strided):
                        key = address_of(kept.tensor.untyped_storage())
                        holders.setdefault(key, ([], []))[0].append(kept)
                finally:
                    if kept.iteration is not it:
                        kept.iteration.lock.release()
        for saved, values in holders.values():
            self.moved += self._move(saved, values)
        if self.device != "cpu":
            self.torch.cuda.empty_cache()

    def shelve(self, env: dict[Value, Tensor], read: list[Value]) -> None:
        """Between two ops that run again: what the first one made, and what it read, waits on the host."""
        if not self.moves:
            return
        for value in read:
            if value.base is not None and value not in env and self._on_host(value):
                self._drop(value)
        for value in list(env):
            value.base = env.pop(value)
            self.moved += self._move([], [value])

    def _values(self, it: Iteration) -> set[Value]:
        found = {value for there in list(it.values.values()) if (value := there()) is not None}
        return found.union(self.carrier.away)

    def _kept(self) -> list[Kept]:
        return [
            x
            for x in gc.get_objects()
            if type(x) is Kept
            and x.iteration.carrier is self.carrier
            and type(x.tensor) is not Handle
            and str(x.tensor.device) == self.device
        ]

    def _move(self, saved: list[Kept], values: list[Value]) -> int:
        """Move a storage to the host, if only these hold it. Returns the bytes that this frees."""
        torch = self.torch
        base = values[0].base if values else saved[0].tensor
        storage: Any = base.untyped_storage()
        size: int = storage.nbytes()
        if size < LEAST_MOVED or size > self.room:
            return 0
        with without_dispatch(torch), torch.no_grad(), torch.inference_mode(False):
            try:
                host: Tensor = torch.empty(size, dtype=torch.uint8, device="cpu")
            except (RuntimeError, MemoryError):
                self.room = 0
                return 0
            host.copy_(bytes_of(torch, storage, torch.uint8))
        there = weakref.ref(storage)
        if saved:
            value = Value(storage)
            values = values + [value]
            for kept in saved:
                handle, version = Handle(kept.iteration, value, kept.tensor), kept.version
                kept.tensor = handle.watch(torch, kept.tensor)
                handle.version = version
        for value in values:
            value.base, value.host = None, host
        del base, storage
        still = there()
        if still is None:
            self.room -= size
            return size
        for value in values:
            value.base, value.host = bytes_of(torch, still, torch.uint8), None
        return 0
