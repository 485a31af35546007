"""The agent's entry point: viewers start the agent in a process through it."""

from __future__ import annotations

import sys
import threading

from .agent import Agent
from .compat import step_hooks
from .link import refuse
from .process import initializing, silent, too_old
from .says import Says
from .tally import MARK


def reach(path: str) -> None:
    """Start in a process that may have missed the agent at launch. Do nothing if it is still importing torch,
    does not train or already has an agent; the viewer asks again."""
    torch = sys.modules.get("torch")
    if torch is None or initializing(torch) or silent():
        return
    if not any(getattr(hook, MARK, None) is True for hook in step_hooks()):
        attach(path)


def attach(path: str) -> None:
    """Start in a running process, on any thread."""
    if "torch" not in sys.modules:
        refuse(path, Says("torch_not_loaded"))
    elif too_old(sys.modules["torch"]):
        refuse(path, too_old(sys.modules["torch"]))
    elif any(t.name == "gmemtop" for t in threading.enumerate()):
        refuse(path, Says("agent_lives"), "agent_lives")
    else:
        Agent(path, False).attach()
