"""Finds where a training step ends, and how long its parts took.

A step ends where the first optimizer of the period has stepped. Steps of other optimizers, and steps inside
another optimizer's step, end none. For optimizers that are not in torch.optim see unlisted.py.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from .process import stepping_threads
from .tally import FOLLOWED, Tally

if TYPE_CHECKING:
    from .kinds import Optimizer

# report that nothing steps after this many backward passes: more than programs accumulate gradients over
UNSTEPPED = 200
UNKNOWN = 0  # stands in for a thread: the thread of a counted step, which nobody looked up
CLOSURE = 0  # stands in for an optimizer's id while its closure runs
ELSEWHERE = 64  # after this many steps of other optimizers, the first one counts as out of use


class Running:
    """What one thread is inside."""

    def __init__(self, optimizer: int, begin: int) -> None:
        # optimizers whose step runs, outermost first, and the closures that they called
        self.stack = [optimizer]
        self.begin = begin  # when the outermost step began
        self.closure_begin = 0  # when the outermost closure began

    def leave(self, what: int) -> bool:
        """Leave the innermost entry of this kind, and everything inside it, which an exception ended. Returns
        whether there was one."""
        if what not in self.stack:
            return False
        while self.stack.pop() != what:
            pass
        return True


class Steps:
    """Follows optimizers and backward passes. Times are those of the agent's clock."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.running: dict[int, Running] = {}  # by thread, for threads inside an optimizer's step
        self.unstepped = 0  # backward passes since an optimizer stepped

    # -- optimizers ------------------------------------------------------------------------------------------

    def follow(self, here: bool) -> None:
        """Switch from counting to following. here says whether the counted step runs in this thread."""
        tally = self.tally
        first, entered = tally.first(), tally.entered
        if entered > 0 and first is not None:
            self.running[threading.get_ident() if here else UNKNOWN] = Running(id(first), entered)
        tally.call = None
        tally.entered = FOLLOWED if self.running else 0

    def optimizer_enters(self, optimizer: Optimizer, now: int, within: bool = False) -> None:
        """An optimizer begins to step; within says whether it is inside another one's step. If it is not, an
        exception must have ended the steps still noted for this thread. The same is true of threads that are
        no longer in a step."""
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
        """Forget steps of other threads that ended without calling the hook."""
        inside = stepping_threads()
        if not inside.difference(self.running):
            self.running.pop(UNKNOWN, None)
        for thread in list(self.running):
            if thread != UNKNOWN and thread not in inside:
                self.running.pop(thread, None)

    def optimizer_leaves(self, optimizer: Optimizer, now: int) -> bool:
        """An optimizer has stepped. Returns whether its step was the outermost one."""
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
        """The running optimizer step calls the program's closure."""
        running = self.running.get(threading.get_ident())
        if running is None:
            return
        if CLOSURE not in running.stack:
            running.closure_begin = now
        running.stack.append(CLOSURE)

    def closure_leaves(self, now: int) -> None:
        """The innermost closure has returned or raised. Its time does not count as the optimizer's."""
        running = self.running.get(threading.get_ident())
        if running is not None and running.leave(CLOSURE) and CLOSURE not in running.stack:
            self.tally.optimizer -= now - running.closure_begin

    def inside(self) -> bool:
        """Whether this thread may be inside an optimizer's step. We know only what hooks tell: a step that
        raised still seems to run, and the thread of a counted step is unknown."""
        return self.tally.entered > 0 or UNKNOWN in self.running or threading.get_ident() in self.running

    def optimizing(self) -> bool:
        """Whether an optimizer's own code runs in this thread."""
        running = self.running.get(threading.get_ident())
        return running is not None and running.stack[-1] != CLOSURE

    def heard_again(self) -> bool:
        """An optimizer has stepped. Returns whether we had reported that none steps."""
        silent, self.unstepped = self.unstepped >= UNSTEPPED, 0
        return silent

    def ends(self, optimizer: Optimizer) -> bool:
        """Whether a training step ends with this optimizer step."""
        tally = self.tally
        first = tally.first()
        if first is None or tally.others >= ELSEWHERE:
            tally.ends_with(optimizer)
            return True
        tally.others = 0 if first is optimizer else tally.others + 1
        return first is optimizer

    def end_elsewhere(self, crossed: dict[int, int], optimizers: list[Optimizer]) -> None:
        """Let steps end with the optimizer that steps while the fewest bytes wait for their backward pass."""
        tally = self.tally
        first = tally.first()
        least = min(optimizers, key=lambda o: crossed.get(id(o), sys.maxsize), default=None)
        if least is not None and crossed.get(id(least), 0) < crossed.get(id(first), 0):
            tally.ends_with(least)
            tally.half_seen()  # the running step ends early

    def skipped(self) -> bool:
        """A gradient scaler was updated. Returns whether a training step ends with it: the scaler found an
        infinity and skipped the optimizer's step."""
        tally = self.tally
        return tally.stepped == 0 and tally.first() is not None and tally.begin is not None

    def next(self, now: int, skipped: bool) -> None:
        """The next step begins."""
        self.tally.next(now, 0 if skipped else 1)

    # -- backward passes -------------------------------------------------------------------------------------

    def backward_left(self, took: int) -> bool:
        """A backward pass has returned. Returns whether it is time to report that no optimizer steps."""
        self.tally.backward += took
        self.unstepped += 1
        return self.unstepped == UNSTEPPED
