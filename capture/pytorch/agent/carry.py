"""Carries a plan out while the program trains.

A plan speaks of the tensors that autograd saves in the forward pass for the backward pass: some wait on the
host (swap), some are dropped and made again by running ops once more (drop). Hooks on saved tensors see each
when it is saved and when it is needed. A dispatch mode, used only if something is dropped, notes how it was
made. Both are active from the entry of the outermost module to its exit, only on the training thread.

Tensors and ops are recognised by number: a tensor is the n-th saved in an iteration, an op the n-th of its
name. Both counts start at a step's end and cover the forward pass of modules. Anything that differs in size
or cannot be made again stays in memory, as without a plan, and counts as missed. So a plan that does not fit
costs memory and time but changes no result: an op only runs again on exactly the bytes that it read, and
never if it draws random numbers.

While hooks are on saved tensors, autograd does not check whether one was changed in place between its two
uses, so the check is made here.

In a plan's first iterations, and in some later ones, what returns is compared with what left: the sum of a
tensor's 64-bit words is taken before it goes and again before it is used, which needs no memory. The sums
stay on the device until the step's end, so nothing waits for them.

A plan speaks of one stream, the one on which modules first run; what another stream saves stays. Freed memory
goes back to that stream, which has waited for the copy, and what returns is allocated on it. An op on another
stream that reads it waits for that stream, and the memory is marked as used there.

Rejected: wrapping forward() in torch.utils.checkpoint. It runs whole modules again where a plan wants single
ops, keeps the generator's state for each, counts running statistics twice, and is visible to the program's
own hooks.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator

from .compat import (
    DISABLE,
    address_of,
    enable_saved_hooks,
    graph_task,
    is_innermost,
    pop_saved_hooks,
    push_saved_hooks,
    saved_hooks,
    saved_hooks_disabled,
    without_autocast,
    without_dispatch,
)
from .patch import Patches
from .rerun import Again
from .values import Handle, Kept, Value, expect_unchanged

if TYPE_CHECKING:
    from .kinds import DType, Entry, Info, Module, Moved, Op, Plan, Tensor, UntypedStorage
    from .rerun import _Call

STALE = 3  # iterations in a row that a plan does not fit before it is given up
# what returns is compared in this many iterations, and in one of this many later ones
COMPARED_FIRST, COMPARED_EVERY = 3, 50
REPLAYS = "the program replays CUDA graphs, and gmemtop cannot see what they read and write"
CAPTURES = "the program captures a CUDA graph, in which what a plan does would stay for good"
COMPILED = (
    "torch.compile is in use, and what a compiled graph saves is not seen tensor by tensor: set "
    "torch._functorch.config.activation_memory_budget instead"
)


def capturing(torch: Any) -> bool:
    """Whether what is done now becomes part of a CUDA graph."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


