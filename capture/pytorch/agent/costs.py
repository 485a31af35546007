"""Measures what running a plan costs in this process, by trying it.

On a CPU the training thread itself copies what a plan swaps, and rerunning an op calls Python more than once.
Both are timed with the code that a plan uses, Carrier, on our own tensors and outside modules: no hook of the
program sees it, no random number is drawn, and no gradient of the program is touched. This happens once,
after a described step, and takes some tens of milliseconds.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from .carry import COMPARED_FIRST, Carrier, Iteration, pack, unpack
from .compat import address_of, without_autocast
from .says import Refused, Says

if TYPE_CHECKING:
    from .kinds import Plan, Row, Tensor

SMALL, MOST = 4096, 8 << 20  # bytes of a small tensor, and of all copies of a round in each direction
ROUNDS, CHAIN = 3, 24  # how often each is tried, and how many ops are in a chain


def _median(figures: list[int]) -> int:
    return sorted(figures)[len(figures) // 2]


def carrying_costs(torch: Any, rows: list[Row]) -> dict[str, Any]:
    """The cost of running a plan for the described step. Copies are timed at the size for which half of the
    saved bytes are in tensors at least that large."""
    there = {row[1]: row[2] for row in rows if row[0] == "a"}
    saved: set[int] = set()
    for row in rows:
        if row[0] == "o" and row[3] == "gmemtop::save":
            saved.update(number for number in row[6] if number in there)
    sizes = sorted(there[number] for number in saved)
    half, k = sum(sizes) // 2, 0
    while k + 1 < len(sizes) and half > sizes[k]:
        half, k = half - sizes[k], k + 1
    return Costs(torch).measure(min(sizes[k] if sizes else 0, MOST))


class Costs:
    """Takes the measurements, in nanoseconds. What is compared is measured alternately."""

    def __init__(self, torch: Any) -> None:
        # time that the processor spends on other threads does not count
        self.torch, self.clock = torch, time.thread_time_ns

    def measure(self, size: int) -> dict[str, Any]:
        """The time of swapping `size` bytes out and back, and of swapping a small tensor; and the overhead of
        rerunning an op, beyond the op's own time."""
        torch, size = self.torch, max(size, 16 * SMALL)
        with torch.enable_grad(), without_autocast(torch):
            small, large = self._copies(SMALL, 16), self._copies(size, min(max(MOST // size, 1), 8))
            return {
                "bytes": [SMALL, size],
                "out": [small[0], large[0]],
                "in": [small[1], large[1]],
                "again": self._again(),
            }

    def _carrier(self, plan: Plan) -> Carrier:
        """A Carrier that hooks no module."""
        carrier = Carrier(self.torch, plan)
        carrier.iterations = COMPARED_FIRST  # in most iterations nothing is compared
        carrier.region.thread = threading.get_ident()
        carrier.now = Iteration(carrier)
        if plan.get("slab"):
            carrier.slab = self.torch.zeros(plan["slab"], dtype=self.torch.uint8, device="cpu")
        carrier.region.mode = carrier.mode()
        return carrier

    def _copies(self, size: int, count: int) -> list[int]:
        torch, clock = self.torch, self.clock
        swaps = self._carrier(
            {
                "device": "cpu",
                "slab": size * count,
                "values": [
                    {"save": k, "bytes": size, "how": "swap", "slot": k * size, "release": k, "fetch": -1}
                    for k in range(count)
                ],
            }
        )
        keeps = self._carrier({})
        taken: dict[Carrier, tuple[list[int], list[int]]] = {swaps: ([], []), keeps: ([], [])}
        for _ in range(ROUNDS):
            for carrier, (out, back) in taken.items():
                packed = []
                for _ in range(count):
                    t = torch.full((size // 4,), 1.0, dtype=torch.float32, device="cpu")
                    begin = clock()
                    packed.append(pack(carrier, carrier.now, t))
                    out.append(clock() - begin)
                    del t
                while packed:
                    begin = clock()
                    t = unpack(packed[-1])
                    back.append(clock() - begin)
                    del t
                    packed.pop()
                if carrier.now.missed or carrier.why:
                    raise Refused(carrier.why or Says("copies_untimed"))
                carrier.next()
        # After the first round the memory on the host has been touched, as in a plan's later steps.
        return [max(_median(a[count:]) - _median(b[count:]), 1) for a, b in zip(taken[swaps], taken[keeps])]

    def _again(self) -> int:
        """The overhead of rerunning an op: with noting it beforehand, but without its own time. Measured on a
        chain of small ops, with and without rerunning them."""
        torch = self.torch
        name, func = "aten::mul", torch.ops.aten.mul.Tensor
        x, w = (torch.full((64,), 1.0, dtype=torch.float32, device="cpu").requires_grad_() for _ in range(2))

        def chain(carrier: Carrier) -> int:
            begin = self.clock()
            try:  # a signal handler may raise in here, and the program may survive that
                carrier.region.push()
                y = x
                for _ in range(CHAIN):
                    y = y * w
            finally:
                carrier.region.pop()
            torch.autograd.grad(y.sum(), w)
            return self.clock() - begin

        saves: list[int] = []  # the save numbers of the tensors made in the chain
        spy = self._carrier({})
        spy.watch = _Spy(saves, {address_of(x.untyped_storage()), address_of(w.untyped_storage())})
        chain(spy)
        value = {"bytes": 256, "how": "drop", "slot": 0, "release": 0, "fetch": 0, "group": 0}
        seen: Plan = {"groups": [[["gmemtop::none", 0]]]}
        drop: Plan = {
            "device": "cpu",
            "values": [dict(value, save=k) for k in saves],
            "groups": [[[name, k] for k in range(CHAIN)]],
        }
        takes: tuple[list[int], list[int]] = [], []
        own = []
        for _ in range(2 * ROUNDS):
            for plan, figures in zip((seen, drop), takes):
                carrier = self._carrier(plan)
                figures.append(chain(carrier))
                if carrier.now.missed or carrier.why:
                    raise Refused(carrier.why or Says("reruns_untimed"))
            with torch.no_grad():
                begin = self.clock()
                for _ in range(CHAIN):
                    func(x, w)
                own.append(self.clock() - begin)
        return max(min(takes[1]) - min(takes[0]) - min(own), 0) // CHAIN  # disturbances only add to it


class _Spy:
    """Notes the saved tensors that did not exist before."""

    def __init__(self, saves: list[int], there: set[int]) -> None:
        self.saves, self.there, self.n = saves, there, 0

    def saved_one(self, t: Tensor, stays: bool) -> None:
        key = address_of(t.untyped_storage())
        if key not in self.there:
            self.there.add(key)
            self.saves.append(self.n)
        self.n += 1

    def loaded(self, t: Tensor) -> None:
        pass
