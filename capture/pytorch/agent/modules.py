"""The name of the module that an op belongs to."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .compat import autograd_node, next_sequence, sequence_of

if TYPE_CHECKING:
    from .kinds import Module

PRUNED = 4096  # names beyond which those of modules that are gone are dropped


class Named:
    """A module's name. own says that the names of its submodules begin with it."""

    __slots__ = ("module", "name", "own")

    def __init__(self, module: Module, name: str, own: bool) -> None:
        self.module, self.name, self.own = weakref.ref(module), name, own


class Names:
    """The names of modules, the same in every step, window and plan. A root module has the name of its class,
    with a number from the second one on, in the order in which they first ran. A submodule has the
    name that its root gives it; if a module of another root has that name, the root's name comes first."""

    def __init__(self) -> None:
        self.known: dict[int, Named] = {}  # by id
        self.taken: dict[str, weakref.ref[Module]] = {}

    def forget(self) -> None:
        """The agent leaves: forget all names."""
        self.known.clear()
        self.taken.clear()

    def of(self, module: Module) -> Named:
        """The name of a module. If it has none, it is a root."""
        there = self.known.get(id(module))
        if there is None or there.module() is not module:
            self._root(module)
            there = self.known[id(module)]
        return there

    def _root(self, module: Module) -> None:
        """Name a root module and all its submodules that have no name yet."""
        if len(self.known) > PRUNED:
            self.known = {k: x for k, x in self.known.items() if x.module() is not None}
            self.taken = {name: there for name, there in self.taken.items() if there() is not None}
        kind, new = self._free(type(module).__name__), []
        for name, child in module.named_modules():
            there = self.known.get(id(child))
            if there is None or there.module() is not child:
                new.append((name, child))
        own = any(name and self._takes(name) for name, _ in new)
        for name, child in new:
            named = kind + "." + name if own and name else name or kind
            self.known[id(child)] = Named(child, named, own or bool(name))
            self.taken[named] = weakref.ref(child)

    def _free(self, kind: str) -> str:
        name, n = kind, 1
        while self._takes(name):
            n += 1
            name = "%s#%d" % (kind, n)
        return name

    def _takes(self, name: str) -> bool:
        """Whether a module that still exists has a name."""
        there = self.taken.get(name)
        return there is not None and there() is not None


MODULE_NAMES = Names()


class Modules:
    """The modules that run, and for backward passes the modules that made the nodes."""

    def __init__(self, torch: Any) -> None:
        self.names: dict[int, str] = {}  # by id
        self.running: list[str] = []  # outermost first
        self.made: dict[int, str] = {}  # by node number
        self.node, self.sequence = autograd_node(torch), next_sequence(torch)

    def name(self, module: Module) -> Named:
        """Name a module that is entered outermost, and all its submodules. Returns its own name."""
        there = MODULE_NAMES.of(module)
        for _, child in module.named_modules():
            self.names.setdefault(id(child), MODULE_NAMES.of(child).name)
        return there

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
