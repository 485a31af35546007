"""Names for the types of what is torch's, and for tuples that several modules hand to each other.

Only type checkers read this module: it is in no bundle. torch is not there where the agent is checked, so
what the agent asks of torch's types stands here. A tensor answers to so much that it is Any.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Protocol, Tuple, Union

Tensor = Any
DType = Any


class Device(Protocol):
    type: str
    index: int  # of a GPU


class UntypedStorage(Protocol):
    device: Device

    def nbytes(self) -> int: ...


class Module(Protocol):
    def parameters(self) -> Iterator[Tensor]: ...
    def buffers(self) -> Iterator[Tensor]: ...
    def named_parameters(self) -> Iterator[tuple[str, Tensor]]: ...
    def named_buffers(self) -> Iterator[tuple[str, Tensor]]: ...
    def named_modules(self) -> Iterator[tuple[str, Module]]: ...


class Optimizer(Protocol):
    state: dict[Tensor, Any]

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...


class Carries(Protocol):
    """What carries a plan out, where a step ends and on the training thread."""

    why: str  # it is to end, "" where it is not
    differs: bool  # something came back that was not the same
    took: tuple[int, int]  # nanoseconds that the copies of the last step took, out and back
    watch: Any  # is told of what is saved and loaded
    window: Any  # is told of what waits on the host

    @property
    def thread(self) -> int: ...
    def begin(self) -> None: ...
    def next(self) -> Moved: ...
    def remove(self) -> None: ...


Op = Any  # an OpOverload, as a dispatch mode is handed it

Clock = Callable[[], int]  # nanoseconds
Row = Tuple[Any, ...]  # of a recording, see lines.py
Look = Tuple[str, int, int, int, int]  # device, its index, bytes ever asked for, bytes held, bytes that came
Timer = Tuple[Any, Any, Any]  # the event before a kernel, the one behind it, their stream
Chance = Union[None, Tuple[()], Tuple[int, str, Any]]  # see chance_of
Info = Tuple[str, Any, List[Tuple[int, str]], Chance]  # see Rerun._info
Plan = Dict[str, Any]
Entry = Dict[str, Any]  # what a plan says of one saved tensor
Moved = Tuple[int, int, int, int, int, int]  # see Carrier.next
# means, steps, whether saves are told of, the pool's library, orders
Wish = Tuple[str, int, bool, str, List[int]]
