"""What hooks touch in every step, and hooks for steps that are only counted.

A training step leaves little of the agent in the processor's caches, so the cost of a hook is the objects it
touches, not what it computes. While a step needs no more than four time stamps and a row, its hooks
are closures over one small object.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .kinds import Clock, Optimizer

MAX_STEPS = 20000  # steps that wait for a viewer to come, about 5 MiB
COUNTED = 6  # figures of a step that was only counted
MARK = "gmemtop_agent"  # an attribute of the agent's first hook, by which another copy of the agent knows it
FOLLOWED = -1  # stands in for a time where Steps follows the optimizers


def nobody() -> None:
    """A reference to no optimizer."""


class Tally:
    """Sums of the step that runs, in nanoseconds, and the rows of steps that have ended. Times are those of
    the agent's clock. It keeps nothing of the agent, and in a child of fork the hooks stay with it."""

    __slots__ = (
        "calm",
        "begin",
        "backward",
        "optimizer",
        "entered",
        "call",
        "passing",
        "passes",
        "spent",
        "stepped",
        "first",
        "same",
        "others",
        "last",
        "produced",
        "rows",
    )

    def __init__(self, begin: int | None) -> None:
        self.reset(begin)

    def reset(self, begin: int | None) -> None:
        """Forget all steps. The one that runs began then."""
        self.calm = 0  # until when steps are only counted; any wish sets it to 0
        self.begin = begin  # None where the step was half seen
        self.backward = self.optimizer = 0
        # when the running optimizer step began; FOLLOWED if Steps follows it, 0 if none runs
        self.entered = 0
        # the keyword arguments of that step, if it is counted: torch gives both hooks the same object
        self.call: Any = None
        self.passes: set[int] = set()  # threads whose backward passes are followed
        self.passing: bool | set[int] = self.passes  # True while one is only counted
        self.spent = 0  # by the agent
        self.stepped = 0  # steps of optimizers since the scaler of gradients was updated
        self.ends_with(None)
        self.last = 0  # the number of the next step that is followed, whatever the time
        self.produced = 0  # steps that have ended: the number of the next one
        self.rows: list[tuple[Any, ...]] = []

    def next(self, begin: int, stepped: int) -> None:
        """A step begins where the one before has ended, with so many steps of optimizers."""
        self.begin, self.stepped = begin, stepped
        self.backward = self.optimizer = self.spent = 0

    def ends_with(self, optimizer: Any) -> None:
        """Have a step end where an optimizer has stepped; with None, where the next optimizer steps."""
        self.first: Callable[[], Any] = nobody if optimizer is None else weakref.ref(optimizer)
        self.same: Any = None if optimizer is None else weakref.proxy(optimizer)  # equals that optimizer
        self.others = 0  # steps of other optimizers since the first one's

    def rest(self, until: int, left: int) -> None:
        """Only count steps until then. After so many, one is captured."""
        self.last, self.calm = self.produced + left - 1, until

    def add(self, row: tuple[Any, ...]) -> None:
        """Append the row of a step that has ended."""
        self.rows.append(row)
        self.produced += 1
        self.trim()

    def trim(self) -> None:
        """If too many rows wait, drop the oldest. Hooks that only count skip this; they add few rows."""
        if len(self.rows) > MAX_STEPS:
            del self.rows[: len(self.rows) - MAX_STEPS]

    def wake(self) -> None:
        """Have the next hook do more than count."""
        self.calm = 0

    def half_seen(self) -> None:
        """The step that runs was not seen from its beginning, so it gets no row."""
        self.begin = None
        self.wake()  # hooks that only count have no way to leave a row out

    def forward(self, end: int) -> int:
        """What neither backward passes nor optimizers took of a step that has ended."""
        return 0 if self.begin is None else max(end - self.begin - self.backward - self.optimizer, 0)


def counting(
    tally: Tally,
    clock: Clock,
    enters: Callable[[Optimizer, Any, Any], Any],
    leaves: Callable[[Optimizer, Any, Any], None],
    caught: Callable[[BaseException], bool],
) -> tuple[Callable[[Optimizer, Any, Any], Any], Callable[[Optimizer, Any, Any], None]]:
    """Hooks for before and after the step of an optimizer. They count what needs no more, and leave all else
    to enters and leaves, which catch their own errors. caught says whether to raise any other error again.

    Between two of its steps a program leaves none of this in the processor's caches, so each function that is
    called and each object that is looked at takes a microsecond or more. That is why the hooks look up no
    thread, no length of a tuple and no weak reference."""
    rest = enters, leaves, caught

    def pre(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        try:
            now = clock()
            if (
                now < tally.calm
                and tally.same == optimizer
                and not kwargs
                and args[-1] is optimizer  # no closure
                and not tally.entered  # checked last: from here on no other thread can run
            ):
                tally.call = kwargs
                tally.entered = now
                return None
        except BaseException as e:
            gone = isinstance(e, ReferenceError) and tally.first() is None  # the first optimizer
            if not gone and rest[2](e):
                raise
        return rest[0](optimizer, args, kwargs)

    def post(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        try:
            now = clock()
            if tally.call is kwargs and now < tally.calm and tally.produced < tally.last:
                took = tally.optimizer + now - tally.entered
                tally.rows.append((tally.produced, tally.begin, now, tally.backward, took, tally.spent))
                tally.produced += 1
                tally.begin, tally.stepped, tally.call = now, 1, None
                tally.entered = tally.others = tally.backward = tally.optimizer = 0
                tally.spent = clock() - now
                return
        except BaseException as e:
            if rest[2](e):
                raise
        rest[1](optimizer, args, kwargs)

    setattr(pre, MARK, True)
    return pre, post
