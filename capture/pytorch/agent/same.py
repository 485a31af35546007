"""Checks that a tensor comes back with the bytes that it left with.

It sums a tensor's 64-bit words before the tensor leaves and again before it is used, which needs no memory.
The sums stay on the device until the end of the step, so nothing waits for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .compat import without_autocast, without_dispatch
from .values import bytes_of

if TYPE_CHECKING:
    from .kinds import Tensor, UntypedStorage
    from .values import Value


class Same:
    def __init__(self, torch: Any) -> None:
        self.torch = torch
        # since the end of the last step: the number of a saved tensor, and whether it came back different
        self.compared: list[tuple[int, Tensor]] = []

    def sum(self, storage: UntypedStorage) -> Tensor:
        """The sum of a storage's words, on its device."""
        torch = self.torch
        with without_dispatch(torch), torch.no_grad(), without_autocast(torch):
            flat, words = bytes_of(torch, storage, torch.uint8), storage.nbytes() // 8
            total = flat[: 8 * words].view(torch.int64).sum()
            return total + flat[8 * words :].sum() if storage.nbytes() % 8 else total

    def compare(self, value: Value) -> Tensor:
        """A value has come back. Returns whether it differs: a tensor of one element on its device."""
        with without_dispatch(self.torch), self.torch.no_grad():
            other = self.sum(value.base.untyped_storage()) != value.sum
            self.compared.append((value.entry["save"], other))
        return other

    def verdict(self) -> tuple[int, list[int]]:
        """How many values have come back since the last call, and the numbers of those that differ."""
        compared, self.compared = self.compared, []
        if not compared:
            return 0, []
        # hidden from an open window, which describes the program and not the agent
        with without_dispatch(self.torch), self.torch.no_grad():
            differ = self.torch.stack([other for _, other in compared]).tolist()
        return len(compared), [n for (n, _), other in zip(compared, differ) if other]
