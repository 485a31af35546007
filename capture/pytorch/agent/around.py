"""Wrappers that the agent puts around functions of torch and of the program: the backward pass, the update of
a gradient scaler, and the closure that an optimizer calls.
"""

from __future__ import annotations

import functools
import os
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any, Callable

from .compat import compiled_graphs, graph_task
from .process import optimizing, runs_twice
from .says import Says
from .steps import UNSTEPPED
from .tally import Tally
from .unlisted import SILENT, Unlisted

if TYPE_CHECKING:
    from .agent import Agent

UNSEEN = 0  # in the place of a thread: a pass that we did not see begin


def around_backward(agent: Agent, original: Callable[..., Any]) -> Callable[..., Any]:
    """Time backward passes, and look for steps after them that no hook reports."""
    # torch lists its functions once, for good, when something first asks which can be overridden. If our
    # wrapper is in that list, it must not keep the agent alive.
    there, clock, task = weakref.ref(agent), agent.clock, graph_task(agent.torch)
    tally = agent.tally

    def backward(*args: Any, **kwargs: Any) -> Any:
        begin = clock()
        # Only counted, as in tally.py. Nothing here raises an error of its own, so nothing guards it.
        if begin < tally.calm and not tally.passing:
            tally.passing = True
            try:
                return original(*args, **kwargs)
            finally:
                tally.backward += clock() - begin
                tally.passing = tally.passes
        agent, here, passes = there(), threading.get_ident(), tally.passes
        if agent is None or agent.guard.dead or _within_another(tally, here, task, code):
            return original(*args, **kwargs)
        steps = agent.steps
        # Another thread's backward pass says nothing about the ops of the described thread.
        window = agent.windows.here() if agent.windows.open is not None else None
        passes.add(here)
        if window is not None:
            window.rooting(True)
        try:
            _look_for_steps(agent, True)
            return original(*args, **kwargs)
        finally:
            if window is not None:
                window.rooting(False)
            passes.discard(here)
            if steps.backward_left(clock() - begin):
                tally.wake()  # the next one that steps takes it back
                agent.outbox.say(Says("no_optimizer_steps", UNSTEPPED), "steps")
            _look_for_steps(agent, False)

    code = backward.__code__
    return functools.wraps(original)(backward)


def _within_another(tally: Tally, here: int, task: Callable[[], int], code: types.CodeType) -> bool:
    """Whether the backward pass that begins here is nested in another one. code is our wrapper's."""
    if here in tally.passes:
        return True
    if task() != -1:
        if not tally.passing:
            # The outer pass did not call torch.autograd.backward. More like it will come, so from now on
            # every pass is followed.
            tally.passes.add(UNSEEN)
        return True
    return tally.passing is True and runs_twice(code)


def _look_for_steps(agent: Agent, begins: bool) -> None:
    """A backward pass begins or has returned. If no optimizer of torch steps, look for another's steps."""
    steps, unlisted = agent.steps, agent.unlisted
    try:
        if agent.guard.dead:
            return  # detached during the pass: nobody would remove a hook that is installed now
        if compiled_graphs() > 0:
            agent.forget_unlisted()  # torch.compile traces module hooks, and compiles again when one changes
        elif unlisted is not None and begins:
            unlisted.backward_enters()
        elif unlisted is not None:
            unlisted.backward_left()
        elif agent.tally.first() is None and steps.unstepped >= SILENT and not optimizing():
            agent.unlisted = Unlisted(agent.torch, agent.unlisted_stepped, agent.guard.broke)
            agent.hooks.append(agent.unlisted.hook)
    except BaseException as e:
        if agent.caught(e):
            raise


def around_update(agent: Agent, original: Callable[..., Any]) -> Callable[..., Any]:
    """Count the steps that a gradient scaler skips."""
    there = weakref.ref(agent)

    @functools.wraps(original)
    def update(*args: Any, **kwargs: Any) -> Any:
        agent, out = there(), original(*args, **kwargs)
        if agent is not None and not agent.guard.dead:
            try:
                now = agent.clock()
                if agent.unlisted is None and agent.steps.skipped() and os.getpid() == agent.pid:
                    agent.boundary(now, True)
                agent.tally.stepped = 0
                agent.tally.spent += agent.clock() - now
            except BaseException as e:
                if agent.caught(e):
                    raise
        return out

    return update


def in_closure(there: weakref.ref[Agent], of: weakref.ref[Any], on: bool) -> None:
    """An optimizer calls the program's closure, or the closure has returned."""
    agent = there()
    if agent is None or agent.guard.dead:
        return
    try:
        now, window = agent.clock(), agent.windows.here()
        if on:
            agent.steps.closure_enters(now)
        else:
            agent.steps.closure_leaves(now)
        if window is not None:
            window.in_closure(on)
        optimizer = of()
        if not on and optimizer is not None:
            agent.manager.closure_left(optimizer)
    except BaseException as e:
        if isinstance(e, agent.torch.cuda.OutOfMemoryError) or agent.caught(e):
            raise
