"""Which phase of a step the ops of a thread belong to."""

from __future__ import annotations

import threading
from typing import Any

from .compat import graph_task

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


class Phases:
    """The phase of the thread that made this object, and of the autograd threads that work for it."""

    def __init__(self, torch: Any) -> None:
        self.outside = FORWARD  # the phase outside a backward pass: OPTIMIZER while an optimizer steps
        self.rooting = False  # backward() has been called, but its graph does not run yet
        self.thread = threading.get_ident()
        self.graph_task = graph_task(torch)

    def now(self) -> str:
        return BACKWARD if self.rooting or self.graph_task() != -1 else self.outside

    def elsewhere(self) -> bool:
        """Whether the current thread is another training thread, on which module hooks run too. An autograd
        thread is not: it belongs to the pass that it works for."""
        return threading.get_ident() != self.thread and self.graph_task() == -1
