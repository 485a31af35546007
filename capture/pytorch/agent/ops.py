"""Captures what a stretch of training does, op by op.

An Ops watches the ops of one thread, and of the autograd threads that work for it, from begin() to end(),
through a TorchDispatchMode, and fills a Recording.

Storages. A Python storage object lives exactly as long as the memory, so a weak reference to it says when the
memory goes. Its C++ address identifies it while it lives; later the address may be used again. A storage that
is resized in place (FSDP empties and refills gathered parameters this way) counts as one that goes and one
that comes.

What was there before. An op's output appears with the op. Data made from an array, a list or another
process's memory appears without one and is first seen where an op reads it, just like a table made years ago.
So a window begins by noting, weakly, the storages of all tensors that Python holds. What the forward pass
meets beyond those has come since; what only the backward pass or an optimizer meets (a reducer's buckets,
which C++ holds) was there.

Rejected, for learning what autograd saved: a pair of default saved-tensor hooks. While one is pushed,
torch.func raises in the user's code and autograd's version check is off. What backward ops read says the same
and costs training nothing.

Nothing here may change a result: no op runs on the user's tensors, no random number is drawn, nothing waits
for a device.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable

from .compat import (
    address_of,
    dispatch_mode,
    graph_task,
    is_innermost,
    is_wrapper,
    sparse_parts,
    without_functions,
)
from .draws import draws
from .lines import BACKWARD, FORWARD, MAX_ROWS, OPTIMIZER, Recording, Storage
from .modules import Modules
from .patch import Patches
from .traits import Traits
from .within import Within

if TYPE_CHECKING:
    from .kinds import Clock, Look, Module, Op, Optimizer, Tensor, Timer, UntypedStorage
    from .lines import Addresses


class Ops(Recording):
    """One window. Only end() of it is called from a thread other than the training's."""

    def __init__(
        self,
        torch: Any,
        clock: Clock,
        now: int,
        addresses: Addresses,
        optimizers: list[Optimizer],
        broke: Callable[[BaseException], None],
    ) -> None:
        Recording.__init__(self, torch, now, addresses)
        self.clock = clock
        self.broke = broke
        self.phase = FORWARD
        self.backward = False
        self.modules = Modules(torch)
        self.freed: set[int] = set()
        self.inner: set[int] = set()
        self.there: dict[int, Any] = {}
        self.rooting = False  # backward() has been called and its graph not yet begun to run
        self.funcs: dict[Op, Traits] = {}
        self.wraps: dict[type, bool] = {}
        self.graphs = 0
        self.mode: Any = None
        self.hooks: list[Any] = []
        self.patches = Patches()
        self.parameters: set[int] = set()
        self.tensor, self.strided = torch.Tensor, torch.strided
        self.thread = threading.get_ident()
        self.graph_task = graph_task(torch)
        self.last = now
        self.within = Within(torch)
        for optimizer in optimizers:
            self._optimizer(optimizer)

    # -- begin and end, on the training thread ---------------------------------------------------------------

    def begin(self) -> None:
        from torch.nn.modules import module as module_hooks

        self.there = self._held()
        self.hooks.append(module_hooks.register_module_forward_pre_hook(self._enter))
        self.hooks.append(module_hooks.register_module_forward_hook(self._leave, always_call=True))
        self.patches.put(self.torch.UntypedStorage, "resize_", self._resizing)
        self.patches.subclassing(self.torch)
        if self.torch.cuda.is_available() and hasattr(self.torch.cuda, "CUDAGraph"):
            self.patches.put(self.torch.cuda.CUDAGraph, "replay", self._replaying)
        self.mode = dispatch_mode(lambda func, args, kwargs: self._op(func, args, kwargs))
        self.mode.__enter__()

    def on_top(self) -> bool:
        """Whether the dispatch mode can be left: it is the thread's innermost one."""
        return is_innermost(self.torch, self.mode)

    def leave(self) -> bool:
        """Leave the dispatch mode, and say whether it is left. What the program has put inside of it has
        to go first."""
        if self.mode is not None and self.on_top():
            self.mode.__exit__(None, None, None)
            self.mode = None
        return self.mode is None

    def end(self) -> None:
        """Leave the mode, remove the hooks, let go of every storage."""
        self.stopped = True
        self.leave()
        self.unhook()
        alive = [(s, s()) for s in list(self.alive.values())]
        self.addresses.last = {s.key: (s.address, s.size) for s, _ in alive}
        self.addresses.there.update(
            (s.key, weakref.ref(storage)) for s, storage in alive if storage is not None
        )
        self.alive.clear()
        self.modules.forget()
        self.funcs = {}

    def unhook(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        self.patches.undo()

    def _resizing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        window = self

        def resize_(storage: UntypedStorage, *args: Any, **kwargs: Any) -> Any:
            known = None if window.stopped else window.alive.get(address_of(storage))
            out = original(storage, *args, **kwargs)
            if known is not None:
                try:
                    window._resized(known, storage)
                except Exception as e:
                    window.stop(e)
            return out

        return resize_

    def _replaying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        window = self

        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            window.graphs += 1
            return original(graph, *args, **kwargs)

        return replay

    def stop(self, error: BaseException) -> None:
        """Watch no more. What is on the mode's stack stays there, passing ops on, until the next boundary."""
        self.stopped = True
        self.broke(error)

    # -- storages --------------------------------------------------------------------------------------------

    def _held(self) -> dict[int, Any]:
        """Weak references to the storages of the tensors that Python holds, by address. Looking through
        all objects takes tens of milliseconds: for windows that come by themselves it is done now and
        then, and what the windows since have seen is added."""
        known, now = self.addresses, self.clock()
        if now < known.look_again:
            return known.there
        kinds, new, known.there = {self.tensor}, [self.tensor], {}
        while new:
            new = [k for kind in new for k in kind.__subclasses__() if k not in kinds]
            kinds.update(new)
        with without_functions(self.torch):
            for t in [o for o in gc.get_objects() if type(o) in kinds]:
                try:
                    storage = t.untyped_storage()
                    known.there[address_of(storage)] = weakref.ref(storage)
                except Exception:  # it has no storage of its own: its parts are tensors, or it has no memory
                    pass
        known.look_again = self.clock() + 100 * (self.clock() - now)
        return known.there

    def _came(self, key: int, storage: UntypedStorage) -> bool:
        """Whether a storage that an op reads and none made has come since the window began."""
        there = self.there.get(key)
        return (there is None or there() is not storage) and self._phase() == FORWARD

    def _storage(
        self,
        t: Tensor,
        category: str | None = None,
        known: bool = False,
        at: int = 0,
        born: str | None = None,
    ) -> list[int]:
        """The numbers of the storages of t: one, but for sparse ones and wrappers, whose parts have one
        each, and those without memory."""
        kind = type(t)
        wraps = self.wraps.get(kind)
        if wraps is None:
            wraps = self.wraps[kind] = is_wrapper(kind)
        try:
            if wraps:
                raise NotImplementedError
            storage = t.untyped_storage()
            key = address_of(storage)
        except (NotImplementedError, RuntimeError):
            return [n for part in self._parts(t) for n in self._storage(part, category, known, at, born)]
        found = self.alive.get(key)
        if found is None:
            on = str(storage.device)  # a fake tensor's says meta where the tensor's own does not
            if on == "meta":
                return []
            found = Storage(storage, self._gone)
            found.key, found.number, found.size = key, len(self.born), storage.nbytes()
            self.alive[key] = found
            self.where[found.number] = on
            if on != "cpu":
                self.device = on
            if known and (category is not None or not self._came(key, storage)):
                found.address = self.addresses.of(key, found.size)
                self.before.append(("a", found.number, found.size, 0, found.address))
                self.born.append(None)
                if category is None and t.grad_fn is not None:
                    category = "activation"  # of a step before, and kept: a loss that is looked at late
            else:
                # memory that went while the op ran went before its outputs came
                self.last = max(self.last, at or self.clock())
                found.address = self.addresses.fresh(found.size)
                self.rows.append(("a", found.number, found.size, self.last, found.address))
                self.born.append(None if known else born or self._phase())
                self.within.add(on, found.size)
        elif storage.nbytes() != found.size:
            self._resized(found, storage)
        if category is not None:
            self.category[found.number] = category
        return [found.number]

    def _parts(self, t: Tensor) -> list[Tensor]:
        layout = t.layout
        torch = self.torch
        if layout == torch.sparse_coo:
            return sparse_parts(t)
        if layout in (torch.sparse_csr, torch.sparse_bsr):
            return [t.crow_indices(), t.col_indices(), t.values()]
        if layout in (torch.sparse_csc, torch.sparse_bsc):
            return [t.ccol_indices(), t.row_indices(), t.values()]
        flatten = getattr(t, "__tensor_flatten__", None)
        parts = [] if flatten is None else [getattr(t, name) for name in flatten()[0]]
        # a distributed tensor's mesh is named there as well
        return [part for part in parts if isinstance(part, self.tensor)]

    def _gone(self, storage: Storage) -> None:
        try:
            if not self.stopped and self.alive.get(storage.key) is storage:
                del self.alive[storage.key]
                if storage.number in self.away:
                    self.away[storage.number] = storage
                else:
                    self.within.remove(self.where[storage.number], storage.size)
                    self._freed(storage.number)
        except Exception as e:
            self.stop(e)

    def _freed(self, number: int) -> None:
        self.last = self.clock()
        self.freed.add(number)
        self._row(("f", number, self.last))

    def _resized(self, found: Storage, storage: UntypedStorage) -> None:
        size, now = storage.nbytes(), self.clock()
        self.last = now
        if size != found.size:
            self.refilled.add(found.number)
            self.rows.append(("f", found.number, now))
            self.within.remove(self.where[found.number], found.size)
            found.size, found.address = size, self.addresses.fresh(size)
            self.rows.append(("a", found.number, size, now, found.address))
            self.within.add(self.where[found.number], size)

    def _tensors(self, tree: Any, out: list[Tensor]) -> list[Tensor]:
        for x in tree:
            if isinstance(x, self.tensor):
                out.append(x)
            elif isinstance(x, (list, tuple)):
                self._tensors(x, out)
            elif isinstance(x, dict):
                self._tensors(x.values(), out)
        return out

    def _numbers(self, tensors: list[Tensor], **how: Any) -> list[int]:
        out = []
        for t in tensors:
            out += self._storage(t, **how)
        return out

    # -- ops -------------------------------------------------------------------------------------------------

    def _phase(self) -> str:
        return BACKWARD if self.rooting or self.graph_task() != -1 else self.phase

    def _op(self, func: Op, args: Any, kwargs: Any) -> Any:
        if self.stopped:
            return func(*args, **kwargs)
        begin = self.clock()
        timer = looked = seen = None
        try:
            info = self.funcs.get(func)
            if info is None:
                info = self.funcs[func] = Traits(func, self.torch)
            inputs = self._tensors(args, [])
            if kwargs:
                self._tensors(kwargs.values(), inputs)
            phase = self._phase()
            module = self._module(phase)
            read = self._numbers(inputs, known=True)
            if self.device != "cpu" and not info.skip:
                timer = self._timer(inputs)
                looked = self.within.before(inputs, len(self.rows))
        except Exception as e:
            self.stop(e)
            return func(*args, **kwargs)
        freed = len(self.freed)
        start = self.clock()
        out = func(*args, **kwargs)
        stop = self.clock()
        if self.stopped or info.skip:
            return out
        try:
            if timer is not None:
                timer[1].record(timer[2])
            if looked is not None:
                seen = looked, self.within.look(looked[1])
            # memory went inside of the op, as an argument's does where set_ puts another in its place
            if freed != len(self.freed):
                read = [number for number in read if number not in self.freed]
            self._ran(info, args, kwargs, out, inputs, read, phase, module, start, stop, timer, seen)
        except Exception as e:
            self.stop(e)
        self.cost += self.clock() - begin - (stop - start)
        return out

    def _timer(self, inputs: Any) -> Timer | None:
        """Two events around a kernel, on the stream that it will run on; none while a graph is captured,
        whose events are not real."""
        cuda = self.torch.cuda
        for t in inputs:
            if t.is_cuda:
                if cuda.is_current_stream_capturing():
                    return None
                stream = cuda.current_stream(t.device)
                timer = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True), stream
                timer[0].record(stream)
                return timer
        return None

    def _ran(
        self,
        info: Traits,
        args: Any,
        kwargs: Any,
        out: Any,
        inputs: Any,
        read: list[int],
        phase: str,
        module: str,
        start: int,
        stop: int,
        timer: Timer | None,
        looked: tuple[Look, tuple[int, int]] | None,
    ) -> None:
        born = phase
        if phase == BACKWARD:
            if not self.backward:
                self.backward = True
                self.saved.update(
                    n
                    for n in [s.number for s in list(self.alive.values())] + list(self.away)
                    if self.born[n] == FORWARD
                )
            if self.modules.running and self.torch.is_grad_enabled():
                born = FORWARD  # a checkpoint's forward runs again; what it makes is what backward will read
        elif phase == FORWARD:
            self.backward = False
        reading, made = set(read), set()
        written = set()
        for k, name in info.written:
            value = args[k] if k < len(args) else kwargs.get(name)
            written.update(self._numbers(self._tensors((value,), [])))
        fresh = len(self.born)
        for number in self._numbers(self._tensors((out,), []), at=start, born=born):
            if number >= fresh or number not in reading:
                made.add(number)
        if not made and not written:
            return  # a view, or a question about sizes: no bytes are touched
        if (
            info.overwrites
            and len(written) == 1
            and inputs[0].numel() * inputs[0].element_size() == inputs[0].untyped_storage().nbytes()
        ):
            made, written = made | written, set()
        reads = set() if info.shapes else reading - made - written
        if phase == BACKWARD:
            self.changed_backward |= written | made
            if born == BACKWARD:
                self.read_backward |= reads
        elif phase == FORWARD:
            self.touched_forward |= reading
            if self.modules.running:
                self.inner |= made
        if born == FORWARD:
            if info.cast and reads and reads <= self.parameters:
                for number in made:
                    self.category.setdefault(number, "temporary")  # autocast's copy of a weight
        own, kept = self._own(info, looked) if looked is not None else ((), False)
        made.update(own)
        stream = 0
        if timer is not None:
            stream = timer[2].stream_id
            if len(self.rows) < MAX_ROWS:
                self.timed.append((len(self.rows), timer[2].device, timer[0], timer[1]))
                self.newest[timer[2]] = timer[1]
        running = set()
        if info.running and len(args) > 5 and args[5] and args[3] is not None:
            running = set(self._storage(args[3]) + self._storage(args[4]))
            reads -= running
        self._row(
            (
                "o",
                start,
                stop - start,
                info.name,
                phase,
                module,
                sorted(reads),
                sorted(made),
                sorted(written - made),
                not info.collective and not draws(info.chance, args, kwargs),
                stream,
            )
        )
        if own and not kept:
            self.last = max(self.last, stop)
            self._row(("f", own[0], self.last))
        # an op of its own changes them, so that the normalisation, which makes nothing of them while one
        # trains, can run again
        if running:
            self._row(
                ("o", stop, 0, "running_statistics", phase, module, [], [], sorted(running), False, stream)
            )

    def _own(self, info: Traits, looked: tuple[Look, tuple[int, int]]) -> tuple[tuple[int, ...], bool]:
        """Note the bytes that an op took for itself, if any. Returns the number that they go by, and
        whether the op keeps them."""
        (was, now), on = looked, looked[0][0]
        took, kept = self.within.took(was, now)
        if took == 0:
            return (), False
        number, size = len(self.born), kept or took
        self.born.append(None)
        self.where[number], self.category[number], self.label[number] = (
            on,
            "temporary",
            "workspace of " + info.name,
        )
        self.rows.append(("a", number, size, self.last, self.addresses.fresh(size)))
        if kept:
            self.within.add(on, size)
        return (number,), kept > 0

    # -- modules and optimizers ------------------------------------------------------------------------------

    def _module(self, phase: str) -> str:
        if phase == OPTIMIZER:
            return ""
        if phase == BACKWARD and not (self.modules.running and self.torch.is_grad_enabled()):
            return self.modules.behind()
        return self.modules.current()

    def saved_one(self, t: Tensor) -> None:
        """Autograd saves t. Such rows are there where a plan that is to be carried out is made of the
        window."""
        self._touched(t, "gmemtop::save", FORWARD)

    def loaded(self, t: Tensor) -> None:
        self._touched(t, "gmemtop::load", BACKWARD)

    def _touched(self, t: Tensor, name: str, phase: str) -> None:
        if self.stopped:
            return
        try:
            self._row(
                (
                    "o",
                    self.clock(),
                    0,
                    name,
                    phase,
                    self._module(phase) if phase == FORWARD else "",
                    self._storage(t, known=True),
                    [],
                    [],
                    False,
                    0,
                )
            )
        except Exception as e:
            self.stop(e)

    def _elsewhere(self) -> bool:
        """Whether another thread trains beside: modules' hooks are called for it as well. One that works
        for a backward pass belongs to it."""
        return threading.get_ident() != self.thread and self.graph_task() == -1

    def _enter(self, module: Module, inputs: Any) -> None:
        if self.stopped or self._elsewhere():
            return
        try:
            name = self.modules.names.get(id(module))
            if name is None:
                name = self._root(module)
            if not self.modules.running:
                for t in self._tensors(inputs, []):
                    for number in self._storage(t, known=True) if t.grad_fn is None else ():
                        # what one module made is no input of the next, a loss for one
                        if number not in self.inner:
                            self.category.setdefault(number, "input")
            self.modules.running.append(name)
        except Exception as e:
            self.stop(e)

    def _leave(self, module: Module, inputs: Any, outputs: Any) -> None:
        if self.modules.running and not self._elsewhere():
            self.modules.running.pop()

    def _root(self, module: Module) -> str:
        """Name a module that no other holds, and all that it holds."""
        named = self.modules.name(module)
        for kind, tensors in (
            ("parameter", module.named_parameters()),
            ("parameter", module.named_buffers()),
        ):
            for name, t in tensors:
                for number in self._storage(t, kind, known=True):
                    self.label.setdefault(number, name)
                    self.parameters.add(number)
        return named

    def _optimizer(self, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            for p in group["params"]:
                numbers = self._storage(p, "parameter", known=True)
                self.parameters.update(numbers)
                if p.grad is not None:
                    for n, number in zip(numbers, self._storage(p.grad, "gradient", known=True)):
                        self.gradient_of[number] = n
        for state in optimizer.state.values():
            for t in self._tensors((state,), []):
                self._storage(t, "optimizer_state", known=True)

    def look(self, optimizers: list[Optimizer]) -> None:
        """Take note of gradients and states that came since: at a window's end, before storages are let go
        of."""
        if not self.stopped:
            for optimizer in optimizers:
                self._optimizer(optimizer)

    def entering_optimizer(self, optimizer: Optimizer) -> None:
        if not self.stopped:
            self._optimizer(optimizer)
            self.phase = OPTIMIZER

    def leaving_optimizer(self, optimizer: Optimizer) -> None:
        self.phase = FORWARD
        if not self.stopped:
            for state in optimizer.state.values():
                for t in self._tensors((state,), []):
                    self._storage(t, "optimizer_state")
