"""Recognises saved tensors and ops by their place in a step, for plans of programs whose steps run different
ops: recurrent networks on batches of other lengths, layers that are skipped at random, branches.

A place is a module's name, how many backward passes have begun, and a count: the k-th tensor that the module
saves there, or the k-th op of a name that it runs with gradients, or without. So a module that runs longer or
not at all does not move the places of the others. Here a place becomes the number that its tensor or op has
in the planned step, and everything else works with these numbers. What has no place there stays, as without a
plan. A plan may also have rules for places that only other steps have: their numbers come after those of the
planned step, and what has one leaves at once, since they do not tell how far a step is.

A wrong match costs memory and time, but changes no result: what leaves is what returns.

A step fits if autograd keeps no more in it than in the steps that the plan was checked for. So two sums are
compared, each the highest among the step's backward passes: the bytes of all saved tensors, and of those that
stay on the device. Larger steps are reported as larger sizes are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable

from .compat import address_of
from .modules import MODULE_NAMES

if TYPE_CHECKING:
    from .kinds import Module, Plan, Tensor

NOWHERE = -1  # the number of what has no place


class Counts:
    """What was counted in one step."""

    __slots__ = ("passes", "loading", "seen", "stays", "saved", "most", "placed")

    def __init__(self) -> None:
        self.passes = 0  # backward passes that have begun
        self.loading = False  # the last that happened was a load
        self.seen: dict[Any, int] = {}  # saves by (module, passes), ops by (name, graded, module, passes)
        # the bytes of the storages saved since the last pass, by address or by the id of the value
        self.stays: dict[int, int] = {}
        self.saved: dict[int, int] = {}
        self.most = [0, 0]  # of the sums of both
        self.placed = 0  # saved tensors that have a place

    def close(self) -> None:
        """A backward pass begins, or the step ends: what was saved so far belongs together."""
        sums = sum(self.stays.values()), sum(self.saved.values())
        self.most = [max(a, b) for a, b in zip(self.most, sums)]
        self.stays, self.saved = {}, {}


class Places:
    """The places of one plan. `known` is False if the plan has none: its numbers then count whole steps."""

    def __init__(self, torch: Any, plan: Plan) -> None:
        places = plan.get("places")
        self.known = places is not None
        self.torch, self.device = torch, plan.get("device", "cpu")
        self.running: list[str] = []  # outermost first
        self.saves: dict[tuple[str, int, int], int] = {}
        self.loads: dict[int, int] = {}  # by the number of the save
        self.planned = plan.get("saves", 0)  # how many the planned step has
        self.ops: dict[tuple[str, bool, str, int, int], int] = {}
        if places is None:
            return
        modules, seen = places["modules"], {}  # type: ignore[var-annotated]
        for n, (m, passes) in enumerate(places["saves"]):
            k = seen[m, passes] = seen.get((m, passes), -1) + 1
            self.saves[modules[m], passes, k] = n
        for x, n in enumerate(places["loads"]):
            self.loads.setdefault(n, x)
        for name, calls in places["ops"].items():
            for n, m, passes, k in calls:
                self.ops[name, n >= 0, modules[m], passes, k] = n

    # -- the modules that run --------------------------------------------------------------------------------

    def enter(self, module: Module) -> None:
        self.running.append(MODULE_NAMES.of(module).name)

    def leave(self) -> None:
        if self.running:
            self.running.pop()

    def _module(self) -> str:
        return self.running[-1] if self.running else ""

    # -- numbers in the planned step -------------------------------------------------------------------------

    def save(self, counts: Counts) -> int:
        """A tensor is saved."""
        counts.loading = False
        key = self._module(), counts.passes
        k = counts.seen[key] = counts.seen.get(key, -1) + 1
        n = self.saves.get((*key, k), NOWHERE)
        counts.placed += n != NOWHERE
        return n

    def due(self, n: int) -> int:
        """The save of the planned step before which a tensor must be released once save n comes."""
        return n if n < self.planned else 0

    def load(self, counts: Counts, save: int) -> int:
        """A tensor is needed whose number among the saves is known."""
        if not counts.loading:
            counts.close()
            counts.loading = True
            counts.passes += 1
        return self.loads.get(save, NOWHERE)

    def op(self, counts: Counts, name: str, graded: bool) -> int | None:
        """The number of an op that runs now and whose name the plan reruns; None if it has none here."""
        key = name, graded, self._module(), counts.passes
        k = counts.seen[key] = counts.seen.get(key, -1) + 1
        return self.ops.get((*key, k))

    # -- what is kept ----------------------------------------------------------------------------------------

    def keeps(self, counts: Counts, t: Tensor, value: Any) -> None:
        """A tensor was saved. value is where its bytes are, None if they stay."""
        if value is not None:
            counts.saved[id(value)] = value.bytes
            return
        if t.layout != self.torch.strided or str(t.device) != self.device:
            return
        try:
            storage = t.untyped_storage()
            address, size = address_of(storage), storage.nbytes()
        except (NotImplementedError, RuntimeError):  # a wrapper has no storage of its own
            return
        counts.stays[address] = counts.saved[address] = size


def above(most: Iterable[int], known: Iterable[int]) -> bool:
    """Whether a step kept more than any before."""
    return any(a > b for a, b in zip(most, known))