class Iteration:
    """From a step's end to the next: what was counted, saved and noted."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier, self.plan = carrier, carrier.plan
        self.saved = self.loaded = self.missed = self.out = self.back = self.again = 0
        # of copies that the training thread makes itself, nanoseconds of its processor time
        self.out_took = self.back_took = 0
        self.checks = carrier.iterations < COMPARED_FIRST or carrier.iterations % COMPARED_EVERY == 0
        self.seen: dict[str, int] = {}
        self.values: dict[int, weakref.ref[Value]] = {}
        self.calls: dict[int, list[_Call]] = {}
        self.leaving: list[Value] = []
        self.over: set[int] = set()  # groups that ran before all of their ops had been seen
        self.why = ""
        self.lock = threading.RLock()


class Carrier(Again):
    """Carries one plan out. An empty plan keeps everything; watch, where given, is told of what is saved
    and loaded."""

    def __init__(self, torch: Any, plan: Plan) -> None:
        self.torch = torch
        self.plan = plan
        self.watch: Any = None
        self.window: Any = None
        self.entries = {e["save"]: e for e in plan.get("values", ())}
        self.fetches: dict[int, list[Entry]] = {}
        self.wanted: dict[str, dict[int, list[int]]] = {}
        for e in self.entries.values():
            if e["how"] == "swap":
                self.fetches.setdefault(e["fetch"], []).append(e)
        for g, ops in enumerate(plan.get("groups", ())):
            for name, n in ops:
                self.wanted.setdefault(name, {}).setdefault(n, []).append(g)
        self.graph_task = graph_task(torch)
        self.plain = (torch.Tensor, torch.nn.Parameter)
        self.infos: dict[Op, Info] = {}
        self.hooks: list[Any] = []
        self.patches = Patches()
        self.disable = getattr(saved_hooks(torch), DISABLE)
        self.thread = 0
        self.depth = 0
        self.pushed = False
        self.mode: Any = None
        self.entered = False
        self.slab: Tensor = None
        self.owners: dict[int, weakref.ref[Value]] = {}
        self.streams: Any = None
        self.main: Any = None
        self.why, self.differs, self.stale, self.iterations = "", False, 0, 0
        self.took = 0, 0  # of the last step
        # since the last step's end: the number of a saved tensor, and whether it came back as another
        self.compared: list[tuple[int, Tensor]] = []
        self.now = Iteration(self)

    # -- coming and going, at a step's end on the training thread --------------------------------------------

    def begin(self) -> None:
        """Take the host's memory and stand at the modules. What it raises is out of memory or torch's
        refusal of a hook; remove() then undoes what was done."""
        from torch.nn.modules import module as hooks

        torch, device = self.torch, self.torch.device(self.plan.get("device", "cpu"))
        if self.plan.get("slab"):
            if device.type == "cuda":
                # or torch would take the slab of a plan before for in use still, and have the host pin as
                # much again
                torch.cuda.synchronize(device)
            self.slab = torch.empty(self.plan["slab"], dtype=torch.uint8, pin_memory=device.type == "cuda")
            if device.type == "cuda":
                self.streams = torch.cuda.Stream(device), torch.cuda.Stream(device)
        if device.type == "cuda" and self.entries:
            # what the plan saves shall be seen from outside, and be free for other processes
            torch.cuda.empty_cache()
        self.thread = threading.get_ident()
        if self.wanted:
            self.mode = self._mode()
            self.patches.subclassing(torch)
        self.disable = self.patches.put(saved_hooks(torch), DISABLE, self._disabling)
        if self.entries and hasattr(torch.cuda, "CUDAGraph"):
            self.patches.put(torch.cuda.CUDAGraph, "replay", self._replaying)
        self.hooks = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]

    def next(self) -> Moved:
        """A step has ended: count from the start. Returns what happened in it: bytes out and back,
        nanoseconds of ops that ran again, what was missed, how many tensors were compared with what had
        left, and how many of them were others."""
        self._unwind()
        # the optimizer's step: nothing may wait for the device, nor be asked of it
        captures = capturing(self.torch)
        if captures and self.entries:
            self._graphs(self.now, CAPTURES)
        self.iterations += 1
        was, self.now = self.now, Iteration(self)
        self.took = was.out_took, was.back_took
        self.stale = self.stale + 1 if was.why else 0
        if was.why and self.stale >= STALE:
            self.why = self.why or was.why
        return (was.out, was.back, was.again, was.missed) + ((0, 0) if captures else self._verdict())

    def remove(self) -> None:
        """Be gone. What was saved under the plan and is needed still is found by its handles."""
        self._unwind()
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        self.patches.undo()
        self.watch = self.slab = self.streams = None
        if not self.entered:
            self.mode = None
        self.owners, self.now = {}, Iteration(self)

    # -- the region: from the entry of the outermost module to its exit --------------------------------------

    def _enter(self, module: Module, inputs: Any) -> None:
        if threading.get_ident() != self.thread or self.graph_task() != -1:
            return
        self.depth += 1
        # of torch.compile, which leaves what runs under a dispatch mode as it is
        if type(module).__name__ == "OptimizedModule":
            self._graphs(self.now, COMPILED)
            self._quit()
        elif self.depth == 1:
            try:
                self._push()
            except Exception as e:
                self._broke(self.now, e)

    def _leave(self, module: Module, inputs: Any, outputs: Any) -> None:
        if threading.get_ident() != self.thread or self.graph_task() != -1 or self.depth == 0:
            return
        self.depth -= 1
        if self.depth == 0:
            self._pop()
            try:
                if not capturing(self.torch):
                    # what was to go behind the last save, or it would stay up to the first load
                    self._due(self.now, self.now.saved)
            except Exception as e:
                self._broke(self.now, e)

    def _push(self) -> None:
        if capturing(self.torch):
            return self._graphs(self.now, CAPTURES)
        if self.main is None and self.plan.get("device", "cpu") != "cpu":
            self.main = self.torch.cuda.current_stream(self.plan["device"])
        if self._others():  # what they make of a tensor is learnt with, and ours would go before them
            self.now.why = (
                self.now.why or "the program has hooks on saved tensors of its own around its modules"
            )
            if not self.entries:
                self.why = self.why or self.now.why
            return
        try:
            push_saved_hooks(self.torch, functools.partial(pack, self, self.now), unpack)
            self.pushed = True
        except RuntimeError:
            self.why = (
                self.why
                or "the program runs its modules where torch allows no hooks on saved tensors, as "
                "torch.func does"
            )
            return
        if self.mode is not None:
            self.mode.__enter__()
            self.entered = True

    def _others(self) -> bool:
        """Whether there are hooks on saved tensors that are not ours: torch does not let them be disabled
        while there are any."""
        if saved_hooks_disabled(self.torch) is not None:
            return False  # then there are none
        try:
            self.disable("gmemtop looks")
            return False
        except RuntimeError:
            return True
        finally:
            enable_saved_hooks(self.torch)

    def _quit(self) -> None:
        if self.entered and is_innermost(self.torch, self.mode):
            self.mode.__exit__(None, None, None)
            self.entered = False

    def _pop(self) -> None:
        self._quit()
        if self.pushed:
            pop_saved_hooks(self.torch)
            self.pushed = False

    def _unwind(self) -> None:
        """An exception that does not derive from Exception leaves modules without a word."""
        if (self.depth or self.entered) and threading.get_ident() == self.thread:
            self.depth = 0
            self._pop()

    def _disabling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """torch.func raises while there are hooks on saved tensors: ours go before it looks, and what the
        module saves from there on is kept by torch."""
        carrier = self

        @functools.wraps(original)
        def disable(*args: Any, **kwargs: Any) -> Any:
            if carrier.pushed and threading.get_ident() == carrier.thread:
                pop_saved_hooks(carrier.torch)
                carrier.pushed = False
                carrier.now.why = carrier.now.why or "torch.func is used inside of a module"
            return original(*args, **kwargs)

        return disable

    def _replaying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        carrier = self

        @functools.wraps(original)
        def replay(*args: Any, **kwargs: Any) -> Any:
            carrier._graphs(carrier.now, REPLAYS)
            return original(*args, **kwargs)

        return replay

    def _graphs(self, it: Iteration, why: str) -> None:
        """From here on nothing more leaves, and with the step the plan ends."""
        it.why = it.why or why
        self.why = self.why or why

    # -- what is saved ---------------------------------------------------------------------------------------

    def _save(self, it: Iteration, t: Tensor) -> Kept | Handle:
        n, it.saved = it.saved, it.saved + 1
        self._due(it, n)
        entry = self.entries.get(n) if not it.why else None
        if entry is None and not it.values:  # most of them, in most plans
            return Kept(it, t)
        if (
            type(t) not in self.plain
            or t.layout != self.torch.strided
            or t.is_conj()
            or t.is_neg()
            or t.is_inference()
        ):
            return Kept(it, t)
        storage = t.untyped_storage()
        value = self._known(it, storage)
        if value is not None and value.entry is not None:
            return Handle(it, value, t).watch(self.torch, t)
        if entry is None:
            return Kept(it, t)
        if self.main is not None and self._elsewhere():
            it.missed += 1
            return Kept(it, t)
        if storage.nbytes() != entry["bytes"] or str(storage.device) != self.plan["device"]:
            it.why = (
                "the %d. tensor saved has %d bytes, and %d in the plan: it was made for another iteration"
                % (n + 1, storage.nbytes(), entry["bytes"])
            )
            it.missed += 1
            return Kept(it, t)
        if entry["how"] == "swap":
            there = self.owners.get(entry["slot"])
            owner = None if there is None else there()
            if owner is not None and owner.base is None:  # an earlier graph still has its bytes there
                it.missed += 1
                return Kept(it, t)
            value = value or self._value(it, storage)
            self._out(it, value, storage, entry)
        elif (
            value is None
            or value.spoiled
            or entry["group"] not in (value.groups or ())
            or entry["group"] in it.over
        ):
            it.missed += 1  # it came another way than was recorded
            return Kept(it, t)
        value.entry = entry
        if it.checks and not value.unwritten:
            value.sum = self._sum(storage)
        return Handle(it, value, t).watch(self.torch, t)

    # -- whether it is the same ------------------------------------------------------------------------------

    def _sum(self, storage: UntypedStorage) -> Tensor:
        """The sum of a storage's words, on its device."""
        torch = self.torch
        with without_dispatch(torch), torch.no_grad(), without_autocast(torch):
            flat, words = self._flat(storage, torch.uint8), storage.nbytes() // 8
            total = flat[: 8 * words].view(torch.int64).sum()
            return total + flat[8 * words :].sum() if storage.nbytes() % 8 else total

    def _compare(self, value: Value) -> None:
        with without_dispatch(self.torch), self.torch.no_grad():
            self.compared.append((value.entry["save"], self._sum(value.base.untyped_storage()) != value.sum))

    def _verdict(self) -> tuple[int, int]:
        compared, self.compared = self.compared, []
        if not compared:
            return 0, 0
        # a window that is open describes the program and not this
        with without_dispatch(self.torch), self.torch.no_grad():
            others = [
                n
                for (n, _), other in zip(compared, self.torch.stack([c[1] for c in compared]).tolist())
                if other
            ]
        if others and not self.plan.get("may_differ"):
            self.differs = True
            e = self.entries[min(others)]
            how = (
                "came back from the host"
                if e["how"] == "swap"
                else "was made again by "
                + ", ".join(sorted({name for name, _ in self.plan["groups"][e["group"]]}))
            )
            self.why = (
                self.why
                or "%d of %d tensors were not the same to the bit when they were used again, first the %d. "
                "that is saved, which %s"
                % (len(others), len(compared), min(others) + 1, how)
            )
        return len(compared), len(others)

    def _elsewhere(self) -> bool:
        """Whether the current stream is another than the one that the plan speaks of."""
        return bool(self.torch.cuda.current_stream(self.main.device) != self.main)

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        """On the plan's stream."""
        if self.main is None or not self._elsewhere():
            yield
        else:
            with self.torch.cuda.stream(self.main):
                yield

    def _meet(self, value: Value) -> None:
        """Have the current stream wait for bytes that came back, and their memory for what reads them
        here."""
        here = self.torch.cuda.current_stream(value.base.device)
        if value.arrived is not None:
            value.stream.wait_event(value.arrived)
            value.arrived = None
        if here != value.stream:
            here.wait_stream(value.stream)
            value.base.record_stream(here)

    def _known(self, it: Iteration, storage: UntypedStorage) -> Value | None:
        there = it.values.get(address_of(storage))
        found = None if there is None else there()
        return found if found is not None and found.storage() is storage else None

    def _value(self, it: Iteration, storage: UntypedStorage) -> Value:
        value = Value(storage)
        it.values[address_of(storage)] = weakref.ref(value)
        return value

    def _flat(self, storage: UntypedStorage, dtype: DType) -> Tensor:
        with without_dispatch(self.torch):
            return self.torch.empty(0, dtype=dtype, device=storage.device).set_(storage)

    def _out(self, it: Iteration, value: Value, storage: UntypedStorage, entry: Entry) -> None:
        torch = self.torch
        with without_dispatch(torch), torch.no_grad():
            flat = self._flat(storage, torch.uint8)
            value.host = self.slab[entry["slot"] : entry["slot"] + value.bytes]
            self.owners[entry["slot"]] = weakref.ref(value)
            if self.streams is None:
                begin = time.thread_time_ns()
                value.host.copy_(flat)
                value.base = None
                it.out_took += time.thread_time_ns() - begin
            else:
                out = self.streams[0]
                out.wait_stream(self.main)
                with torch.cuda.stream(out):
                    value.host.copy_(flat, non_blocking=True)
                value.done = out.record_event()
                value.base = flat  # until its copy is done
                it.leaving.append(value)
                it.leaving.sort(key=lambda v: (v.entry or entry)["release"])
        it.out += value.bytes

    def _due(self, it: Iteration, n: int) -> None:
        """Give back what was to go before save n."""
        while it.leaving and it.leaving[0].entry["release"] <= n:
            self._release(it.leaving.pop(0))

    def _release(self, value: Value) -> None:
        """Give the memory back: the stream whose it is waits for the copy before it can be used again."""
        self.main.wait_event(value.done)
        value.base = None

    # -- what is needed --------------------------------------------------------------------------------------

    def _load(self, it: Iteration, packed: Kept | Handle) -> Tensor:
        with it.lock:
            n, it.loaded = it.loaded, it.loaded + 1
            for value in it.leaving:
                self._release(value)
            it.leaving = []
            for entry in self.fetches.get(n, ()):
                there = self.owners.get(entry["slot"])
                owner = None if there is None else there()
                if owner is not None and owner.base is None and owner.entry is entry:
                    try:
                        self._back(it, owner, self.torch.uint8)
                    except self.torch.cuda.OutOfMemoryError:
                        it.missed += 1  # it is fetched when it is needed
                    except Exception as e:
                        self._broke(it, e)
            if isinstance(packed, Kept):
                t = packed.tensor
                expect_unchanged(t, packed.version, t.shape)
            else:
                expect_unchanged(packed.witness, packed.version, packed.size)
                t = self._tensor(it, packed, {})
        if self.watch is not None:
            self.watch.loaded(t)
        return t

    def _tensor(self, it: Iteration, h: Handle, env: dict[Value, Tensor]) -> Tensor:
        base = env.get(h.value)
        if base is None:
            base = self._base(it, h.value, h.dtype)
        return self._view(base, h)

    def _view(self, base: Tensor, h: Handle) -> Tensor:
        if base.dtype == h.dtype:
            return base.as_strided(h.size, h.stride, h.offset)
        with without_dispatch(self.torch):
            return self.torch.empty(0, dtype=h.dtype, device=base.device).set_(
                base.untyped_storage(), h.offset, h.size, h.stride
            )

    def _base(self, it: Iteration, value: Value, dtype: DType) -> Tensor:
        """The bytes of a value as a flat tensor, from where they are."""
        if value.base is None:
            there = value.storage()
            if there is not None and not value.spoiled:
                return self._flat(there, dtype)  # somebody else has it still
            if value.host is not None:
                self._back(it, value, dtype)
            else:
                self._again(it, value)
        if value.stream is not None:
            self._meet(value)
        if value.sum is not None:
            try:
                if self.main is None or not self._elsewhere():
                    self._compare(value)
            except self.torch.cuda.OutOfMemoryError:  # then it is not compared
                pass
            except Exception as e:
                self._broke(it, e)
            value.sum = None
        return value.base

    def _back(self, it: Iteration, value: Value, dtype: DType) -> None:
        torch, device = self.torch, self.plan["device"]
        begin = time.thread_time_ns()
        if self.main is not None and self._elsewhere():
            with self._there():
                return self._back(it, value, dtype)
        with torch.no_grad():
            size = (
                dtype.itemsize if hasattr(dtype, "itemsize") else torch.empty(0, dtype=dtype).element_size()
            )
            base = (
                torch.empty(value.bytes // size, dtype=dtype, device=device)
                if value.bytes % size == 0
                else torch.empty(value.bytes, dtype=torch.uint8, device=device)
            )
            with without_dispatch(torch):
                flat = self._flat(base.untyped_storage(), torch.uint8)
                if self.streams is None:
                    flat.copy_(value.host)
                    value.stream = self.main
                    it.back_took += time.thread_time_ns() - begin
                else:
                    back = self.streams[1]
                    # which has waited for the copy to the host when it gave the memory back
                    back.wait_stream(self.main)
                    with torch.cuda.stream(back):
                        flat.copy_(value.host, non_blocking=True)
                    value.arrived, value.stream = back.record_event(), self.main
        value.base = base
        it.back += value.bytes

    def _broke(self, it: Iteration, error: BaseException) -> None:
        it.why = it.why or "%s: %s" % (type(error).__name__, error)
        self.why = self.why or it.why


def pack(carrier: Carrier, it: Iteration, t: Tensor) -> Kept | Handle:
    if carrier.graph_task() != -1:
        return Kept(it, t)
    if capturing(carrier.torch):  # begun inside of a module
        carrier._graphs(it, CAPTURES)
        return Kept(it, t)
    try:
        packed = carrier._save(it, t)
    except Exception as e:
        carrier._broke(it, e)
        packed = Kept(it, t)
    if carrier.watch is not None:
        carrier.watch.saved_one(t)
    return packed


def unpack(packed: Kept | Handle) -> Tensor:
    return packed.iteration.carrier._load(packed.iteration, packed)
