"""Where a step of training ends, and how long its parts took.

A step ends where the first optimizer of the period has stepped. Another one's step, and one inside of
another's, end none. For optimizers that are not in torch.optim see unlisted.py.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING

from .tally import FOLLOWED, Tally

if TYPE_CHECKING:
    from .kinds import Optimizer

# backward passes without a step after which that is said: more than gradients are accumulated over
UNSTEPPED = 200
CLOSURE = 0  # stands in for the id of an optimizer where its closure runs
ELSEWHERE = 64  # steps of other optimizers after which the first is taken to be out of use


class Steps:
    """Follows optimizers and backward passes. Times are those of the agent's clock."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        # optimizers whose step runs, the outermost first, and closures that they called
        self.stack: list[int] = []
        self.opt_start = self.closure_start = 0
        self.in_backward: set[int] = set()  # threads
        self.unstepped = 0  # backward passes since an optimizer stepped

    # -- optimizers ------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """What was only counted until now is followed."""
        tally = self.tally
        first, entered = tally.first(), tally.entered
        if entered > 0 and first is not None:
            self.stack, self.opt_start = [id(first)], entered
        tally.entered = FOLLOWED if self.stack else 0

    def optimizer_enters(self, optimizer: Optimizer, now: int, within: bool = False) -> None:
        """An optimizer steps, within another one's step or not. If not, those whose step runs have left by
        an exception."""
        if not within:
            self.stack.clear()
            self.opt_start = now
        self.stack.append(id(optimizer))
        self.tally.entered = FOLLOWED

    def optimizer_leaves(self, optimizer: Optimizer, now: int) -> bool:
        """An optimizer has stepped. Returns whether that was not inside of another one's step."""
        key = id(optimizer)
        while key in self.stack and self.stack.pop() != key:  # one that left by an exception
            pass
        if self.stack:
            return False
        tally = self.tally
        tally.entered = 0
        tally.optimizer += now - self.opt_start
        tally.stepped += 1
        return True

    def closure_enters(self, now: int) -> None:
        """The optimizer whose step runs calls the program's closure."""
        if CLOSURE not in self.stack:
            self.closure_start = now
        self.stack.append(CLOSURE)

    def closure_leaves(self, now: int) -> None:
        """The innermost closure has returned or raised. What it took is no optimizer's time."""
        if CLOSURE not in self.stack:
            return
        while self.stack.pop() != CLOSURE:  # an optimizer that left by an exception
            pass
        if CLOSURE not in self.stack:
            self.tally.optimizer -= now - self.closure_start

    def optimizing(self) -> bool:
        """Whether an optimizer's own code runs."""
        return bool(self.stack) and self.stack[-1] != CLOSURE

    def heard_again(self) -> bool:
        """An optimizer has stepped. Returns whether none had for so long that it was said."""
        silent, self.unstepped = self.unstepped >= UNSTEPPED, 0
        return silent

    def ends(self, optimizer: Optimizer) -> bool:
        """Whether a step of training ends with this one of an optimizer."""
        tally = self.tally
        first = tally.first()
        if first is None or tally.others >= ELSEWHERE:
            first, tally.first = optimizer, weakref.ref(optimizer)
        tally.others = 0 if first is optimizer else tally.others + 1
        return first is optimizer

    def end_elsewhere(self, crossed: dict[int, int], optimizers: list[Optimizer]) -> None:
        """Have steps end with the optimizer across whose step the fewest bytes wait for their backward pass,
        of those that stepped."""
        tally = self.tally
        first = tally.first()
        least = min(optimizers, key=lambda o: crossed.get(id(o), sys.maxsize), default=None)
        if least is not None and crossed.get(id(least), 0) < crossed.get(id(first), 0):
            tally.first, tally.others = weakref.ref(least), 0
            tally.half_seen()  # the one that runs ends early

    def skipped(self) -> bool:
        """A scaler of gradients was updated. Returns whether a step of training ends with it: the scaler met
        an infinity and did not step the optimizer."""
        tally = self.tally
        return tally.stepped == 0 and tally.first() is not None and tally.begin is not None

    def next(self, now: int, skipped: bool) -> None:
        """The next step begins."""
        tally = self.tally
        tally.begin, tally.stepped = now, 0 if skipped else 1
        tally.backward = tally.optimizer = tally.spent = 0

    # -- backward passes -------------------------------------------------------------------------------------

    def backward_enters(self, thread: int) -> None:
        self.in_backward.add(thread)
        self.tally.passing = self.tally.passing or thread

    def backward_leaves(self, thread: int, took: int) -> bool:
        """A backward pass has returned. Returns whether it is time to say that no optimizer steps."""
        tally = self.tally
        self.in_backward.discard(thread)
        tally.passing = 0 if tally.passing == thread else tally.passing
        tally.backward += took
        self.unstepped += 1
        return self.unstepped == UNSTEPPED
