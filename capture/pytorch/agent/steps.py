"""Where a step of training ends, and how long its parts took.

A step ends where the first optimizer of the period has stepped. Another one's step, and one inside of
another's, end none. For optimizers that are not in torch.optim see unlisted.py.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .kinds import Optimizer

# backward passes without a step after which that is said: more than gradients are accumulated over
UNSTEPPED = 200
CLOSURE = 0  # stands in for the id of an optimizer where its closure runs
ELSEWHERE = 64  # steps of other optimizers after which the first is taken to be out of use


class Step:
    """Sums of the step that is running, in nanoseconds. It has no beginning where it was half seen."""

    __slots__ = ("begin", "backward", "optimizer", "spent", "stepped")

    def __init__(self, begin: int | None, stepped: int = 0) -> None:
        self.begin, self.backward, self.optimizer = begin, 0, 0
        self.spent = 0  # by the agent
        self.stepped = stepped  # steps of optimizers since the scaler of gradients was updated

    def forward(self, end: int) -> int:
        """What neither backward passes nor optimizers took of a step that has ended."""
        return 0 if self.begin is None else max(end - self.begin - self.backward - self.optimizer, 0)


class Steps:
    """Follows optimizers and backward passes. Times are those of the agent's clock."""

    def __init__(self, begin: int | None) -> None:
        self.now = Step(begin)
        self.first: weakref.ref[Any] | None = None  # the optimizer that ends a step
        self.others = 0  # steps of other optimizers since the first one's
        # optimizers whose step runs, the outermost first, and closures that they called
        self.stack: list[int] = []
        self.opt_start = self.closure_start = 0
        self.left = 0  # steps until one that is captured
        self.in_backward: set[int] = set()  # threads
        self.unstepped = 0  # backward passes since an optimizer stepped

    # -- optimizers ------------------------------------------------------------------------------------------

    def optimizer_enters(self, optimizer: Optimizer, now: int) -> None:
        if self.stack:
            self._leaves(optimizer)  # it left by an exception the last time
        if not self.stack:
            self.opt_start = now
        self.stack.append(id(optimizer))

    def optimizer_leaves(self, optimizer: Optimizer, now: int) -> bool:
        """An optimizer has stepped. Returns whether that was not inside of another one's step."""
        self._leaves(optimizer)
        if self.stack:
            return False
        step = self.now
        step.optimizer += now - self.opt_start
        step.stepped += 1
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
            self.now.optimizer -= now - self.closure_start

    def optimizing(self) -> bool:
        """Whether an optimizer's own code runs."""
        return bool(self.stack) and self.stack[-1] != CLOSURE

    def _leaves(self, optimizer: Optimizer) -> None:
        if id(optimizer) in self.stack:
            del self.stack[self.stack.index(id(optimizer)) :]

    def heard_again(self) -> bool:
        """An optimizer has stepped. Returns whether none had for so long that it was said."""
        silent, self.unstepped = self.unstepped >= UNSTEPPED, 0
        return silent

    def ends(self, optimizer: Optimizer) -> bool:
        """Whether a step of training ends with this one of an optimizer."""
        first = None if self.first is None else self.first()
        if first is None or self.others >= ELSEWHERE:
            first, self.first = optimizer, weakref.ref(optimizer)
        self.others = 0 if first is optimizer else self.others + 1
        return first is optimizer

    def end_elsewhere(self, crossed: dict[int, int], optimizers: list[Optimizer]) -> None:
        """Have steps end with the optimizer across whose step the fewest bytes wait for their backward pass,
        of those that stepped."""
        first = None if self.first is None else self.first()
        least = min(optimizers, key=lambda o: crossed.get(id(o), sys.maxsize), default=None)
        if least is not None and crossed.get(id(least), 0) < crossed.get(id(first), 0):
            self.first, self.others = weakref.ref(least), 0
            self.now.begin = None  # the one that runs ends early

    def skipped(self) -> bool:
        """A scaler of gradients was updated. Returns whether a step of training ends with it: the scaler met
        an infinity and did not step the optimizer."""
        return self.now.stepped == 0 and self.first is not None and self.now.begin is not None

    def next(self, now: int, skipped: bool) -> None:
        """The next step begins."""
        step = self.now
        step.begin, step.stepped = now, 0 if skipped else 1
        step.backward = step.optimizer = step.spent = 0

    # -- backward passes -------------------------------------------------------------------------------------

    def backward_enters(self, thread: int) -> None:
        self.in_backward.add(thread)

    def backward_leaves(self, thread: int, took: int) -> bool:
        """A backward pass has returned. Returns whether it is time to say that no optimizer steps."""
        self.in_backward.discard(thread)
        self.now.backward += took
        self.unstepped += 1
        return self.unstepped == UNSTEPPED
