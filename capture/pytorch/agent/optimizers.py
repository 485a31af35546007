"""The optimizers of the program that have stepped, as weak references: the program may drop them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from .kinds import Device, Optimizer, Tensor


class Optimizers:
    def __init__(self) -> None:
        self.known: list[weakref.ref[Any]] = []

    def add(self, optimizer: Optimizer) -> bool:
        """Note an optimizer that steps. Returns whether it is new."""
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
        """The device of the first parameter, None if there is none yet."""
        return next((p.device for p in self.parameters()), None)
