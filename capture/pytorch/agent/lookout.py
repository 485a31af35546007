"""Turns the allocator's history on when nothing else would see an out-of-memory error.

Windows begin where a step ends. So if a program dies in its first step, never steps an optimizer, or dies in
an evaluation between two steps, no window would show the request that failed. Therefore the history is on
from the first CUDA call to the end of the first step, in programs that were started with the agent, and in
stretches that last much longer than a step. Ordinary steps cost nothing. Allocations made in a long stretch
before it was noticed have no stacks.

Rejected: leaving it on. It takes microseconds per allocation, more than the agent is allowed to cost.
"""

from __future__ import annotations

import functools
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable

from .compat import memory_stats, records_history, with_cuda
from .recorded import History
from .totals import foreign

if TYPE_CHECKING:
    from .kinds import Clock
    from .patch import Patches
    from .windows import Windows

LONG = 3  # a stretch is long after this many times the newest step
SHORTEST_LONG = 5e8  # the shortest long stretch, in nanoseconds
LONGEST_WAIT = 600.0  # seconds that the history stays on before a first step


class Lookout:
    """Turns the history on and off, on the training thread or the sending thread: torch locks."""

    def __init__(self, torch: Any, clock: Clock, windows: Windows, patches: Patches) -> None:
        self.torch, self.clock, self.windows = torch, clock, windows
        self.pid = os.getpid()
        self.history: History | None = None
        self.theirs = True  # the program may keep its own history, which we would not see
        self.until = 0.0  # when to turn it off if no step ends
        self.patches = patches

    def launched(self) -> None:
        """In a program that has just imported torch: begin when it first uses CUDA."""
        there = weakref.ref(self)
        self.theirs = False

        def begins() -> None:
            lookout = there()
            if lookout is not None and os.getpid() == lookout.pid:
                try:
                    lookout.begin()
                except Exception:
                    pass  # the program's first call of CUDA goes on

        with_cuda(self.torch, begins)
        self.patches.put(self.torch.cuda.memory, "_record_memory_history", self._wrap)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        there = weakref.ref(self)

        @functools.wraps(original)
        def record(*args: Any, **kwargs: Any) -> Any:
            lookout = there()
            if lookout is not None:
                lookout.history, lookout.theirs = None, True
            return original(*args, **kwargs)

        record.original = original  # type: ignore[attr-defined]
        return record

    def begin(self) -> None:
        """Turn the history on, unless it is already on or cannot be turned on."""
        busy = self.history is not None or self.theirs or self.windows.open is not None
        if busy or self.windows.unfinished is not None or foreign(self.torch) is not None:
            return
        if records_history(self.torch):
            return
        history = History(self.torch, self.clock(), "", None)
        history.begin()
        self.history, self.until = history, time.monotonic() + LONGEST_WAIT

    def look(self, begin: int | None, produced: int, lasted: int) -> None:
        """Called by the sending thread: begin in a long stretch, and end if no step comes."""
        if self.history is not None:
            if not produced and time.monotonic() > self.until:
                self.end()
        elif begin is not None and produced > 1 and lasted > 0 and self.torch.cuda.is_initialized():
            if self.clock() - begin > max(SHORTEST_LONG, LONG * lasted):
                self.begin()

    def end(self) -> None:
        """A step has ended: turn the history off."""
        history, self.history = self.history, None
        if history is not None:
            history.unhook()

    def last(self, produced: int) -> None:
        """The program ends: if memory ran out, hand the history over as its last window."""
        history, self.history = self.history, None
        if history is None:
            return
        stats, cuda = memory_stats(self.torch), self.torch.cuda
        if not any(stats(i)["num_ooms"] for i in range(cuda.device_count())):
            return history.unhook()
        history.how, history.index, history.pools = "history", produced, self.windows.pools
        history.orders, history.partial, history.facts = [], True, {}
        history.device = self.torch.device("cuda", cuda.current_device())
        history.steps.append((history.start, self.clock()))
        self.windows.unfinished = history
        self.windows.ready.append(history)
