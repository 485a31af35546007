"""Where a step of training ends, and how long its parts took.

A step ends where the first optimizer of the period has stepped. Another one's step, and one inside of
another's, end none. For optimizers that are not in torch.optim see unlisted.py.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from .process import stepping_threads
from .tally import FOLLOWED, Tally

if TYPE_CHECKING:
    from .kinds import Optimizer

# backward passes without a step after which that is said: more than gradients are accumulated over
UNSTEPPED = 200
UNKNOWN = 0  # in the place of a thread: that of a counted step, which nobody looked up
CLOSURE = 0  # stands in for the id of an optimizer where its closure runs
ELSEWHERE = 64  # steps of other optimizers after which the first is taken to be out of use


class Running:
    """What one thread is inside of."""

    def __init__(self, optimizer: int, begin: int) -> None:
        # optimizers whose step runs, the outermost first, and closures that they called
        self.stack = [optimizer]
        self.begin = begin  # of the outermost one's step
        self.closure_begin = 0  # of the outermost closure

    def leave(self, what: int) -> bool:
        """Leave the innermost of these, and all within it that left by an exception. Returns whether it was
        there."""
        if what not in self.stack:
            return False
        while self.stack.pop() != what:
            pass
        return True


class Steps:
    """Follows optimizers and backward passes. Times are those of the agent's clock."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.running: dict[int, Running] = {}  # by thread, of those that are inside of an optimizer's step
        self.unstepped = 0  # backward passes since an optimizer stepped

    # -- optimizers ------------------------------------------------------------------------------------------

    def follow(self, here: bool) -> None:
        """Switch from counting to following. here: whether the counted step runs in this thread."""
        tally = self.tally
        first, entered = tally.first(), tally.entered
        if entered > 0 and first is not None:
            self.running[threading.get_ident() if here else UNKNOWN] = Running(id(first), entered)
        tally.call = None
        tally.entered = FOLLOWED if self.running else 0

    def optimizer_enters(self, optimizer: Optimizer, now: int, within: bool = False) -> None:
        """An optimizer steps, within another one's step or not. If not, those whose step runs in this thread
        have left by an exception, and so have those of threads that are in no step."""
        here = threading.get_ident()
        if within and here not in self.running and UNKNOWN in self.running:
            self.running[here] = self.running.pop(UNKNOWN)
        outer = self.running.get(here) if within else None
        if outer is not None:
            outer.stack.append(id(optimizer))
        else:
            self.running.pop(here, None)
            if self.running:
                self._forget_those_that_raised()
            self.running[here] = Running(id(optimizer), now)
        self.tally.entered = FOLLOWED

    def _forget_those_that_raised(self) -> None:
        """Forget steps of other threads that ended without their hook."""
        inside = stepping_threads()
        if not inside.difference(self.running):
            self.running.pop(UNKNOWN, None)
        for thread in list(self.running):
            if thread != UNKNOWN and thread not in inside:
                self.running.pop(thread, None)

    def optimizer_leaves(self, optimizer: Optimizer, now: int) -> bool:
        """An optimizer has stepped. Returns whether that was not inside of another one's step."""
        here, tally = threading.get_ident(), self.tally
        running = self.running.get(here)
        if running is None and UNKNOWN in self.running:
            counted = self.running.pop(UNKNOWN)
            if counted.stack[0] == id(optimizer):
                running = self.running[here] = counted
            else:
                self.running[UNKNOWN] = counted
        if running is not None:
            running.leave(id(optimizer))
            if running.stack:
                return False
            self.running.pop(here, None)
            tally.optimizer += now - running.begin
        tally.entered = FOLLOWED if self.running else 0
        tally.stepped += 1
        return True

    def closure_enters(self, now: int) -> None:
        """The optimizer whose step runs calls the program's closure."""
        running = self.running.get(threading.get_ident())
        if running is None:
            return
        if CLOSURE not in running.stack:
            running.closure_begin = now
        running.stack.append(CLOSURE)

    def closure_leaves(self, now: int) -> None:
        """The innermost closure has returned or raised. What it took is no optimizer's time."""
        running = self.running.get(threading.get_ident())
        if running is not None and running.leave(CLOSURE) and CLOSURE not in running.stack:
            self.tally.optimizer -= now - running.closure_begin

    def inside(self) -> bool:
        """Whether this thread may be inside of an optimizer's step. Only hooks tell: a step that raised looks
        as if it still ran, and the thread of a counted step is unknown."""
        return self.tally.entered > 0 or UNKNOWN in self.running or threading.get_ident() in self.running

    def optimizing(self) -> bool:
        """Whether an optimizer's own code runs in this thread."""
        running = self.running.get(threading.get_ident())
        return running is not None and running.stack[-1] != CLOSURE

    def heard_again(self) -> bool:
        """An optimizer has stepped. Returns whether none had for so long that it was said."""
        silent, self.unstepped = self.unstepped >= UNSTEPPED, 0
        return silent

    def ends(self, optimizer: Optimizer) -> bool:
        """Whether a step of training ends with this one of an optimizer."""
        tally = self.tally
        first = tally.first()
        if first is None or tally.others >= ELSEWHERE:
            tally.ends_with(optimizer)
            return True
        tally.others = 0 if first is optimizer else tally.others + 1
        return first is optimizer

    def end_elsewhere(self, crossed: dict[int, int], optimizers: list[Optimizer]) -> None:
        """Have steps end with the optimizer across whose step the fewest bytes wait for their backward pass,
        of those that stepped."""
        tally = self.tally
        first = tally.first()
        least = min(optimizers, key=lambda o: crossed.get(id(o), sys.maxsize), default=None)
        if least is not None and crossed.get(id(least), 0) < crossed.get(id(first), 0):
            tally.ends_with(least)
            tally.half_seen()  # the one that runs ends early

    def skipped(self) -> bool:
        """A scaler of gradients was updated. Returns whether a step of training ends with it: the scaler met
        an infinity and did not step the optimizer."""
        tally = self.tally
        return tally.stepped == 0 and tally.first() is not None and tally.begin is not None

    def next(self, now: int, skipped: bool) -> None:
        """The next step begins."""
        self.tally.next(now, 0 if skipped else 1)

    # -- backward passes -------------------------------------------------------------------------------------

    def backward_left(self, took: int) -> bool:
        """A backward pass has returned. Returns whether it is time to say that no optimizer steps."""
        self.tally.backward += took
        self.unstepped += 1
        return self.unstepped == UNSTEPPED
