"""Replaces functions of torch with ours, and restores them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

from .compat import without_dispatch

if TYPE_CHECKING:
    from .kinds import Tensor


class Patches:
    """The functions that were replaced."""

    def __init__(self) -> None:
        self.list: list[tuple[Any, str, Any, Any]] = []

    def put(self, owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
        """Replace a function with make(function). Returns the original function."""
        theirs, original = owner.__dict__.get(name), getattr(owner, name)
        ours = make(original)
        setattr(owner, name, ours)
        self.list.append((owner, name, ours, theirs))
        return original

    def undo(self) -> list[str]:
        """Restore the originals. Returns the names of our functions that other code has wrapped since: these
        stay in place and pass calls through."""
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
        """Let tensors become subclasses under a dispatch mode, as newer torch does by itself. In older torch,
        a tensor that comes out of a mode keeps its type for good, and as_subclass raises."""
        if tuple(int(x) for x in str(torch.__version__).split(".")[:2]) < (2, 6):
            self.put(torch.Tensor, "as_subclass", lambda original: _without_dispatch(torch, original))


def _without_dispatch(torch: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def as_subclass(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        with without_dispatch(torch):
            return original(tensor, *args, **kwargs)

    return as_subclass
