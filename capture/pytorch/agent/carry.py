"""Runs a plan while the program trains.

A plan is about the tensors that autograd saves in the forward pass for the backward pass: some wait on the
host (swap), some are dropped and recomputed by rerunning ops (drop). Hooks on saved tensors see each tensor
when it is saved and when it is needed. A dispatch mode, used only if something is dropped, notes how it was
made. Both act only on the training thread (see Region).

Tensors and ops are recognised by number: a tensor is the n-th saved in an iteration, an op the n-th of its
name in the forward pass of modules, with gradients or without. Both counts start at a step's end. If the
steps of a program run different ops, their places give the numbers (see Places). A tensor that is smaller or
larger than in the plan leaves as planned, since batches differ in shape. A tensor that cannot be recomputed
stays in memory, as without a plan, and counts as missed. So a plan that does not fit costs memory and time
but changes no result: an op is rerun only on exactly the bytes that it read, and never if it draws random
numbers.

While hooks are on saved tensors, autograd does not check whether one was changed in place between its two
uses, so the check is made here.

In a plan's first iterations, and in some later ones, tensors that come back are compared with what left (see
Same). The first time a tensor is dropped, it is also copied to the host, in case it cannot be recomputed
(see Spares).

A plan applies to one stream, the one on which modules first run; what another stream saves stays.

Rejected: wrapping forward() in torch.utils.checkpoint. It reruns whole modules, but a plan wants single ops.
It also keeps the generator's state for each module, updates running statistics twice, and is visible to the
program's own hooks.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable

from .compat import address_of, dispatch_mode, graph_task, without_dispatch
from .graphs import CAPTURES, Graphs
from .leftovers import clear_leftovers
from .places import NOWHERE, Counts, Places, above
from .region import Region
from .rerun import Rerun
from .rescue import Rescue
from .same import Same
from .says import Says
from .sizes import Sizes
from .spare import Spares
from .streams import Streams, capturing
from .values import UNCOUNTED, Handle, Kept, Value, bytes_of, expect_unchanged, movable, space_for

if TYPE_CHECKING:
    from .kinds import DType, Entry, Module, Moved, Plan, Tensor, UntypedStorage
    from .rerun import _Call

STALE = 3  # a plan that does not fit this many iterations in a row is given up
# tensors are compared in this many first iterations, and then in one of this many
COMPARED_FIRST, COMPARED_EVERY = 3, 50


class Iteration:
    """From a step's end to the next: what was counted, saved and noted."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier, self.plan = carrier, carrier.plan
        self.saved = self.loaded = self.missed = self.out = self.back = self.again = 0
        # nanoseconds of processor time that the training thread spent on copies
        self.out_took = self.back_took = 0
        self.checks = carrier.iterations < COMPARED_FIRST or carrier.iterations % COMPARED_EVERY == 0
        self.seen: dict[tuple[str, bool], int] = {}
        self.values: dict[int, weakref.ref[Value]] = {}
        self.calls: dict[int, list[_Call]] = {}
        self.leaving: list[Value] = []
        self.over: set[int] = set()  # groups that have been rerun, some before all of their ops were seen
        self.paths: dict[int, int] = {}  # for each group, a number that tells which of its ops have run
        self.failed: set[int] = set()  # groups that could not be rerun
        self.resized = ""  # which tensor was smaller or larger than in the plan, if any
        self.larger = False  # it was larger
        self.why = ""
        self.counts = Counts()  # if the plan knows places
        self.lock = threading.RLock()

    def known(self, storage: UntypedStorage) -> Value | None:
        """The value of a storage, None if it has none."""
        there = self.values.get(address_of(storage))
        found = None if there is None else there()
        return found if found is not None and found.storage() is storage else None

    def value(self, storage: UntypedStorage) -> Value:
        """Make a value for a storage."""
        value = Value(storage)
        self.values[address_of(storage)] = weakref.ref(value)
        return value


