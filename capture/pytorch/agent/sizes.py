"""Saved tensors that are larger than in the plan, since batches differ in shape, for example in padding.

Whether and when a tensor leaves does not depend on its size. Only its place on the host does: a larger tensor
gets its own place there, which is kept for the next ones.

If a plan lists the sizes of all saved tensors, larger ones are noted, so that a viewer can plan again for the
largest step seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .compat import without_dispatch
from .host import HOST_SHARE, host_room

if TYPE_CHECKING:
    from .kinds import Plan, Tensor


class Sizes:
    def __init__(self, torch: Any, plan: Plan) -> None:
        self.torch, self.pinned = torch, plan.get("device", "cpu") != "cpu"
        # the most bytes of each save, -1 if it is not compared; [] if the plan is for one shape
        self.known: list[int] = list(plan.get("sizes", ()))
        self.steps = 0  # steps that had a larger tensor
        self.news = False  # there was such a step since the last report
        self.now: dict[int, int] = {}  # the larger tensors of this step
        self.places: dict[int, Tensor] = {}  # places on the host, by the slot in the slab that is too small

    def saved(self, n: int, t: Tensor) -> None:
        """A tensor is saved as number n."""
        if n < len(self.known) and t.layout == self.torch.strided:
            size = t.untyped_storage().nbytes()
            if 0 <= self.known[n] < size:
                self.now[n] = size

    def next(self, alike: bool) -> None:
        """A step has ended. alike says whether it saved as many tensors as the plan has."""
        now, self.now = self.now, {}
        if now and alike:
            for n, size in now.items():
                self.known[n] = size
            self.steps, self.news = self.steps + 1, True

    def place(self, slot: int, size: int) -> Tensor:
        """A place on the host for a tensor that does not fit its slot in the slab, None if there is no memory
        for one."""
        there = self.places.get(slot)
        if there is None or len(there) < size:
            room = host_room()
            if room is not None and size > room * HOST_SHARE:
                return None
            with without_dispatch(self.torch), self.torch.no_grad():
                there = self.torch.empty(size, dtype=self.torch.uint8, device="cpu", pin_memory=self.pinned)
            self.places[slot] = there
        with without_dispatch(self.torch):  # no op that a description would show
            return there[:size]
