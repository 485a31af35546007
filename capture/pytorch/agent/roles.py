"""Finds out what the tensors of modules and optimizers are, and which module runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable

from .modules import Modules
from .phases import BACKWARD, FORWARD, OPTIMIZER

if TYPE_CHECKING:
    from .kinds import Module, Optimizer
    from .phases import Phases
    from .rows import Rows
    from .storages import Storages
    from .uses import Uses


def _ignore(inputs: Any) -> None:
    """Stands in for the callback once nobody listens."""


class Roles:
    """Is told of modules and optimizers, and gives their storages categories and names."""

    def __init__(
        self,
        torch: Any,
        rows: Rows,
        phases: Phases,
        storages: Storages,
        uses: Uses,
        returns: Callable[[Any], None],
    ) -> None:
        self.torch, self.rows, self.phases = torch, rows, phases
        self.returns = returns  # is called with the inputs of a module that returns
        self.storages, self.uses = storages, uses
        self.modules = Modules(torch)
        self.grad_enabled = torch.is_grad_enabled
        self.parameters: set[int] = set()  # numbers of parameters and buffers
        self.inner: set[int] = set()  # numbers of storages that a module's op made
        self.again = -1  # the number of the newest node for which a checkpoint reran modules
        self.hooks: list[Any] = []

    def hook(self) -> None:
        """Install the hooks that tell when modules run."""
        from torch.nn.modules import module as module_hooks

        self.hooks.append(module_hooks.register_module_forward_pre_hook(self.enter))
        self.hooks.append(module_hooks.register_module_forward_hook(self._leave, always_call=True))

    def unhook(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def forget(self) -> None:
        """Drop the modules and the callback: it belongs to the window, which owns these roles."""
        self.modules.forget()
        self.returns = _ignore

    # -- modules ---------------------------------------------------------------------------------------------

    def module(self, phase: str, again: bool = False) -> str:
        """The name of the module that an op of a phase belongs to, "" for none. again is the result of
        forward_again() in a backward pass."""
        if phase == OPTIMIZER:
            return ""
        return self.modules.behind() if phase == BACKWARD and not again else self.modules.current()

    def forward_again(self) -> bool:
        """Whether, in a backward pass, a checkpoint reruns its forward pass. This is so if modules run, or if
        gradients are on in the node for which modules ran, as between the modules of a checkpointed block."""
        if not self.grad_enabled():
            return False
        node = self.modules.behind_number()
        if self.modules.running:
            self.again = node
        return self.again == node != -1 or bool(self.modules.running)

    def makes(self, made: Iterable[int]) -> None:
        """An op of a forward pass has made these storages."""
        if self.modules.running:
            self.inner.update(made)

    def enter(self, module: Module, inputs: Any) -> None:
        """A module is entered."""
        if self.rows.stopped or self.phases.elsewhere():
            return
        try:
            name = self.modules.names.get(id(module))
            if name is None:
                name = self._root(module)
            if not self.modules.running:
                for t in self.storages.tensors(inputs, []):
                    for number in self.storages.of(t, known=True) if t.grad_fn is None else ():
                        # what a module made is not an input of the next one, for example of a loss
                        if number not in self.inner:
                            self.storages.category.setdefault(number, "input")
            self.modules.running.append(name)
        except Exception as e:
            self.rows.stop(e)

    def _leave(self, module: Module, inputs: Any, outputs: Any) -> None:
        if self.modules.running and not self.phases.elsewhere():
            self.modules.running.pop()
            if self.phases.now() == FORWARD:
                self.returns(inputs)

    def _root(self, module: Module) -> str:
        """Name a root module and all its submodules, parameters and buffers."""
        named = self.modules.name(module)
        prefix = named.name + "." if named.own else ""
        for tensors in (module.named_parameters(), module.named_buffers()):
            for name, t in tensors:
                for number in self.storages.of(t, "parameter", known=True):
                    self.storages.label.setdefault(number, prefix + name)
                    self.parameters.add(number)
        return named.name

    # -- optimizers ------------------------------------------------------------------------------------------

    def optimizer(self, optimizer: Optimizer) -> None:
        """Note an optimizer's parameters, their gradients and its state, as far as they exist."""
        for group in optimizer.param_groups:
            for p in group["params"]:
                numbers = self.storages.of(p, "parameter", known=True)
                self.parameters.update(numbers)
                if p.grad is not None:
                    for n, number in zip(numbers, self.storages.of(p.grad, "gradient", known=True)):
                        self.uses.gradient_of[number] = n
        self.state(optimizer, known=True)

    def state(self, optimizer: Optimizer, known: bool = False) -> None:
        """Note an optimizer's state, which it may have just made."""
        for state in optimizer.state.values():
            for t in self.storages.tensors((state,), []):
                self.storages.of(t, "optimizer_state", known=known)
