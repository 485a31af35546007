"""Until when the program itself keeps what autograd saved.

A saved tensor that waits on the host, or is to be made again, frees its memory only once nobody else refers
to it. The program often does: a function keeps each tensor that it gave a name until it returns, a loop its
result until the next one comes. While a window describes a step, the only references that autograd has are
those of the tensors that the hooks keep. So the program has let go where no reference is left beside these.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable

from .compat import address_of, storage_references, without_dispatch

if TYPE_CHECKING:
    from .kinds import UntypedStorage


class Keeps:
    """Counts, for each storage of which autograd saved something, the references to it that are not
    autograd's. Where torch does not count references, nothing is known."""

    def __init__(self, torch: Any) -> None:
        # by number: the storage, and how many tensors the hooks keep of it; None for no longer known
        self.saved: dict[int, tuple[weakref.ref[UntypedStorage], int] | None] = {}
        self.references: Callable[[int], int] | None = storage_references(torch)
        self.own = 0  # references that counting adds, which differs between releases
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
        """Something of a storage was saved. stays says that a hook keeps a tensor of its own for it: any
        other stand-in may refer to the storage or not, and nothing is known of that one from here on."""
        if self.references is None:
            return
        if not stays:
            self.saved[number] = None
            return
        known = self.saved.get(number, (storage, 0))
        if known is not None:
            self.saved[number] = known[0], known[1] + 1

    def let_go(self) -> list[int]:
        """The numbers of the storages that the program has dropped since this was last asked, in order."""
        gone = []
        for number, known in list(self.saved.items()):
            if known is not None and self._count(known[0]) <= self.own + known[1]:
                del self.saved[number]
                gone.append(number)
        return sorted(gone)

    def need(self, number: int) -> bool:
        """Autograd needs a storage again. Whether the program keeps it still."""
        return self.saved.pop(number, None) is not None
