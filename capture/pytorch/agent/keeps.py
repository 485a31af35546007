"""How long the program itself keeps what autograd saved.

If a plan swaps or drops a saved tensor, its memory is freed only once nobody else refers to it. The program
often does: a function keeps each tensor that it named until it returns, and a loop keeps its result until the
next one comes. While a window describes a step, autograd's only references are the tensors that the hooks
keep. So once no other reference is left, the program has let go.

Nothing tells us when a reference goes, so we look at the counts before each op. Looking at all of them
would take time that grows with the square of a step's length. If there are many, we look each time at the
large ones, which matter most, at the newest, which are dropped most often, and at a few of the others in
turn. If some of those have gone, we look at all, since a function that returns drops many. A small tensor
may therefore seem to be held for a few ops longer than it was, and leaves later than it could.
"""

from __future__ import annotations

import collections
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterable

from .compat import address_of, storage_references, without_dispatch

if TYPE_CHECKING:
    from .kinds import UntypedStorage
    from .storages import Storage


# How many saved storages are looked at each time: all of up to ALL, else the NEWEST, the large ones, and SOME
# of the others. A storage is large if it has at least 1/LARGE of all saved bytes.
ALL, NEWEST, SOME, LARGE = 64, 24, 8, 32


class Keeps:
    """Counts the references to each saved storage that are not autograd's. If torch cannot count references,
    nothing is known."""

    def __init__(self, torch: Any) -> None:
        # by number: the storage, and how many tensors of it the hooks keep; None if no longer known
        self.saved: dict[int, tuple[weakref.ref[UntypedStorage], int] | None] = {}
        self.newest: collections.deque[int] = collections.deque()
        self.large: dict[int, int] = {}  # their bytes, by number
        self.others: collections.deque[int] = collections.deque()  # in the order of the looks
        self.bytes = 0  # of all storages that were saved in this pass
        self.looks = 0  # at some since the last look at all because one had gone
        self.passes = False  # something was saved since the last backward pass began
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

    def save(self, number: int, storage: Storage, stays: bool) -> None:
        """Part of a storage was saved. stays says that a hook keeps its own tensor of it. Any other stand-in
        may or may not refer to the storage, so nothing is known about the storage from here on."""
        if self.references is None:
            return
        if not stays:
            self.saved[number] = None
            return
        known = self.saved.get(number, (storage, 0))
        if known is None:
            return
        self.saved[number] = known[0], known[1] + 1
        self.passes = True
        if known[1] == 0:
            self._enters(number, storage.size)

    def _enters(self, number: int, size: int) -> None:
        """A storage is saved for the first time."""
        self.newest.append(number)
        self.bytes += size
        if size * LARGE >= self.bytes:
            self.large[number] = size
            if len(self.large) > 2 * LARGE:  # what was large at first
                small = [n for n, size in self.large.items() if size * LARGE < self.bytes]
                for n in small:
                    del self.large[n]
        if len(self.newest) > NEWEST:
            self.others.append(self.newest.popleft())

    def let_go(self, begins: bool = False) -> list[int]:
        """The numbers of the storages that the program has dropped since the last call, in order. begins says
        that a backward pass may begin here."""
        if begins and self.passes:
            self.passes, self.bytes = False, 0
            return sorted(self._look(list(self.saved)))
        if len(self.saved) <= ALL:
            return sorted(self._look(list(self.saved)))
        gone = self._look(self.newest) + self._look(self.large)
        some = [self.others.popleft() for _ in range(min(SOME, len(self.others)))]
        dropped = self._look(some)
        gone += dropped
        self.others.extend(n for n in some if self.saved.get(n) is not None)
        self.looks += SOME
        if gone and (2 * len(dropped) >= SOME or 4 * self.looks >= len(self.saved)):
            self.looks = 0
            gone += self._look(list(self.saved))
        return sorted(gone)

    def _look(self, numbers: Iterable[int]) -> list[int]:
        """Which of these storages the program has dropped. Those are forgotten. A number may come twice: of
        a storage that was needed, and then saved again."""
        saved, own, references, gone = self.saved, self.own, self.references, []
        for number in numbers:
            known = saved.get(number)
            if known is not None:
                there = known[0]()
                if there is None or references(address_of(there)) <= own + known[1]:  # type: ignore[misc]
                    gone.append(number)
                    del saved[number]
        for number in gone:  # only now, since numbers may be large
            self.large.pop(number, None)
        return gone

    def need(self, number: int) -> bool:
        """Autograd needs a storage again. Returns whether the program still keeps it."""
        self.large.pop(number, None)
        return self.saved.pop(number, None) is not None
