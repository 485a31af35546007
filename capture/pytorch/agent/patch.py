"""Puts functions of ours in the place of torch's, and torch's back."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

from .compat import without_dispatch

if TYPE_CHECKING:
    from .kinds import Tensor


class Patches:
    """What was put in whose place."""

    def __init__(self) -> None:
        self.list: list[tuple[Any, str, Any, Any]] = []

    def put(self, owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
        """Put in the place of a function what make returns of it, and return the function."""
        theirs, original = owner.__dict__.get(name), getattr(owner, name)
        ours = make(original)
        setattr(owner, name, ours)
        self.list.append((owner, name, ours, theirs))
        return original

    def undo(self) -> list[str]:
        """Take ours away, and return the names of those that somebody has wrapped since: they stay
        underneath, and pass calls on."""
        left = []
        for owner, name, ours, theirs in reversed(self.list):
            if owner.__dict__.get(name) is not ours:
                left.append(name)
            elif theirs is None:
                delattr(owner, name)
            else:
                setattr(owner, name, theirs)
        self.list = []
        return left

    def subclassing(self, torch: Any) -> None:
        """Have tensors become subclasses under a dispatch mode, as newer torch does by itself: to older
        torch one that comes out of a mode has its type for good, and as_subclass raises."""
        if tuple(int(x) for x in str(torch.__version__).split(".")[:2]) < (2, 6):
            self.put(torch.Tensor, "as_subclass", lambda original: _without_dispatch(torch, original))


def _without_dispatch(torch: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def as_subclass(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        with without_dispatch(torch):
            return original(tensor, *args, **kwargs)

    return as_subclass
