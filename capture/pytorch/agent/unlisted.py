"""Find the steps of an optimizer that is not in torch.optim, such as Keras's or fastai's, or a few lines in
the training loop. No hook of torch reports such a step.

Such a step runs between a backward pass and the next forward pass. It changes parameters, and it clears or
drops gradients. So we look at a few parameters and their gradients after each backward pass, and again when
the next module is entered. If any of them has changed, a step has ended; if none has, the program accumulates
gradients. Some programs change parameters in a way that torch does not count (p.data) and clear gradients
just before the next backward pass. Once we have seen that, every backward pass ends a step.

Rejected: comparing values, since that waits for the GPU; ending a step at every backward pass from the start,
since a plan would then see the loads of a step before its saves.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator

from .compat import graph_task, version_of

if TYPE_CHECKING:
    from .kinds import Module, Tensor

LOOKED = 4  # parameters that are looked at
SEARCHED = 256  # parameters among which those are chosen
SILENT = 8  # backward passes without a step of a torch optimizer before we look for other steps


class Unlisted:
    """Stands in for an optimizer that torch does not know. Its param_groups are the parameters that it may
    change; its state is unknown, and therefore empty."""

    def __init__(
        self,
        torch: Any,
        stepped: Callable[[Unlisted, Module, Any], None],
        broke: Callable[[BaseException], None],
    ) -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook

        self.graph_task = graph_task(torch)
        self.stepped = stepped  # called when a step has ended, with the module that is entered
        self.broke = broke  # called with an error of ours
        self.state: dict[Tensor, Any] = {}
        self.thread = threading.get_ident()
        self.modules: list[weakref.ref[Module]] = []  # the first ones entered after backward passes
        self.looked: list[weakref.ref[Tensor]] = []
        self.before: list[tuple[int, ...]] = []  # _look after the newest backward pass, or []
        self.behind = True  # no module has been entered since the last backward pass
        self.late = False  # gradients are cleared between the forward and the backward pass
        self.hook = register_module_forward_pre_hook(self._enter)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [{"params": self._parameters()}]

    def _parameters(self) -> Iterator[Tensor]:
        seen = set()
        for there in self.modules:
            module = there()
            for p in () if module is None else module.parameters():
                if p.requires_grad and id(p) not in seen:
                    seen.add(id(p))
                    yield p

    def backward_enters(self) -> None:
        """A backward pass begins."""
        if threading.get_ident() == self.thread and not self.behind:
            self.late = self.late or self._changed()

    def backward_left(self) -> None:
        """A backward pass has returned."""
        if threading.get_ident() != self.thread:
            return
        # a backward pass that updates as it goes leaves no gradients: do not go through all parameters then
        first = itertools.islice(self._parameters(), SEARCHED)
        learning = (p for p in first if p.grad is not None)
        self.looked = [weakref.ref(p) for p in itertools.islice(learning, LOOKED)]
        self.before, self.behind = self._look(), True

    def _changed(self) -> bool:
        return bool(self.before) and self._look() != self.before

    def _look(self) -> list[tuple[int, ...]]:
        return [_counts(p) for p in (there() for there in self.looked) if p is not None]

    def _enter(self, module: Module, inputs: Any) -> None:
        if not self.behind or threading.get_ident() != self.thread or self.graph_task() != -1:
            return
        self.behind = False
        try:
            ends = self._changed() or self.late
            if all(there() is not module for there in self.modules):
                alive = [there for there in self.modules if there() is not None]
                self.modules = [*alive, weakref.ref(module)]
        except BaseException as e:
            return self.broke(e)
        if ends:
            self.stepped(self, module, inputs)


def _counts(p: Tensor) -> tuple[int, ...]:
    """A key that changes when a parameter or its gradient is changed, or its gradient is replaced."""
    grad = p.grad
    return (version_of(p), 0, 0) if grad is None else (version_of(p), id(grad), version_of(grad))
