"""The region where a plan sees what is saved: from the entry of the outermost module to its exit.

There we push hooks on saved tensors, and a dispatch mode if the plan must see ops too, only on the training
thread.
"""

from __future__ import annotations

import functools
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
)
from .patch import Patches
from .says import Says

if TYPE_CHECKING:
    from .carry import Carrier
    from .kinds import Module


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
        self.pushed = False
        self.entered = False
        self.gone = False

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

    def remove(self) -> None:
        self.gone = True
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
            self.pop()

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
            self.pop()
            self.carrier.left()

    def push(self, module: Module | None = None) -> None:
        hooks = self.carrier.entering(module)
        if hooks is None:
            return
        if self._others():  # training needs what they make of a tensor, and ours would replace them
            return self.carrier.skip(Says("hooks_of_its_own"))
        try:
            push_saved_hooks(self.torch, *hooks)
            self.pushed = True
        except RuntimeError:
            self.carrier.why = self.carrier.why or Says("hooks_forbidden")
            return
        if self.mode is not None:
            self.mode.__enter__()
            self.entered = True

    def pop(self) -> None:
        self._quit()
        if self.pushed:
            pop_saved_hooks(self.torch)
            self.pushed = False

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
            if region.pushed and threading.get_ident() == region.thread:
                pop_saved_hooks(region.torch)
                region.pushed = False
                now = region.carrier.now
                now.why = now.why or Says("func_inside")
            return original(*args, **kwargs)

        return disable
