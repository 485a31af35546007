"""Clears what a backward pass that raised has left in autograd's queue.

Nodes of the graph that had not run stay in the queue of their thread until a later pass of that thread comes
upon them. If there is none, the queue of the main thread is destroyed after Python has ended. A node that
holds hooks on saved tensors, as ours does under a plan, then crashes the process: it takes Python's lock. So
before the process ends, and when a plan ends, a pass of our own makes the thread come upon them.

The queue runs nodes with higher numbers first, and skips those of passes that are over. Numbers rise with
each node that a thread makes. A node made by a fresh thread has the lowest, so all others come before it.
"""

from __future__ import annotations

import threading
from typing import Any

from .compat import graph_task, without_autocast, without_dispatch, without_functions


def clear_leftovers(torch: Any) -> None:
    """Clear the queue of this thread. Never raises."""
    try:
        if graph_task(torch)() != -1:
            return  # a pass is running, and comes upon them itself
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
