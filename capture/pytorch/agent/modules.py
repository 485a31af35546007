"""The name of the module that an op belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .compat import autograd_node, next_sequence, sequence_of

if TYPE_CHECKING:
    from .kinds import Module


class Modules:
    """The modules that run, and for backward passes the modules that made the nodes."""

    def __init__(self, torch: Any) -> None:
        self.names: dict[int, str] = {}  # by id
        self.running: list[str] = []  # outermost first
        self.made: dict[int, str] = {}  # by node number
        self.node, self.sequence = autograd_node(torch), next_sequence(torch)

    def name(self, module: Module) -> str:
        """Name a root module and all its submodules. Returns the root's own name."""
        kind = type(module).__name__
        for name, child in module.named_modules():
            self.names.setdefault(id(child), name or kind)
        return self.names.get(id(module), kind)

    def current(self) -> str:
        """The innermost running module, "" for none. The op that made a node is the first to see its
        number."""
        name = self.running[-1] if self.running else ""
        self.made.setdefault(self.sequence() - 1, name)
        return name

    def behind(self) -> str:
        """The module whose op made the node that backward is running, "" if unknown."""
        number = self.behind_number()
        return "" if number < 0 else self.made.get(number, "")

    def behind_number(self) -> int:
        """The number of the node that backward is running, -1 if unknown."""
        node = self.node()
        return -1 if node is None else int(sequence_of(node))

    def forget(self) -> None:
        self.running, self.made = [], {}