class Carrier:
    """Runs one plan. An empty plan keeps everything. watch, if set, is told what is saved and loaded."""

    offloads = False  # tensors leave without an entry in the plan

    def __init__(self, torch: Any, plan: Plan) -> None:
        self.torch = torch
        self.plan = plan
        self.watch: Any = None
        self.window: Any = None
        self.entries = {e["save"]: e for e in plan.get("values", ())}
        self.fetches: dict[int, list[Entry]] = {}
        for e in self.entries.values():
            if e["how"] == "swap":
                self.fetches.setdefault(e["fetch"], []).append(e)
        self.plain, self.strided = (torch.Tensor, torch.nn.Parameter), torch.strided
        self.graph_task = graph_task(torch)
        self.slab: Tensor = None
        self.owners: dict[int, weakref.ref[Value]] = {}
        # the values that have left and are still needed, and their iterations
        self.away: weakref.WeakKeyDictionary[Value, weakref.ref[Iteration]] = weakref.WeakKeyDictionary()
        self.why, self.differs, self.stale, self.iterations = "", False, 0, 0
        self.took = 0, 0  # in the last step
        self.places = Places(torch, plan)
        self.streams, self.same, self.region = Streams(torch), Same(torch), Region(self)
        self.graphs = Graphs(self)
        self.sizes, self.spares, self.rescue = Sizes(torch, plan), Spares(torch), Rescue(self)
        self.leaves: Callable[[], bool] = _stays
        self.rerun = Rerun(torch, plan, self.streams, self._tensor, self.broke, self.rescue.shelve)
        self.now = Iteration(self)

    @property
    def thread(self) -> int:
        """The thread that the plan runs on, 0 if not known yet."""
        return self.region.thread

    # -- coming and going, at a step's end on the training thread --------------------------------------------

    def begin(self) -> None:
        """Allocate the host memory and hook the modules. Raises if memory runs out or torch refuses a hook;
        remove() then undoes what was done."""
        torch, device = self.torch, self.torch.device(self.plan.get("device", "cpu"))
        self.spares.open(self.plan)
        if self.plan.get("slab"):
            if device.type == "cuda":
                # otherwise torch would consider an earlier plan's slab still in use, and pin the same amount
                # again
                torch.cuda.synchronize(device)
            with torch.inference_mode(False):  # a step may end where an evaluation in that mode begins
                pinned = device.type == "cuda"
                self.slab = torch.empty(self.plan["slab"], dtype=torch.uint8, pin_memory=pinned)
            self.streams.open(device)
        if device.type == "cuda" and self.entries:
            # make the saved memory visible from outside and free for other processes
            torch.cuda.empty_cache()
        self.region.mode = self.mode()
        self.graphs.stand()
        self.region.stand()

    def mode(self) -> Any:
        """The mode that sees ops, None if the plan reruns none."""
        if not self.rerun.wanted:
            return None
        op = self.rerun.op
        if self.places.known:
            places = self.places
            self.rerun.number = lambda it, name, graded: places.op(it.counts, name, graded)
        return dispatch_mode(lambda func, args, kwargs: op(self.now, func, args, kwargs))

    def next(self) -> Moved:
        """A step has ended: restart the counts. Returns what happened in it: bytes out and back, nanoseconds
        of rerun ops, misses, how many tensors were compared with what had left, and how many of them
        differed."""
        self.region.unwind()
        # if the optimizer's step is being captured, nothing may wait for the device or query it
        captures = capturing(self.torch)
        if captures and self.entries:
            self.end(self.now, CAPTURES)
        self.iterations += 1
        was, self.now = self.now, Iteration(self)
        self.took = was.out_took, was.back_took
        alike = self._alike(was)
        if was.resized and not alike:
            was.why = was.why or Says("other_saves", was.saved, self.plan["saves"])
        self.region.extend()
        self.sizes.next(alike)
        if was.larger and not self.sizes.known:  # the plan is for one shape
            was.why = was.why or was.resized
        self.stale = self.stale + 1 if was.why else 0
        if was.why and self.stale >= STALE:
            self.why = self.why or was.why
        return (was.out, was.back, was.again, was.missed) + ((0, 0) if captures else self._verdict())

    def _alike(self, was: Iteration) -> bool:
        """Whether a step can be compared with the planned one."""
        if not self.places.known:
            return bool(was.saved == self.plan.get("saves", was.saved))
        counts = was.counts
        if 2 * counts.placed < was.saved:
            was.why = was.why or Says("other_places", was.saved, counts.placed)
            return False
        counts.close()
        if above(counts.most, self.sizes.known):
            self.sizes.now = {k: size for k, size in enumerate(counts.most) if size > self.sizes.known[k]}
        return True

    def remove(self) -> None:
        """End the plan. Tensors saved under it that are still needed are found through their handles."""
        self.region.unwind()
        self.region.remove()
        self.graphs.remove()
        self.watch = self.slab = None
        self.leaves = _stays
        self.sizes.places.clear()
        self.streams.close()
        self.owners, self.now = {}, Iteration(self)
        clear_leftovers(self.torch)

    # -- what the region says --------------------------------------------------------------------------------

    def entering(
        self, module: Module | None
    ) -> tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]] | None:
        """The outermost module is entered. Returns the hooks for what it saves, None for no hooks."""
        if self.leaves() or self._evaluates():
            return None
        if capturing(self.torch):
            self.end(self.now, CAPTURES)
            return None
        self.stand_on()
        return self.hooks()

    def hooks(self) -> tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]:
        """The hooks for saved tensors. They stay over many iterations."""
        return self._packs, unpack

    def _packs(self, t: Tensor) -> Kept | Handle:
        return pack(self, self.now, t)

    def stand_on(self) -> None:
        """The plan applies to the stream on which the first module runs or the first tensor is saved."""
        if self.streams.main is None and self.plan.get("device", "cpu") != "cpu":
            self.streams.main = self.torch.cuda.current_stream(self.plan["device"])

    def _evaluates(self) -> bool:
        """Whether an evaluation begins that the plan does not know: a pass without gradients, though no
        recorded step had one. It runs as if there were no plan, and its ops do not count."""
        if self.torch.is_grad_enabled():
            return False
        if self.watch is not None:
            self.watch.evaluates = True
        return bool(self.plan.get("trained"))

    def left(self, inputs: Any, outputs: Any) -> None:
        """The outermost module is left. Release what should leave after the last save; otherwise it would
        stay until the first load."""
        try:
            if self.now.calls:
                self.rerun.leave(self.now, (inputs, outputs))
            if not capturing(self.torch):
                self._due(self.now, self.now.saved)
        except Exception as e:
            self.broke(self.now, e)

    def skip(self, why: str) -> None:
        """The plan skips this iteration."""
        self.now.why = self.now.why or why
        if not self.entries:
            self.why = self.why or self.now.why

    def end(self, it: Iteration, why: str) -> None:
        """From here on no tensor leaves, and the plan ends with the step."""
        it.why = it.why or why
        self.why = self.why or why

    def broke(self, it: Iteration, error: BaseException) -> None:
        it.why = it.why or "%s: %s" % (type(error).__name__, error)
        self.why = self.why or it.why

    # -- what is saved ---------------------------------------------------------------------------------------

    def _save(self, it: Iteration, t: Tensor) -> Kept | Handle:
        n, it.saved = it.saved, it.saved + 1
        if self.places.known:
            return self._save_placed(it, t)
        self._due(it, n)
        sizes = self.sizes
        if sizes.known:
            sizes.saved(n, t, it.loaded)
        if not sizes.spills:
            return self._saved(it, t, n)
        while not it.why and (next_one := sizes.follow(n)) is not None:
            self._follow(it, *next_one)
        packed = self._saved(it, t, n)
        if isinstance(packed, Kept) and not it.why:
            sizes.stays(n, packed)
        return packed

    def _follow(self, it: Iteration, entry: Entry, saved: list[Kept]) -> None:
        """A storage that stayed leaves after all, since the step is larger than planned for. saved are all
        saved tensors that hold it."""
        if not all(movable(kept.tensor, self.plain, self.strided) for kept in saved):
            return
        storage = saved[0].tensor.untyped_storage()
        if str(storage.device) != self.plan["device"] or self.streams.elsewhere():
            return
        value = it.known(storage)
        if value is not None and (value.entry is not None or value.stale(saved[0].tensor)):
            return
        if not self._has_place(entry, storage.nbytes()):
            return
        value = value or it.value(storage)
        handles = []
        for kept in saved:
            value.changed(kept.tensor)
            handle = Handle(it, value, kept.tensor).watch(self.torch, kept.tensor)
            handle.version = kept.version
            handles.append(handle)
        total = self.same.sum(storage) if it.checks else None
        with it.lock:
            self._out(it, value, storage, entry)
            value.entry, value.sum = entry, total
            self.away[value] = weakref.ref(it)
            for kept, handle in zip(saved, handles):
                kept.tensor = handle
        del storage
        if value.base is not None or value.storage() is None:  # otherwise the program still has it
            self.sizes.spilled(value.bytes)

    def _has_place(self, entry: Entry, size: int) -> bool:
        """Whether the host has a place for a storage. An earlier graph may still have bytes there."""
        there = self.owners.get(entry["slot"])
        owner = None if there is None else there()
        if owner is not None and owner.base is None:
            return False
        return size <= entry["bytes"] or self.sizes.place(entry["slot"], size) is not None

    def _save_placed(self, it: Iteration, t: Tensor) -> Kept | Handle:
        """Save a tensor whose place gives its number."""
        n = self.places.save(it.counts)
        if n != NOWHERE:
            self._due(it, self.places.due(n))
        packed = self._saved(it, t, n)
        packed.save = n
        self.places.keeps(it.counts, t, packed.value if isinstance(packed, Handle) else None)
        return packed

    def _saved(self, it: Iteration, t: Tensor, n: int) -> Kept | Handle:
        """Save a tensor whose number in the plan is n."""
        entry = self.entries.get(n) if not it.why else None
        if entry is None and self.sizes.more > 0 and not it.why:
            entry = self.sizes.spill(n)
        if entry is None and not it.values:  # most saves, in most plans
            return Kept(it, t)
        if not movable(t, self.plain, self.strided):
            return Kept(it, t)
        storage = t.untyped_storage()
        value = it.known(storage)
        if value is not None and value.entry is not None:
            if value.changed(t):
                self._anew(it, value, storage)
            return Handle(it, value, t).watch(self.torch, t)
        if entry is None:
            return Kept(it, t)
        if value is not None and value.stale(t):
            value = None
        if self.streams.elsewhere():
            it.missed += 1
            return Kept(it, t)
        size, spilled = storage.nbytes(), "spilled" in entry
        # a batch of another shape saves as many tensors
        if size != entry["bytes"] and not it.larger and not spilled:
            it.resized = Says("other_iteration", n + 1, size, entry["bytes"])
            it.larger = size > entry["bytes"]
        if str(storage.device) != self.plan["device"]:
            if not self.places.known:  # otherwise the place may be another tensor's
                it.why = Says("other_iteration", n + 1, size, entry["bytes"])
            it.missed += 1
            return Kept(it, t)
        if entry["how"] == "swap":
            if not self._has_place(entry, size):
                it.missed += not spilled
                return Kept(it, t)
            if spilled:
                self.sizes.spilled(size)
            value = value or it.value(storage)
            self._out(it, value, storage, entry)
        elif (
            value is None
            or value.spoiled
            or entry["group"] not in (value.groups or ())
            or entry["group"] in it.over
        ):
            it.missed += 1  # it was made in another way than in the recording
            return Kept(it, t)
        value.entry = entry
        value.changed(t)
        self.away[value] = weakref.ref(it)
        if entry["how"] == "drop":
            value.spare = self.spares.spare(n, it.paths.get(entry["group"], 0), storage)
            it.missed += value.spare is not None and value.spare.stays
        if (it.checks or value.spare is not None) and not value.unwritten:
            value.sum = self.same.sum(storage)
        return Handle(it, value, t).watch(self.torch, t)

    def _anew(self, it: Iteration, value: Value, storage: UntypedStorage) -> None:
        """Part of a storage has changed since it was first saved and is saved again: save the new bytes."""
        if value.entry["how"] == "swap":
            if value in it.leaving:
                it.leaving.remove(value)
            self._out(it, value, storage, value.entry)
        elif value.spoiled or value.base is not None:  # an op that is not rerun has changed it
            value.base, value.sum, value.spare = bytes_of(self.torch, storage, self.torch.uint8), None, None
            it.missed += 1
        elif value.spare is not None:
            value.spare.take(storage)
        if value.sum is not None:
            value.sum = self.same.sum(storage)

    def _out(self, it: Iteration, value: Value, storage: UntypedStorage, entry: Entry) -> None:
        torch = self.torch
        with without_dispatch(torch), torch.no_grad():
            flat = bytes_of(torch, storage, torch.uint8)
            if value.bytes > entry["bytes"]:
                value.host = self.sizes.place(entry["slot"], value.bytes)
            else:
                value.host = self.slab[entry["slot"] : entry["slot"] + value.bytes]
            self.owners[entry["slot"]] = weakref.ref(value)
            begin = time.thread_time_ns()
            value.done = self.streams.copy_out(value.host, flat)
            if value.done is None:
                value.base = None
                it.out_took += time.thread_time_ns() - begin
            else:
                value.base = flat  # until its copy is done
                it.leaving.append(value)
                it.leaving.sort(key=lambda v: (v.entry or entry)["release"])
        it.out += value.bytes

    def _due(self, it: Iteration, n: int) -> None:
        """Release the memory that should leave before save n."""
        while it.leaving and it.leaving[0].entry["release"] <= n:
            self.streams.release(it.leaving.pop(0))

    def _verdict(self) -> tuple[int, int]:
        """How many tensors were compared, and how many differed. A difference ends the plan unless the plan
        allows it."""
        compared, others = self.same.verdict()
        if self.rerun.overwritten:
            self.rerun.overwritten, self.differs = False, True
            self.why = self.why or Says("changed_outside")
        if others and not self.plan.get("may_differ"):
            self.differs = True
            e = self.entries.get(min(others), {"how": "swap"})  # a spilled one has no entry
            bad, first = len(others), min(others) + 1
            if e["how"] == "swap":
                self.why = self.why or Says("differs_swapped", bad, compared, first)
            else:
                ops = ", ".join(sorted({name for name, _ in self.plan["groups"][e["group"]]}))
                self.why = self.why or Says("differs_recomputed", bad, compared, first, ops)
        return compared, len(others)

    # -- what is needed --------------------------------------------------------------------------------------

    def _load(self, it: Iteration, packed: Kept | Handle) -> Tensor:
        counted = packed.save != UNCOUNTED
        with it.lock:
            if counted:
                self._reached(it, packed)
            if isinstance(packed, Kept) and type(packed.tensor) is not Handle:
                t = packed.tensor
                expect_unchanged(t, packed.version, t.shape)
            else:
                handle = packed.tensor if isinstance(packed, Kept) else packed
                expect_unchanged(handle.witness, handle.version, handle.size)
                t = self._tensor(it, handle, {})
        if self.watch is not None and counted:
            self.watch.loaded(t)
        return t

    def _reached(self, it: Iteration, packed: Kept | Handle) -> None:
        """The next load is reached: what was to leave by then leaves, and what was to be back returns."""
        n, it.loaded = it.loaded, it.loaded + 1
        if self.places.known:
            n = self.places.load(it.counts, packed.save)
        for value in it.leaving:
            self.streams.release(value)
        it.leaving = []
        for entry in self.fetches.get(n, ()):
            there = self.owners.get(entry["slot"])
            owner = None if there is None else there()
            if owner is not None and owner.base is None and owner.entry is entry:
                try:
                    self.fetch(it, owner, self.torch.uint8)
                except self.torch.cuda.OutOfMemoryError:
                    it.missed += 1  # it will be fetched when it is needed
                except Exception as e:
                    self.broke(it, e)

    def _tensor(self, it: Iteration, h: Handle, env: dict[Value, Tensor]) -> Tensor:
        base = env.get(h.value)
        if base is None:
            base = self.base_of(it, h.value, h.dtype)
        return h.seen_in(self.torch, base)

    def base_of(self, it: Iteration, value: Value, dtype: DType) -> Tensor:
        """The bytes of a value as a flat tensor, fetched from wherever they are."""
        if value.base is None:
            there = value.storage()
            if there is not None and not value.spoiled and value.spare is None:
                return bytes_of(self.torch, there, dtype)  # somebody else still has it
            del there
            if value.host is not None:
                self.rescue.back(it, value, dtype)
            else:
                self.rescue.again(it, value, dtype)
        if value.stream is not None:
            self.streams.meet(value)
        if value.sum is not None or value.spare is not None:
            self.compare(it, value, dtype)
        value.spare = None
        return value.base

    def compare(self, it: Iteration, value: Value, dtype: DType) -> None:
        """Compare a value that has come back with what left, and take its spare if they differ."""
        if value.sum is None:  # what it holds does not matter
            return value.spare.proven() if value.spare is not None else None
        differs = None
        try:
            if not self.streams.elsewhere():
                differs = self.same.compare(value)
        except self.torch.cuda.OutOfMemoryError:  # so it is not compared
            pass
        except Exception as e:
            self.broke(it, e)
        value.sum = None
        if value.spare is not None and differs is not None:
            if differs.item() and not self.plan.get("may_differ"):
                self.rescue.restore(it, value, dtype)
            else:
                value.spare.proven()

    def fetch(self, it: Iteration, value: Value, dtype: DType) -> None:
        """Copy a value back from the host."""
        torch, streams = self.torch, self.streams
        begin = time.thread_time_ns()
        if streams.elsewhere():
            with streams.there():
                return self.fetch(it, value, dtype)
        with torch.no_grad():
            base = space_for(torch, value.bytes, dtype, self.plan["device"])
            with without_dispatch(torch):
                flat = bytes_of(torch, base.untyped_storage(), torch.uint8)
                value.arrived, value.stream = streams.copy_back(flat, value.host), streams.main
        if value.arrived is None:
            it.back_took += time.thread_time_ns() - begin
        value.base = base
        it.back += value.bytes


def _stays() -> bool:
    """The default of Carrier.leaves: the plan does not end when a module is entered."""
    return False


def pack(carrier: Carrier, it: Iteration, t: Tensor) -> Kept | Handle:
    region = carrier.region
    if carrier.graph_task() != -1:
        return Kept(it, t, UNCOUNTED if region.outside else NOWHERE)
    if region.stray() or region.outside and t.numel() <= 1:
        # Loops add up losses and compute what they print, some of it only now and then.
        return Kept(it, t, UNCOUNTED)
    if capturing(carrier.torch):  # the capture began inside a module
        carrier.end(it, CAPTURES)
        return Kept(it, t)
    try:
        carrier.stand_on()
        packed = carrier._save(it, t)
    except Exception as e:
        carrier.broke(it, e)
        packed = Kept(it, t)
    if carrier.watch is not None:
        carrier.watch.saved_one(t, isinstance(packed, Kept))
    return packed


def unpack(packed: Kept | Handle) -> Tensor:
    return packed.iteration.carrier._load(packed.iteration, packed)
