"""Names for the types of what is torch's, and for tuples that several modules hand to each other.

Only type checkers read this module: it is in no bundle. What is torch's is Any, since torch is not there
where the agent is checked; the names say what is meant.
"""

from typing import Any, Callable, Dict, List, Tuple, Union

Tensor = Any
UntypedStorage = Any
Device = Any
DType = Any
Module = Any
Optimizer = Any
Op = Any  # an OpOverload, as a dispatch mode is handed it

Clock = Callable[[], int]  # nanoseconds
Row = Tuple[Any, ...]  # of a recording, see lines.py
Look = Tuple[str, int, int, int, int]  # device, its index, bytes ever asked for, bytes held, bytes that came
Timer = Tuple[Any, Any, Any]  # the event before a kernel, the one behind it, their stream
Chance = Union[None, Tuple[()], Tuple[int, str, Any]]  # see chance_of
Info = Tuple[str, Any, List[Tuple[int, str]], Chance]  # see Again._info
Plan = Dict[str, Any]
Entry = Dict[str, Any]  # what a plan says of one saved tensor
Moved = Tuple[int, int, int, int, int, int]  # see Carrier.next
Wish = Tuple[
    str, int, bool, str, List[int]
]  # means, steps, whether saves are told of, the pool's library, orders
