"""Begins in a process: the agent's entry, by which viewers bring it in."""

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
    """Begin in a process to which the environment may not have brought the agent, unless it is still
    importing torch, would be silent or has an agent. The viewer asks again."""
    torch = sys.modules.get("torch")
    if torch is None or initializing(torch) or silent():
        return
    if not any(getattr(hook, MARK, None) is True for hook in step_hooks()):
        attach(path)


def attach(path: str) -> None:
    """Begin in a running process, on whatever thread this runs."""
    if "torch" not in sys.modules:
        refuse(path, Says("torch_not_loaded"))
    elif too_old(sys.modules["torch"]):
        refuse(path, too_old(sys.modules["torch"]))
    elif any(t.name == "gmemtop" for t in threading.enumerate()):
        refuse(path, Says("agent_lives"), "agent_lives")
    else:
        Agent(path, False).attach()
