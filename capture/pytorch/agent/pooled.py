"""Joins the pool to the agent: the calls of torch's allocator as a window, and a plan that chooses addresses
in a Carrier's place.

Both begin and end where a step ends, on the training thread: a plan's first entry is the first allocation
behind the place where its recording began, so a plan that began anywhere else would not fit. The pool is
there for as long as one of them needs it, and then torch's own table is back.
"""

import threading

from .carry import Carrier
from .pool import Pool, Refused


class Pooled(object):
    """Carries out a plan that chooses addresses. What is saved for backward stays where it is, so that a
    window may be told of it meanwhile."""

    differs = False  # nothing is made again

    def __init__(self, torch, plan):
        self.torch, self.plan, self.why = torch, plan["pool"], ""
        self.pool, self.thread, self.missed, self.watcher = (
            Pool(torch, plan["library"], plan["device"]),
            0,
            0,
            None,
        )

    def begin(self):
        why = self.pool.arm(self.plan)
        if why:
            raise Refused(why)
        self.thread = threading.get_ident()

    def next(self):
        """A step has ended. What a Carrier moves, a pool does not; missed are the allocations that torch
        had to serve."""
        self.pool.step()
        if self.watcher is not None:
            self.watcher.next()
        figures = self.pool.counters()
        if not figures["armed"]:
            self.why = self.why or figures["why"] or "the pool serves nothing any more"
        was, self.missed = self.missed, figures["missed"]
        return 0, 0, 0, max(self.missed - was, 0), 0, 0

    def remove(self):
        self.watch = None
        self.pool.remove()

    @property
    def watch(self):
        return None if self.watcher is None else self.watcher.watch

    @watch.setter
    def watch(self, window):
        if self.watcher is None and window is not None:
            self.watcher = Carrier(self.torch, {})
            self.watcher.begin()
        if self.watcher is not None:
            self.watcher.watch = window
        if self.watcher is not None and window is None:
            self.watcher.remove()
            self.watcher = None
