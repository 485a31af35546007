"""How long the program itself keeps what autograd saved.

If a plan swaps or drops a saved tensor, its memory is freed only once nobody else refers to it. The program
often does: a function keeps each tensor that it named until it returns, and a loop keeps its result until the
next one comes. While a window describes a step, autograd's only references are the tensors that the hooks
keep. So once no other reference is left, the program has let go.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable

from .compat import address_of, storage_references, without_dispatch

if TYPE_CHECKING:
    from .kinds import UntypedStorage


class Keeps:
    """Counts the references to each saved storage that are not autograd's. If torch cannot count references,
    nothing is known."""

    def __init__(self, torch: Any) -> None:
        # by number: the storage, and how many tensors of it the hooks keep; None if no longer known
        self.saved: dict[int, tuple[weakref.ref[UntypedStorage], int] | None] = {}
        self.references: Callable[[int], int] | None = storage_references(torch)
        self.own = 0  # references that counting itself adds; differs between releases
        if self.references is not None:
            with without_dispatch(torch):
                one = torch.empty(1)
            self.own = self._count(weakref.ref(one.untyped_storage())) - 1

    def _count(self, there: weakref.ref[UntypedStorage]) -> int:
        storage = there()
        if storage is None or self.references is None:
            return 0
        return self.references(address_of(storage))

    def save(self, number: int, storage: weakref.ref[UntypedStorage], stays: bool) -> None:
        """Part of a storage was saved. stays says that a hook keeps its own tensor of it. Any other stand-in
        may or may not refer to the storage, so nothing is known about the storage from here on."""
        if self.references is None:
            return
        if not stays:
            self.saved[number] = None
            return
        known = self.saved.get(number, (storage, 0))
        if known is not None:
            self.saved[number] = known[0], known[1] + 1

    def let_go(self) -> list[int]:
        """The numbers of the storages that the program has dropped since the last call, in order."""
        gone = []
        for number, known in list(self.saved.items()):
            if known is not None and self._count(known[0]) <= self.own + known[1]:
                del self.saved[number]
                gone.append(number)
        return sorted(gone)

    def need(self, number: int) -> bool:
        """Autograd needs a storage again. Returns whether the program still keeps it."""
        return self.saved.pop(number, None) is not None
