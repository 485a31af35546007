"""Spares of dropped tensors, kept until a rerun has proven that they can be recomputed.

Dropped tensors are recomputed inside the backward pass. An error there would end the training, and wrong
bytes would change what it learns. So until a tensor is proven, its bytes are kept somewhere too: in a copy on
the host, or if the host has no room, where they are. A tensor is proven once it has been recomputed in a step
where its group ran the same ops up to its save. If the program takes another path later, its tensors are
unproven again.

The training thread waits for the copies, so these steps are slower. A tensor that stays frees no memory: the
plan takes effect a step later.

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

MOST_PATHS = 1 << 16  # how many tensors and paths to remember


class Spare:
    """The spare of one tensor. Its room on the host is free again once it is deleted."""

    __slots__ = ("spares", "key", "bytes", "stays")

    def __init__(self, spares: Spares, key: tuple[int, int], where: Tensor, stays: bool) -> None:
        self.spares, self.key, self.bytes, self.stays = spares, key, where, stays
        if not stays:
            spares.room -= where.numel()

    def take(self, storage: UntypedStorage) -> None:
        """Copy the tensor's bytes."""
        torch = self.spares.torch
        if not self.stays:
            with without_dispatch(torch), torch.no_grad():
                self.bytes.copy_(bytes_of(torch, storage, torch.uint8))

    def proven(self) -> None:
        """The tensor was recomputed."""
        proven = self.spares.proven
        if len(proven) >= MOST_PATHS:
            proven.clear()
        proven.add(self.key)

    def __del__(self) -> None:
        if not self.stays:
            self.spares.room += self.bytes.numel()


class Spares:
    """Makes the spares of one plan."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.opened = False  # otherwise nothing has a spare
        self.room = 0  # bytes on the host that copies may still take
        # proven tensors, by their save number and their group's path
        self.proven: set[tuple[int, int]] = set()

    def open(self, plan: Plan) -> None:
        """Set the room, for a plan that has not taken its memory on the host yet."""
        if plan.get("groups"):
            room = host_room()
            taken = plan.get("slab", 0) + plan.get("state", 0)
            self.room = 1 << 62 if room is None else int(room * HOST_SHARE) // local_ranks() - taken
            self.opened = True

    def spare(self, save: int, path: int, storage: UntypedStorage) -> Spare | None:
        """The spare of a tensor that is dropped: the number of its save, and a number that tells which ops
        its group has run so far. None if it is proven."""
        torch, key, size = self.torch, (save, path), storage.nbytes()
        if key in self.proven or not self.opened:
            return None
        host: Tensor = None
        if size <= self.room:
            try:
                with without_dispatch(torch), torch.inference_mode(False):
                    host = torch.empty(size, dtype=torch.uint8, device="cpu")
            except (RuntimeError, MemoryError):  # the system says no, whatever the host's figures say
                self.room = 0
        if host is None:
            return Spare(self, key, bytes_of(torch, storage, torch.uint8), True)
        spare = Spare(self, key, host, False)
        spare.take(storage)
        return spare
