"""The optimizers of the program, as far as they have stepped. They are known weakly: the program may drop
them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from .kinds import Device, Optimizer, Tensor


class Optimizers:
    def __init__(self) -> None:
        self.known: list[weakref.ref[Any]] = []

    def add(self, optimizer: Optimizer) -> bool:
        """Note one that steps, and say whether it is new."""
        for there in self.known:
            if there() is optimizer:
                return False
        self.known = [there for there in self.known if there() is not None] + [weakref.ref(optimizer)]
        return True

    def alive(self) -> list[Optimizer]:
        return [o for o in (there() for there in self.known) if o is not None]

    def parameters(self) -> Iterator[Tensor]:
        for o in self.alive():
            for group in o.param_groups:
                yield from group["params"]

    def device(self) -> Device | None:
        """Where the first parameter is, None before there is one."""
        return next((p.device for p in self.parameters()), None)
