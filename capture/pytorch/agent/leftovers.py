"""Empties autograd's queue of what a failed backward pass left in it.

If a backward pass raises, the nodes that have not run yet stay in their thread's queue until the thread's
next pass discards them. If there is no next pass, the main thread's queue is freed at exit, after Python has
shut down. A node with hooks on saved tensors, as under our plans, then needs Python's lock, and the process
crashes. So we run a tiny pass of our own before the process ends, and whenever a plan ends.

The queue runs the highest node number first, and discards nodes of failed passes on the way. Each thread
numbers its nodes from zero, so a node from a new thread has the lowest number and is reached last.
"""

from __future__ import annotations

import threading
from typing import Any

from .compat import graph_task, without_autocast, without_dispatch, without_functions


def clear_leftovers(torch: Any) -> None:
    """Empty the queue of this thread. Never raises."""
    try:
        if graph_task(torch)() != -1:
            return  # a pass is running
        made: list[Any] = []
        thread = threading.Thread(target=_make, args=(torch, made), name="gmemtop, clearing", daemon=True)
        thread.start()
        thread.join()
        leaf, result = made
        with without_functions(torch), without_dispatch(torch), without_autocast(torch):
            torch.autograd.grad(result, leaf)
    except Exception:
        pass


def _make(torch: Any, made: list[Any]) -> None:
    leaf = torch.zeros((), dtype=torch.float32, device="cpu", requires_grad=True)
    made += leaf, leaf.neg()
