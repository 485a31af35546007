"""The region where a plan sees what is saved, only on the training thread.

Hooks on saved tensors stay from one step's end to the next, so that what is saved outside of modules counts
too: a loss that the training loop computes, a model whose forward() is called directly, modules of a class
with a __call__ of its own. A program may push hooks of its own meanwhile. They then replace ours, and ours
may only be popped while they are the innermost. A torch that does not tell which hooks are (before 2.8) gets
ours from the entry of the outermost module to its exit.

A dispatch mode, if the plan must see ops too, is entered with the outermost module and left with it: outside
of modules, it would also see what loads data and evaluates.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING, Any, Callable

from .compat import (
    DISABLE,
    enable_saved_hooks,
    graph_task,
    is_innermost,
    pop_saved_hooks,
    push_saved_hooks,
    saved_hooks,
    saved_hooks_disabled,
    top_saved_hooks,
)
from .patch import Patches
from .says import Says

if TYPE_CHECKING:
    from .carry import Carrier
    from .kinds import Module, Tensor


COMPILED = Says("compiled_plan")


class Region:
    """Hooks the modules. A Carrier says what to push, and is told when the region begins and ends."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier, self.torch = carrier, carrier.torch
        self.graph_task = graph_task(self.torch)
        self.disable = getattr(saved_hooks(self.torch), DISABLE)
        self.hooks: list[Any] = []
        self.patches = Patches()
        self.mode: Any = None  # the dispatch mode to enter with the region, if any
        self.thread = 0  # 0 until a thread enters a module
        self.depth = 0
        self.ours: Any = None  # the hook that packs, while our hooks are pushed, and on which thread
        self.on = 0
        self.entered = False
        self.gone = False
        self.top = top_saved_hooks(self.torch)
        self.lasts = False  # our hooks stay when the outermost module is left
        self.pid = os.getpid()

    @property
    def pushed(self) -> bool:
        """Whether our hooks are pushed on this thread."""
        return self.ours is not None and self.on == threading.get_ident()

    @property
    def outside(self) -> bool:
        """Whether what is saved now is saved outside of modules, by hooks that stay there."""
        return self.lasts and self.depth == 0

    def stray(self) -> bool:
        """Whether our hooks are called where they no longer act: after the end of the plan, on a thread that
        the training has left, in a forked child such as a loader's. There they are popped if they can be."""
        stray = self.gone or (
            self.lasts and (threading.get_ident() != self.thread or self.outside and os.getpid() != self.pid)
        )
        if stray and self.top is not None:
            there = self.top(False)
            if there is not None and getattr(there[0], "__self__", None) is self.carrier:
                pop_saved_hooks(self.torch)
        return stray

    def stand(self) -> None:
        """Install the hooks on modules. Raises if torch refuses one; remove() then undoes what was done."""
        from torch.nn.modules import module as hooks

        self.thread = threading.get_ident()
        if self.mode is not None:
            self.patches.subclassing(self.torch)
        self.disable = self.patches.put(saved_hooks(self.torch), DISABLE, self._disabling)
        self.hooks = [
            hooks.register_module_forward_pre_hook(self.enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]
        self.lasts = self.top is not None
        self.extend()

    def extend(self) -> None:
        """A step begins: push the hooks if they should be there between modules too. If something has
        forbidden or pushed hooks, modules try again."""
        try:
            if not self.lasts or self.pushed or self.thread != threading.get_ident():
                return
            if saved_hooks_disabled(self.torch) is None and not self._others():
                self._push(*self.carrier.hooks())
        except Exception as e:
            self.carrier.broke(self.carrier.now, e)

    def remove(self) -> None:
        self.gone = True
        self.pop()
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        self.patches.undo()
        if not self.entered:
            self.mode = None

    def unwind(self) -> None:
        """A step has ended. Undo what is still entered: an exception that does not derive from Exception
        leaves modules without calling hooks."""
        if (self.depth or self.entered) and threading.get_ident() == self.thread:
            self.depth = 0
            self.carrier.places.running.clear()
            self._close()

    def enter(self, module: Module, inputs: Any) -> None:
        """A module is entered."""
        here = threading.get_ident()
        if (
            self.gone  # torch had listed the hooks before they were removed
            or self.graph_task() != -1
            or here != self.thread
            and (self.thread or not self.torch.is_grad_enabled())
        ):
            return
        self.thread = here
        self.depth += 1
        if self.carrier.places.known:
            try:
                self.carrier.places.enter(module)
            except Exception as e:
                self.carrier.broke(self.carrier.now, e)
        # made by torch.compile, which does not compile code that runs under a dispatch mode
        if type(module).__name__ == "OptimizedModule":
            self.carrier.end(self.carrier.now, COMPILED)
            self._quit()
        elif self.depth == 1:
            try:
                self.push(module)
            except Exception as e:
                self.carrier.broke(self.carrier.now, e)

    def _leave(self, module: Module, inputs: Any, outputs: Any) -> None:
        if threading.get_ident() != self.thread or self.graph_task() != -1 or self.depth == 0:
            return
        self.depth -= 1
        if self.carrier.places.known:
            self.carrier.places.leave()
        if self.depth == 0:
            self._close()
            self.carrier.left(inputs, outputs)

    def push(self, module: Module | None = None) -> None:
        hooks = self.carrier.entering(module)
        if hooks is None:
            return
        # training needs what the program's own hooks make of a tensor, and ours would replace them
        if self.covered() if self.pushed else self._others():
            return self.carrier.skip(Says("hooks_of_its_own"))
        try:
            if not self.pushed:
                self._push(*hooks)
        except RuntimeError:
            self.carrier.why = self.carrier.why or Says("hooks_forbidden")
            return
        if self.mode is not None:
            self.mode.__enter__()
            self.entered = True

    def _push(self, packs: Callable[[Tensor], Any], unpacks: Callable[[Any], Tensor]) -> None:
        push_saved_hooks(self.torch, packs, unpacks)
        self.ours, self.on = packs, threading.get_ident()

    def pop(self) -> None:
        """Remove the mode and the hooks. Hooks below others stay, without effect (see stray)."""
        self._quit()
        if self.pushed and not self.covered():
            pop_saved_hooks(self.torch)
            self.ours = None

    def covered(self) -> bool:
        """Whether the program has pushed hooks since ours. Where torch does not tell, ours are there only
        while a module runs, and modules push and pop theirs in turn."""
        if self.top is None:
            return False
        there = self.top(False)
        return there is None or there[0] is not self.ours

    def _close(self) -> None:
        """The outermost module is left, or the step has ended in it."""
        if self.lasts:
            self._quit()
        else:
            self.pop()

    def _quit(self) -> None:
        if self.entered and is_innermost(self.torch, self.mode):
            self.mode.__exit__(None, None, None)
            self.entered = False

    def _others(self) -> bool:
        """Whether there are hooks on saved tensors that are not ours. torch refuses to disable hooks while
        there are any."""
        if saved_hooks_disabled(self.torch) is not None:
            return False  # so there are none
        try:
            self.disable("gmemtop looks")
            return False
        except RuntimeError:
            return True
        finally:
            enable_saved_hooks(self.torch)

    def _disabling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """torch.func raises if there are hooks on saved tensors. So we remove ours before it looks, and torch
        keeps what the module saves from there on."""
        region = self

        @functools.wraps(original)
        def disable(*args: Any, **kwargs: Any) -> Any:
            if region.pushed and not region.covered():
                pop_saved_hooks(region.torch)
                region.ours = None
                if not region.outside:
                    now = region.carrier.now
                    now.why = now.why or Says("func_inside")
            return original(*args, **kwargs)

        return disable
