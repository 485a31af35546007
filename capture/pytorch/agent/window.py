"""What all windows have in common, however they capture steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from .crossings import Crossings
    from .kinds import Module, Optimizer
    from .rows import Rows
    from .totals import Pools


class Window:
    """A captured stretch of training. Windows opens and closes it, Sender puts it into frames."""

    # Set by Windows.
    how: str
    index: int  # the number of its first step
    orders: list[int]  # the orders that asked for it
    pools: Pools
    partial: bool  # training ended within it

    # Set by the window itself.
    start: int
    steps: list[tuple[int, int]]  # when each began and ended
    cost: int  # nanoseconds that it held training up
    lost: int  # rows for which there was no room
    graphs: int  # CUDA graphs that were replayed
    facts: dict[str, Any]  # what a planner needs to know about it
    bound = False  # only the thread that began it can end it
    crossings: Crossings | None = None  # only of a description
    watched = False  # it is told what autograd saves
    evaluates = False  # it has seen a forward pass without gradients
    rows: Rows  # only of a description
    taken: Any = None  # the snapshot of a history, once there is one

    def begin(self) -> str | None:
        """Begin. Returns why it cannot, if it cannot."""
        raise NotImplementedError

    def on_top(self) -> bool:
        """Whether it can end: no mode of the program is inside it."""
        return True

    def leave(self) -> bool:
        """Leave what only the window's own thread can leave. Returns whether that worked."""
        return True

    @property
    def stopped(self) -> bool:
        """Whether it has stopped recording."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop recording."""
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def rooting(self, on: bool) -> None:
        """backward() has been called but its graph does not run yet, or backward() has returned."""

    def entering_optimizer(self, optimizer: Optimizer) -> None:
        """An optimizer begins to step."""

    def leaving_optimizer(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""

    def entering(self, module: Module, inputs: Any) -> None:
        """The window began where this module was entered."""

    def in_closure(self, on: bool) -> None:
        """An optimizer calls the program's closure, or the closure has returned."""

    def look(self, optimizers: list[Optimizer]) -> None:
        """Note what optimizers hold, before the window ends."""

    def take(self) -> None:
        """Take the snapshot of a history."""

    def next(self) -> None:
        """A step has ended."""

    def unhook(self) -> None:
        """Remove everything of it that torch holds."""
        raise NotImplementedError

    def settled(self) -> bool:
        """Whether it can be written without waiting for a device."""
        return True

    def pieces(self, head: dict[str, Any]) -> Iterator[str | bytes]:
        """The window in the form that is sent, some hundred kilobytes at a time."""
        raise NotImplementedError
