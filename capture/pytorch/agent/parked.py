"""A plan under which optimizer state waits on the host while no optimizer steps.

State leaves when the outermost optimizer step has ended, and comes back when it is used (see Waiting). If an
optimizer goes through its parameters one by one, as on a CPU, only one parameter's state is on the device at
a time: the state of earlier parameters leaves again. Kernels that take lists of parameters (foreach, fused)
read their tensors without calling Waiting, so for these all state is brought back before the step.

Only plain tensors leave that are on the training device and whose storage nothing else refers to.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator

from .carry import Carrier
from .compat import address_of, storage_references
from .says import Refused, Says
from .values import movable
from .waiting import PLACE, Place, bring_back, send_away, waits

if TYPE_CHECKING:
    from .kinds import Moved, Optimizer, Plan, Tensor, UntypedStorage
    from .optimizers import Optimizers

SLAB_ALIGN = 512
LEAST_STATE = 1 << 12  # bytes: smaller tensors stay
# how often a tensor may come back in an optimizer's step: more than once if the program's hooks look at it
MOST_RETURNS = 3
ENOUGH = 0.97  # the share of the plan's bytes that must be able to leave


class Rack:
    """The places of all tensors that may wait, and which of these are on the device now."""

    def __init__(self, torch: Any, carrier: Parked) -> None:
        self.torch, self.clock = torch, time.thread_time_ns
        self.carrier = weakref.ref(carrier)
        self.places: dict[int, tuple[weakref.ref[Tensor], Place]] = {}  # by the tensor's id
        self.present: list[tuple[weakref.ref[Tensor], Place]] = []
        self.one_by_one = False  # keep only one parameter's state on the device at a time
        self.thrashes = False  # the optimizer goes back and forth between its parameters
        self.thread = 0  # the thread on which optimizers step
        self.slab: Tensor = None  # the memory of most places, and how much of it is taken
        self.taken = 0

    def room(self, size: int, pinned: bool) -> Tensor:
        """Memory on the host. All state that exists when the plan begins shares one slab, since torch would
        round each piece of pinned memory up to a power of two."""
        if self.slab is not None and self.taken + size <= self.slab.numel():
            host = self.slab[self.taken : self.taken + size]
            self.taken += -(-size // SLAB_ALIGN) * SLAB_ALIGN
            return host
        return self.torch.empty(size, dtype=self.torch.uint8, device="cpu", pin_memory=pinned)

    def attempt(self, act: Callable[[bool], None]) -> None:
        """Call act, which brings a tensor back. While it raises, free memory and call it again."""
        carrier = self.carrier()
        if carrier is None:
            return act(False)
        rescue, it = carrier.rescue, carrier.now
        moved = rescue.moved
        said = rescue.attempt(it, act)
        if said:
            carrier.end(it, Says("state_retried", said[0], said[1], (rescue.moved - moved) >> 20))

    def make_room(self, wanted: list[Tensor], used: list[Tensor]) -> None:
        """Some tensors are about to come back, for a call that uses other tensors too. Send away the rest."""
        if not self.one_by_one or self.thrashes or threading.get_ident() != self.thread:
            return
        owners = {t.__dict__[PLACE].owner for t in wanted}
        ids = {id(t) for t in used}
        stay: list[tuple[weakref.ref[Tensor], Place]] = []
        go: list[tuple[weakref.ref[Tensor], Place]] = []
        for there, place in self.present:
            t = there()
            if t is not None:
                (stay if place.owner in owners or id(t) in ids else go).append((there, place))
        self.present = stay
        carrier = self.carrier()
        for there, place in go:
            t = there()
            if carrier is not None and t is not None:
                carrier.send(t, place.owner)

    def returned(self, t: Tensor, place: Place, begin: int) -> None:
        """A tensor has come back."""
        place.returned += 1
        if place.returned > MOST_RETURNS and self.one_by_one:
            self.thrashes = True
        self.present.append((weakref.ref(t), place))
        carrier = self.carrier()
        if carrier is not None:
            carrier.came(t, place, self.clock() - begin)


class Parked(Carrier):
    """Runs a plan that keeps optimizer state on the host."""

    def __init__(self, torch: Any, plan: Plan, optimizers: Optimizers) -> None:
        Carrier.__init__(self, torch, plan)
        self.optimizers, self.rack = optimizers, Rack(torch, self)
        self.on = torch.device(plan["device"])
        self.references = storage_references(torch)
        self.alone = 0  # references to a storage that only one tensor uses
        self.elsewhere: set[int] = set()  # ids of optimizers that step on other threads: their state stays
        self.lock = threading.RLock()
        self.waited = self.differed = 0  # tensors compared in this step, and how many of them differ

    def begin(self) -> None:
        Carrier.begin(self)
        if self.references is None:
            raise Refused(Says("state_uncounted"))
        t = self.torch.empty(1)
        self.alone = self._references(t.untyped_storage())
        self.rack.thread = threading.get_ident()
        sizes = [t.untyped_storage().nbytes() for _, t in self._state() if self._can_wait(t)]
        slab = sum(-(-size // SLAB_ALIGN) * SLAB_ALIGN for size in sizes)
        if slab >= ENOUGH * self.plan["state"]:
            self.rack.slab = self.rack.room(slab, self.on.type == "cuda")
        left = self._all_leave()
        if left < ENOUGH * self.plan["state"]:
            raise Refused(Says("state_stays", int(self.plan["state"]) >> 20, left >> 20))

    def next(self) -> Moved:
        moved = Carrier.next(self)
        compared, others = self.waited, self.differed
        self.waited = self.differed = 0
        if others and not self.plan.get("may_differ"):
            self.differs = True
            self.why = self.why or Says("differs_state", others, compared)
        return moved[:4] + (moved[4] + compared, moved[5] + others)

    def remove(self) -> None:
        Carrier.remove(self)
        self.rack.one_by_one = False
        for there, _ in list(self.rack.places.values()):
            t = there()
            if t is not None and waits(type(t)):
                try:
                    bring_back(t)
                except Exception:  # no memory between two steps: it comes back when it is used
                    continue
        self.rack.places.clear()
        self.rack.present = []

    # -- around the step of an optimizer ---------------------------------------------------------------------

    def optimizer_enters(self, optimizer: Optimizer, calls: bool) -> None:
        """An optimizer is about to step. calls says that it calls the program's closure first."""
        if threading.get_ident() != self.rack.thread:
            with self.lock:
                self.elsewhere.add(id(optimizer))
                return self._stays(optimizer)
        groups = optimizer.param_groups
        lists = self.on.type != "cpu" or any(g.get("foreach") or g.get("fused") for g in groups)
        self.rack.one_by_one = not lists
        if lists and not calls:
            self._returns(optimizer)

    def closure_left(self, optimizer: Optimizer) -> None:
        """The closure has returned, and the optimizer continues."""
        if not self.rack.one_by_one:
            self._returns(optimizer)

    def optimizers_left(self) -> None:
        """No optimizer steps any more."""
        if threading.get_ident() != self.rack.thread:
            return
        self.rack.one_by_one = False
        for _, place in self.rack.places.values():
            place.returned = 0
        try:
            with self.lock:
                self._all_leave()
        except Exception as e:
            self.broke(self.now, e)

    def _returns(self, optimizer: Optimizer) -> None:
        for state in optimizer.state.values():
            for t in state.values() if isinstance(state, dict) else ():
                if waits(type(t)):
                    bring_back(t)

    def _stays(self, optimizer: Optimizer) -> None:
        """Bring the state of an optimizer back for good: another thread may use it at any time."""
        for state in optimizer.state.values():
            for t in state.values() if isinstance(state, dict) else ():
                there = self.rack.places.get(id(t))
                if there is not None and there[0]() is t:
                    there[1].closed = True
        self._returns(optimizer)

    # -- going and coming ------------------------------------------------------------------------------------

    def _all_leave(self) -> int:
        """Send away all state that can wait. Returns the bytes that wait."""
        rack, left = self.rack, 0
        rack.places = {key: x for key, x in rack.places.items() if x[0]() is not None}
        for owner, t in self._state():
            if waits(type(t)):
                left += rack.places[id(t)][1].host.numel() if id(t) in rack.places else 0
            else:
                left += self.send(t, owner)
        rack.present = []
        return left

    def _state(self) -> Iterator[tuple[int, Tensor]]:
        """The state that optimizers keep for their parameters, each with the number of its parameter."""
        owner = 0
        for optimizer in self.optimizers.alive():
            if id(optimizer) in self.elsewhere:
                continue
            for state in optimizer.state.values():
                owner += 1
                for t in list(state.values()) if isinstance(state, dict) else ():
                    yield owner, t

    def send(self, t: Tensor, owner: int) -> int:
        """Send a tensor to the host. Returns its bytes, 0 if it cannot wait."""
        if not self._can_wait(t):
            return 0
        begin, rack = self.rack.clock(), self.rack
        storage = t.untyped_storage()
        size: int = storage.nbytes()
        there = rack.places.get(id(t))
        place = there[1] if there is not None and there[0]() is t else None
        if place is not None and place.closed:
            return 0
        if place is None or place.host.numel() != size:
            place = Place(rack, storage.device, rack.room(size, self.on.type == "cuda"))
            rack.places[id(t)] = weakref.ref(t), place
        place.owner = owner
        place.sum = self.same.sum(storage) if self.now.checks else None
        del storage
        send_away(t, place)
        self.now.out += size
        if self.on.type == "cpu":
            self.now.out_took += rack.clock() - begin
        return size

    def came(self, t: Tensor, place: Place, took: int) -> None:
        """A tensor has come back."""
        self.now.back += place.host.numel()
        if self.on.type == "cpu":
            self.now.back_took += took
        if place.sum is not None:
            self.waited += 1
            self.differed += bool((self.same.sum(t.untyped_storage()) != place.sum).item())
            place.sum = None

    def _can_wait(self, t: Tensor) -> bool:
        if type(t) is not self.torch.Tensor or not movable(t, self.plain, self.strided) or t.requires_grad:
            return False
        if t.device.type != self.on.type or t.grad_fn is not None:
            return False
        storage = t.untyped_storage()
        return storage.nbytes() >= LEAST_STATE and self._references(storage) == self.alone

    def _references(self, storage: UntypedStorage) -> int:
        return self.references(address_of(storage)) if self.references is not None else 0
