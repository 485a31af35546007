"""Names for torch's types, and for tuples that modules exchange.

Only type checkers read this module: it is in no bundle. The agent is type-checked without torch installed, so
what it needs from torch's types is declared here. A tensor has so many attributes that it is Any.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Protocol, Tuple, Union

Tensor = Any
DType = Any


class Device(Protocol):
    type: str
    index: int  # the number of a GPU


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
    """Runs a plan. Called at the end of a step, on the training thread."""

    why: str  # why the plan must end, "" if it need not
    differs: bool  # something came back with different bytes
    took: tuple[int, int]  # nanoseconds that the last step's copies took, out and back
    watch: Any  # is told what is saved and loaded
    window: Any  # is told what waits on the host

    @property
    def thread(self) -> int: ...
    def begin(self) -> None: ...
    def next(self) -> Moved: ...
    def remove(self) -> None: ...


Op = Any  # an OpOverload, as passed to a dispatch mode

Clock = Callable[[], int]  # nanoseconds
Row = Tuple[Any, ...]  # a row of a recording, see rows.py
Look = Tuple[str, int, int, int, int]  # device, its index, bytes ever asked for, bytes held, bytes that came
Timer = Tuple[Any, Any, Any]  # the event before a kernel, the one after it, their stream
Chance = Union[None, Tuple[()], Tuple[int, str, Any]]  # see chance_of
Info = Tuple[str, Any, List[Tuple[int, str]], Chance]  # see Rerun._info
Plan = Dict[str, Any]
Entry = Dict[str, Any]  # what a plan says about one saved tensor
Moved = Tuple[int, int, int, int, int, int]  # see Carrier.next
# how to capture, steps, whether to note saves, the pool's library, orders
Wish = Tuple[str, int, bool, str, List[int]]
