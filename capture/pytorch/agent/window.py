"""What every window has, however its steps are captured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from .crossings import Crossings
    from .kinds import Module, Optimizer
    from .rows import Rows
    from .totals import Pools


class Window:
    """A stretch of training that is captured. Agent opens and closes it, Sender puts it into frames."""

    # What Agent says of it.
    how: str
    index: int  # of its first step
    orders: list[int]  # that asked for it
    pools: Pools
    partial: bool  # training ended within it

    # What it says of itself.
    start: int
    steps: list[tuple[int, int]]  # when each began and ended
    cost: int  # nanoseconds that it took of training
    lost: int  # rows for which there was no room
    graphs: int  # CUDA graphs that were replayed
    facts: dict[str, Any]  # what a planner has to know of it
    bound = False  # only the thread that began it can end it
    crossings: Crossings | None = None  # of a description
    watched = False  # it is told of what autograd saves
    evaluates = False  # it has seen a forward pass without gradients
    rows: Rows  # of a description
    taken: Any = None  # the snapshot of a history, once there is one

    def begin(self) -> str | None:
        """Begin. Returns why it cannot, if so."""
        raise NotImplementedError

    def on_top(self) -> bool:
        """Whether it can end: nothing of the program's stands inside of it."""
        return True

    def leave(self) -> bool:
        """Leave what only its own thread can, and say whether that is left."""
        return True

    @property
    def stopped(self) -> bool:
        """Whether it notes nothing any more."""
        raise NotImplementedError

    def stop(self) -> None:
        """Note nothing any more."""
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def rooting(self, on: bool) -> None:
        """backward() has been called and its graph does not run yet, or that has returned."""

    def entering_optimizer(self, optimizer: Optimizer) -> None:
        """An optimizer steps."""

    def leaving_optimizer(self, optimizer: Optimizer) -> None:
        """It has stepped."""

    def entering(self, module: Module, inputs: Any) -> None:
        """It began at the entry of a module."""

    def in_closure(self, on: bool) -> None:
        """An optimizer calls the program's closure, or that has returned."""

    def look(self, optimizers: list[Optimizer]) -> None:
        """Take note of what optimizers hold, before the end."""

    def take(self) -> None:
        """Take a history out."""

    def next(self) -> None:
        """A step has ended."""

    def unhook(self) -> None:
        """Take away what torch holds of it."""
        raise NotImplementedError

    def settled(self) -> bool:
        """Whether it can be put down without waiting for a device."""
        return True

    def pieces(self, head: dict[str, Any]) -> Iterator[str | bytes]:
        """The window as it is sent, some hundred kilobytes at a time."""
        raise NotImplementedError
