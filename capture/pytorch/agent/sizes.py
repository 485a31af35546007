"""Saved tensors that are larger than in the plan, since batches differ in shape, for example in padding.

Whether and when a tensor leaves does not depend on its size. Only its place on the host does: a larger tensor
gets its own place there, which is kept for the next ones.

If a plan lists the sizes of all saved tensors, larger ones are noted, so that a viewer can plan again for the
largest step seen. Until then a larger step would hold more than the plan promises. So while what it has saved
since the last backward pass exceeds the plan, further tensors leave, which otherwise stay: of those that the
plan names for this, as many as make up for it. First those leave that were saved earlier in the step, the
oldest first, since they are needed last: a step often shows only late that it is larger, as where the number
of objects in a picture decides what its last layers compute. They come back when they are needed. Steps that
are not larger move nothing more.

Rejected: planning for less than the budget, in case a larger step comes (all steps would pay for it, and
nobody knows how much larger the next one is).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .compat import address_of, without_dispatch
from .host import HOST_SHARE, host_room

if TYPE_CHECKING:
    from .kinds import Entry, Plan, Tensor
    from .values import Kept

# for each byte that a step saves beyond the plan, so many leave: what nobody saves grows as well
FOR_EACH = 2


class Sizes:
    def __init__(self, torch: Any, plan: Plan) -> None:
        self.torch, self.pinned = torch, plan.get("device", "cpu") != "cpu"
        # the most bytes of each save, -1 if it is not compared; [] if the plan is for one shape
        self.known: list[int] = list(plan.get("sizes", ()))
        self.steps = 0  # steps that had a larger tensor
        self.news = False  # there was such a step since the last report
        self.now: dict[int, int] = {}  # the larger tensors of this step
        # places on the host, by the slot in the slab that is too small; below 0 if it has none
        self.places: dict[int, Tensor] = {}
        # what the plan says about the first save of each storage: its bytes, and at which save its memory is
        # released if it may leave in a larger step, -1 if not
        self.spills: dict[int, tuple[int, int]] = {n: (size, at) for n, size, at in plan.get("spills", ())}
        self.more = 0  # the bytes that have yet to leave, since the step is larger than planned
        self.loads = 0  # as of the last save: a backward pass frees what was saved before it
        # what was saved since then, stays, and may leave: by the address of its storage, the number of the
        # storage's first save, and its saved tensors
        self.stayed: dict[int, tuple[int, list[weakref.ref[Kept]]]] = {}

    def saved(self, n: int, t: Tensor, loads: int = 0) -> None:
        """A tensor is saved as number n, after so many loads."""
        if n < len(self.known) and t.layout == self.torch.strided:
            size = t.untyped_storage().nbytes()
            if 0 <= self.known[n] < size:
                self.now[n] = size
            if n in self.spills:
                if loads != self.loads:
                    self.loads, self.more, self.stayed = loads, 0, {}
                self.more += FOR_EACH * (size - self.spills[n][0])

    def spill(self, n: int) -> Entry | None:
        """What becomes of save n, which the plan keeps, if the step has saved more than planned."""
        release = self.spills.get(n, (0, -1))[1]
        if release < 0:
            return None
        return {"save": n, "how": "swap", "bytes": 0, "slot": -1 - n, "release": release, "spilled": True}

    def spilled(self, size: int) -> None:
        """So many bytes have left for it."""
        self.more -= size

    def stays(self, n: int, kept: Kept) -> None:
        """Save n stays for now."""
        spill = self.spills.get(n)
        if spill is None:  # not the first of its storage
            known = self.stayed.get(self._key(kept)) if self.stayed else None
            if known is not None and any(there() is not None for there in known[1]):
                known[1].append(weakref.ref(kept))
        elif spill[1] >= 0:
            self.stayed[self._key(kept)] = n, [weakref.ref(kept)]

    def _key(self, kept: Kept) -> int:
        t = kept.tensor
        return address_of(t.untyped_storage()) if t.layout == self.torch.strided else 0

    def follow(self, n: int) -> tuple[Entry, list[Kept]] | None:
        """Before save n, while the step has saved more than planned: the oldest storage that stayed and that
        the forward pass needs no more. Returns what becomes of it, and its saved tensors; None if there is
        none."""
        if self.more <= 0:
            return None
        for key, (first, holders) in list(self.stayed.items()):
            if self.spills[first][1] < n:  # at n itself the op that read it may not have returned
                del self.stayed[key]
                saved = [kept for there in holders if (kept := there()) is not None]
                entry = self.spill(first)
                if saved and entry is not None:
                    entry["release"] = n
                    return entry, saved
        return None

    def next(self, alike: bool) -> None:
        """A step has ended. alike says whether it saved as many tensors as the plan has."""
        self.more = self.loads = 0
        self.stayed = {}
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
