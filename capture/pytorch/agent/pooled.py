"""A plan that chooses addresses: the pool runs it instead of a Carrier.

It begins and ends at the end of a step, on the training thread. Its first entry is the first allocation after
the point where its recording began, so a plan that began anywhere else would not fit. The pool exists as long
as somebody needs it; then torch's own table is restored.
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
    """Runs a plan that chooses addresses. Saved tensors stay where they are, so a window can be told of them
    meanwhile."""

    differs = False  # nothing is recomputed
    took = 0, 0  # nothing is copied
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
        """A step has ended. A pool moves nothing; the misses are the allocations that torch had to serve."""
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
