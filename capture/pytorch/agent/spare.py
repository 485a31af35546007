"""Copies on the host of dropped tensors, for as long as it is unproven that they can be recomputed.

Dropped tensors are recomputed inside the backward pass. An error there would end the training, and wrong
bytes would change what it learns. So the first time a tensor is dropped, its bytes are also copied to the
host. A tensor is proven once it has been recomputed in a step where its group ran the same ops up to its
save. If the program takes another path later, its tensors are unproven again.

A copy is made only if the host has room for it. The training thread waits for it, so these steps are slower.

Rejected: recomputing a tensor at once, when it is dropped. That proves little, since the op's inputs are
still in memory then, and may be gone when they are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .compat import without_dispatch
from .host import HOST_SHARE, host_room, local_ranks
from .values import bytes_of

if TYPE_CHECKING:
    from .kinds import Plan, Tensor, UntypedStorage

TRIES = 3  # a tensor that is never used again is copied in this many steps at most
MOST_PATHS = 1 << 16  # how many tensors and paths to remember


class Spare:
    """The copy of one tensor. Its room is free again once it is deleted."""

    __slots__ = ("spares", "key", "host")

    def __init__(self, spares: Spares, key: tuple[int, int], host: Tensor) -> None:
        self.spares, self.key, self.host = spares, key, host
        spares.room -= host.numel()

    def take(self, storage: UntypedStorage) -> None:
        """Copy the tensor's bytes."""
        torch = self.spares.torch
        with without_dispatch(torch), torch.no_grad():
            self.host.copy_(bytes_of(torch, storage, torch.uint8))

    def proven(self) -> None:
        """The tensor was recomputed."""
        self.spares.tries[self.key] = TRIES

    def __del__(self) -> None:
        self.spares.room += self.host.numel()


class Spares:
    """Makes the copies of one plan."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.room = 0  # bytes on the host that copies may still take
        # how often a tensor was copied, TRIES once it is proven, by its save number and its group's path
        self.tries: dict[tuple[int, int], int] = {}

    def open(self, plan: Plan) -> None:
        """Set the room, for a plan that has not taken its memory on the host yet."""
        if plan.get("groups"):
            room = host_room()
            taken = plan.get("slab", 0) + plan.get("state", 0)
            self.room = 1 << 62 if room is None else int(room * HOST_SHARE) // local_ranks() - taken

    def copy(self, save: int, path: int, storage: UntypedStorage) -> Spare | None:
        """Copy a tensor that is dropped: the number of its save, and a number that tells which ops its group
        has run so far. None if it is proven, or if there is no room."""
        torch, key, size = self.torch, (save, path), storage.nbytes()
        tried = self.tries.get(key, 0)
        if tried >= TRIES or size > self.room:
            return None
        if len(self.tries) >= MOST_PATHS:
            self.tries.clear()
        self.tries[key] = tried + 1
        try:
            with without_dispatch(torch), torch.inference_mode(False):
                host = torch.empty(size, dtype=torch.uint8, device="cpu")
        except (RuntimeError, MemoryError):  # the system says no, whatever the host's figures say
            self.room = 0
            return None
        spare = Spare(self, key, host)
        spare.take(storage)
        return spare
