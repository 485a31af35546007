"""Works out what storages are used for, from the ops that read and write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from .phases import BACKWARD, FORWARD

if TYPE_CHECKING:
    from .storages import Storages


class Uses:
    """What the ops of each phase did with storages, by their numbers."""

    def __init__(self, storages: Storages) -> None:
        self.storages = storages
        self.gradient_of: dict[int, int] = {}  # the parameter's number by the gradient's
        self.in_backward = False  # the newest op outside optimizers belonged to a backward pass
        self.touched_forward: set[int] = set()
        self.changed_backward: set[int] = set()
        self.read_backward: set[int] = set()
        # for ops outside modules and optimizers: storages used with a parameter of the same size, and changed
        self.beside_parameters: set[int] = set()
        self.changed_between: set[int] = set()
        self.saved: set[int] = set()  # made in a forward pass, and still alive when a backward pass began

    def runs(self, phase: str) -> None:
        """An op of a phase has run. At the first op of a backward pass, what is left of the forward pass is
        what was saved for backward."""
        if phase == FORWARD:
            self.in_backward = False
        elif phase == BACKWARD and not self.in_backward:
            self.in_backward = True
            born = self.storages.born
            self.saved.update(n for n in self.storages.there() if born[n] == FORWARD)

    def note(
        self,
        phase: str,
        born: str,
        touched: Iterable[int],
        reads: Iterable[int],
        changed: Iterable[int],
    ) -> None:
        """An op touched, read and changed some storages. born is the phase of what the op makes: FORWARD if a
        checkpoint reruns its forward pass in a backward pass."""
        if phase == BACKWARD:
            self.changed_backward.update(changed)
            if born == BACKWARD:
                self.read_backward.update(reads)
        elif phase == FORWARD:
            self.touched_forward.update(touched)

    def between(self, sizes: dict[int, int], parameters: set[int], changed: Iterable[int]) -> None:
        """An op outside modules and optimizers has touched storages of these sizes, possibly parameters, and
        changed some."""
        of_parameters = {size for number, size in sizes.items() if number in parameters}
        self.beside_parameters.update(n for n, size in sizes.items() if size in of_parameters)
        self.changed_between.update(changed)

    def category(self, number: int) -> str:
        """The category of a storage, as package traces names them."""
        found, born = self.storages.category.get(number), self.storages.born[number]
        if found is not None:
            return found
        if born is None:
            if number in self.beside_parameters and number in self.changed_between:
                return "parameter"  # an average of a model's weights
            if number in self.changed_backward and number not in self.touched_forward:
                return "gradient"  # a reducer's bucket
            if number in self.storages.refilled:
                return "temporary"  # parameters that FSDP gathers while they are used
            return "parameter" if number in self.storages.idle else "input"
        if number in self.saved or (born == FORWARD and number in self.read_backward):
            return "activation"
        return "autograd_detail" if born == BACKWARD else "temporary"

    def label(self, number: int) -> str | None:
        """The name of a storage; a gradient has the name of its parameter."""
        return self.storages.label.get(self.gradient_of.get(number, number))
