"""What hooks touch in every step, and hooks for steps that are only counted.

A training step evicts most of the agent from the processor's caches, so a hook costs the objects it touches,
not what it computes. While a step needs no more than four time stamps and a row, its hooks are closures over
one small object.
"""

from __future__ import annotations

import struct
import weakref
from typing import TYPE_CHECKING, Any, Callable

from .ring import NOT_OWN, RING_HEAD, RING_LAST, RING_SLOT

if TYPE_CHECKING:
    from .kinds import Clock, Optimizer

MAX_STEPS = 20000  # how many steps are kept until a viewer comes, about 5 MiB
COUNTED = 6  # how many figures a step has that was only counted
WHOLE_ROW = 32  # and any other step
# A row in the ring: its number, how many figures follow, the figures, the number again. Of a step that was
# only counted the figures are those of its row without the index.
PUT_WHOLE = struct.Struct("%dq" % (3 + WHOLE_ROW)).pack_into
MARK = "gmemtop_agent"  # an attribute of the agent's first hook, by which another copy of the agent knows it
FOLLOWED = -1  # stands in for a time where Steps follows the optimizers


def nobody() -> None:
    """Stands in for a dead weak reference: there is no optimizer."""


def quiet() -> None:
    """Stands in for a bell: nobody sleeps."""


class Tally:
    """Sums for the running step, in nanoseconds, and the rows of steps that have ended. Times are those of
    the agent's clock. It does not refer to the agent, and in a forked child the hooks keep using it."""

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
        "armed",
        "ring",
        "view",
        "at",
        "own",
    )

    def __init__(self, begin: int | None) -> None:
        # the ring of rows that outlives the process, if there is one, and where its next slot begins; own[0]
        # says whether it is this process's own
        self.view: Any = None
        self.at = 0
        self.own: Any = NOT_OWN
        self.reset(begin)

    def reset(self, begin: int | None) -> None:
        """Forget all steps. The running step started at begin."""
        self.calm = 0  # until when steps are only counted; any wish sets it to 0
        self.begin = begin  # None if we did not see the start of the step
        self.backward = self.optimizer = 0
        # when the running optimizer step began; FOLLOWED if Steps follows it, 0 if none runs
        self.entered = 0
        # the keyword arguments of that step, if it is counted: torch gives both hooks the same object
        self.call: Any = None
        self.passes: set[int] = set()  # threads whose backward passes are followed
        self.passing: bool | set[int] = self.passes  # True while a backward pass is only counted
        self.spent = 0  # time spent by the agent
        self.stepped = 0  # steps of optimizers since the scaler of gradients was updated
        self.ends_with(None)
        self.last = 0  # the number of the next step that is followed, whatever the time
        self.produced = 0  # steps that have ended: the number of the next one
        self.rows: list[tuple[Any, ...]] = []
        # whether the sending thread sleeps until a step ends, and what wakes it
        self.armed = False
        self.ring: Callable[[], None] = quiet

    def next(self, begin: int, stepped: int) -> None:
        """A step begins where the previous one ended; stepped optimizer steps already belong to it."""
        self.begin, self.stepped = begin, stepped
        self.backward = self.optimizer = self.spent = 0

    def ends_with(self, optimizer: Any) -> None:
        """Let steps end when this optimizer has stepped; with None, when the next optimizer steps."""
        self.first: Callable[[], Any] = nobody if optimizer is None else weakref.ref(optimizer)
        self.same: Any = None if optimizer is None else weakref.proxy(optimizer)  # equals that optimizer
        self.others = 0  # steps of other optimizers since the first one's

    def rest(self, until: int, left: int) -> None:
        """Only count steps until the time `until`, or until `left` steps have ended, when one is captured."""
        self.last, self.calm = self.produced + left - 1, until

    def add(self, row: tuple[Any, ...]) -> None:
        """Append the row of a step that has ended."""
        self.put(row)
        self.rows.append(row)
        self.produced += 1
        self.trim()

    def put(self, row: tuple[Any, ...]) -> None:
        """Write a row into the ring. One that does not fit ends the ring: the steps are sent all the same."""
        view, number, at = self.view, self.produced + 1, self.at
        if view is None or not self.own[0]:
            return
        try:
            PUT_WHOLE(view, 8 * at, number, WHOLE_ROW, *row, number)
            self.at = at + RING_SLOT if at < RING_LAST else RING_HEAD
        except (struct.error, TypeError, OverflowError):
            self.view = None
            view[0] = 0  # nobody takes what is in it for the newest

    def trim(self) -> None:
        """If too many rows wait, drop the oldest. Hooks that only count skip this; they add few rows."""
        if len(self.rows) > MAX_STEPS:
            del self.rows[: len(self.rows) - MAX_STEPS]

    def wake(self) -> None:
        """Make the next hook do more than count."""
        self.calm = 0

    def announce(self) -> None:
        """A step has ended: wake the sending thread, which sleeps."""
        self.armed = False
        self.ring()

    def half_seen(self) -> None:
        """We did not see the start of the running step, so it gets no row."""
        self.begin = None
        self.wake()  # hooks that only count have no way to leave a row out

    def forward(self, end: int) -> int:
        """The time of a step that ended at `end`, without its backward passes and optimizers."""
        return 0 if self.begin is None else max(end - self.begin - self.backward - self.optimizer, 0)


def counting(
    tally: Tally,
    clock: Clock,
    enters: Callable[[Optimizer, Any, Any], Any],
    leaves: Callable[[Optimizer, Any, Any], None],
    caught: Callable[[BaseException], bool],
) -> tuple[Callable[[Optimizer, Any, Any], Any], Callable[[Optimizer, Any, Any], None]]:
    """Hooks for before and after an optimizer's step. They handle steps that only need counting, and leave
    everything else to enters and leaves, which catch their own errors. caught says whether to raise any other
    error again.

    Between two steps, the program evicts all of this from the processor's caches, so each function called and
    each object touched takes a microsecond or more. That is why the hooks look up no thread, no length of a
    tuple and no weak reference."""
    rest = enters, leaves, caught
    first, last, size = RING_HEAD, RING_LAST, RING_SLOT

    def pre(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        try:
            now = clock()
            if (
                now < tally.calm
                and tally.same == optimizer
                and not kwargs
                and args[-1] is optimizer  # no closure
                and not tally.entered  # checked last: no other thread can run from here on
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
                took, view = tally.optimizer + now - tally.entered, tally.view
                if view is not None and tally.own[0]:
                    number, at = tally.produced + 1, tally.at
                    # one by one: to pack them together takes more of the caches
                    view[at] = number
                    view[at + 1] = 5
                    view[at + 2] = tally.begin
                    view[at + 3] = now
                    view[at + 4] = tally.backward
                    view[at + 5] = took
                    view[at + 6] = tally.spent
                    view[at + 7] = number
                    tally.at = at + size if at < last else first
                tally.rows.append((tally.produced, tally.begin, now, tally.backward, took, tally.spent))
                tally.produced += 1
                tally.begin, tally.stepped, tally.call = now, 1, None
                tally.entered = tally.others = tally.backward = tally.optimizer = 0
                if tally.armed:
                    tally.announce()
                tally.spent = clock() - now
                return
        except BaseException as e:
            if rest[2](e):
                raise
        rest[1](optimizer, args, kwargs)

    setattr(pre, MARK, True)
    return pre, post
