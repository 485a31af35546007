"""Has the allocator keep its history while an out-of-memory would be seen by nothing else.

Windows begin where a step ends. A program that dies in its first step, one that never steps an optimizer, and
one that dies in an evaluation between two steps would leave no request that failed. So the history is on from
the first call of CUDA to the end of the first step, in programs that were started with the agent, and in
stretches that last much longer than steps do. Usual steps cost nothing. The allocations of a long stretch
that came before it was noticed have no stacks.

Rejected: to leave it on. It takes microseconds for each allocation, which is more than the agent may.
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

LONG = 3  # times the newest step after which a stretch is a long one
SHORTEST_LONG = 5e8  # nanoseconds that it lasts at least
LONGEST_WAIT = 600.0  # seconds for which the history is on before a first step


class Lookout:
    """Turns the history on and off. Its thread is the training's or the sending one: torch locks."""

    def __init__(self, torch: Any, clock: Clock, windows: Windows, patches: Patches) -> None:
        self.torch, self.clock, self.windows = torch, clock, windows
        self.pid = os.getpid()
        self.history: History | None = None
        self.theirs = True  # the program may keep a history of its own, unseen
        self.until = 0.0  # when it goes off if no step ends
        self.patches = patches

    def launched(self) -> None:
        """Begin with CUDA, in a program that has just imported torch."""
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
        """Turn the history on, unless somebody has or nobody can."""
        busy = self.history is not None or self.theirs or self.windows.open is not None
        if busy or self.windows.unfinished is not None or foreign(self.torch) is not None:
            return
        if records_history(self.torch):
            return
        history = History(self.torch, self.clock(), "", None)
        history.begin()
        self.history, self.until = history, time.monotonic() + LONGEST_WAIT

    def look(self, begin: int | None, produced: int, lasted: int) -> None:
        """The sending thread's turn: begin in a stretch that is long, and end where no step comes."""
        if self.history is not None:
            if not produced and time.monotonic() > self.until:
                self.end()
        elif begin is not None and produced > 1 and lasted > 0 and self.torch.cuda.is_initialized():
            if self.clock() - begin > max(SHORTEST_LONG, LONG * lasted):
                self.begin()

    def end(self) -> None:
        """Turn it off: a step has ended."""
        history, self.history = self.history, None
        if history is not None:
            history.unhook()

    def last(self, produced: int) -> None:
        """The program ends: hand the history over as its last window if memory ran out."""
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
