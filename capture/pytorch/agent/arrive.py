"""Begins in a process: the agent's entry, by which viewers bring it in."""

from __future__ import annotations

import sys
import threading

from .agent import Agent
from .compat import step_hooks
from .link import refuse
from .process import initializing, silent, too_old


def reach(path: str) -> None:
    """Begin in a process to which the environment may not have brought the agent, unless it is still
    importing torch, would be silent or has an agent. Whoever asks asks again."""
    torch = sys.modules.get("torch")
    if torch is None or initializing(torch) or silent():
        return
    if not any(type(getattr(hook, "__self__", None)).__name__ == "Agent" for hook in step_hooks()):
        attach(path)


def attach(path: str) -> None:
    """Begin in a running process, on whatever thread this runs."""
    if "torch" not in sys.modules:
        refuse(
            path,
            "torch is not loaded in this process: attach once the program has imported it, or name the "
            "process that trains",
        )
    elif too_old(sys.modules["torch"]):
        refuse(path, too_old(sys.modules["torch"]))
    elif any(t.name == "gmemtop" for t in threading.enumerate()):
        refuse(
            path,
            "an agent lives in this process already, and is not found from here: watch it as the user who "
            "does so, with the same XDG_RUNTIME_DIR",
            "agent_lives",
        )
    else:
        Agent(path, False).attach()
