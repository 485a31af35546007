"""Which module an op belongs to, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .compat import autograd_node, next_sequence, sequence_of

if TYPE_CHECKING:
    from .kinds import Module


class Modules:
    """The modules that run, and for backward passes those that made their nodes."""

    def __init__(self, torch: Any) -> None:
        self.names: dict[int, str] = {}  # by id
        self.running: list[str] = []  # outermost first
        self.made: dict[int, str] = {}  # by the number of a node
        self.node, self.sequence = autograd_node(torch), next_sequence(torch)

    def name(self, module: Module) -> str:
        """Name a module that no other holds, and all that it holds. Returns the module's own name."""
        kind = type(module).__name__
        for name, child in module.named_modules():
            self.names.setdefault(id(child), name or kind)
        return self.names.get(id(module), kind)

    def current(self) -> str:
        """The innermost module that runs, "" for none. An op that makes a node is the first to see its
        number."""
        name = self.running[-1] if self.running else ""
        self.made.setdefault(self.sequence() - 1, name)
        return name

    def behind(self) -> str:
        """The module whose op made the node that runs in a backward pass, "" if unknown."""
        number = self.behind_number()
        return "" if number < 0 else self.made.get(number, "")

    def behind_number(self) -> int:
        """The number of the node that runs in a backward pass, -1 if unknown."""
        node = self.node()
        return -1 if node is None else int(sequence_of(node))

    def forget(self) -> None:
        self.running, self.made = [], {}
