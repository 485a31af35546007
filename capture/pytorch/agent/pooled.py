"""A plan that chooses addresses: the pool serves it in a Carrier's place.

It begins and ends where a step ends, on the training thread: its first entry is the first allocation after
the place where its recording began, so a plan that began anywhere else would not fit. The pool exists as long
as somebody needs it; then torch's own table is back.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from .carry import Carrier
from .pool import Pool
from .says import Refused, Says

if TYPE_CHECKING:
    from .kinds import Moved, Plan


class Pooled:
    """Carries out a plan that chooses addresses. What is saved for backward stays where it is, so that a
    window may be told of it meanwhile."""

    differs = False  # nothing is made again
    took = 0, 0  # nor copied
    window: Any = None

    def __init__(self, torch: Any, plan: Plan) -> None:
        self.torch, self.plan, self.why = torch, plan["pool"], ""
        self.pool = Pool(torch, plan["library"], plan["device"])
        self.thread = 0
        self.missed = 0
        self.watcher: Carrier | None = None

    def begin(self) -> None:
        why = self.pool.arm(self.plan)
        if why:
            raise Refused(why)
        self.thread = threading.get_ident()

    def next(self) -> Moved:
        """A step has ended. What a Carrier moves, a pool does not; missed are the allocations that torch
        had to serve."""
        self.pool.step()
        if self.watcher is not None:
            self.watcher.next()
        figures = self.pool.counters()
        if not figures["armed"]:
            self.why = self.why or figures["why"] or Says("pool_off")
        was, self.missed = self.missed, figures["missed"]
        return 0, 0, 0, max(self.missed - was, 0), 0, 0

    def remove(self) -> None:
        self.watch = None
        self.pool.remove()

    @property
    def watch(self) -> Any:
        return None if self.watcher is None else self.watcher.watch

    @watch.setter
    def watch(self, window: Any) -> None:
        if self.watcher is None and window is not None:
            self.watcher = Carrier(self.torch, {})
            self.watcher.begin()
        if self.watcher is not None:
            self.watcher.watch = window
        if self.watcher is not None and window is None:
            self.watcher.remove()
            self.watcher = None
