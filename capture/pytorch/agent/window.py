"""What every window has, however its steps are captured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
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
    stopped: bool  # it notes nothing any more
    graphs: int  # CUDA graphs that were replayed
    costs: dict[str, Any]  # what carrying plans out was measured to take, where somebody plans by it
    rooting = False  # backward() has been called and its graph not yet begun to run
    bound = False  # only the thread that began it can end it
    watched = False  # it is told of what autograd saves

    def next(self) -> None:
        """A step has ended."""

    def unhook(self) -> None:
        """Take away what torch holds of it."""
        raise NotImplementedError

    def settled(self) -> bool:
        """Whether it can be put down without waiting for a device."""
        raise NotImplementedError

    def pieces(self, head: dict[str, Any]) -> Iterator[str | bytes]:
        """The window as it is sent, some hundred kilobytes at a time."""
        raise NotImplementedError
