"""Captures what a stretch of training does, op by op.

An Ops watches the ops of one thread, and of the autograd threads that work for it, from begin() to end(),
through a TorchDispatchMode. It has parts, each with its own state:

    Rows      what is recorded, in order, with its times
    Storages  which memory exists, and when it is allocated and freed
    Phases    which phase of the step the thread is in
    Roles     modules and optimizers, and what their tensors are
    Uses      what ops did with storages, which gives the remaining categories
    Within    memory that belongs to no storage

Rejected, for learning what autograd saved: a pair of default saved-tensor hooks. While one is pushed,
torch.func raises in the user's code and autograd's version check is off. What backward ops read tells the
same and costs training nothing.

Nothing here may change a result: no op runs on the user's tensors, no random number is drawn, nothing waits
for a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Collection, Iterator

from .compat import dispatch_mode, is_innermost
from .crossings import Crossings
from .draws import draws
from .keeps import Keeps
from .lines import lines
from .patch import Patches
from .phases import BACKWARD, FORWARD, OPTIMIZER, Phases
from .roles import Roles
from .rows import Rows
from .storages import Storages
from .traits import Traits
from .uses import Uses
from .window import Window
from .within import Within

if TYPE_CHECKING:
    from .kinds import Clock, Look, Module, Op, Optimizer, Tensor, Timer, UntypedStorage
    from .storages import Addresses


def _ascending(numbers: Collection[int]) -> tuple[int, ...]:
    """Numbers in ascending order, each once. A tuple, because the garbage collector stops tracking tuples of
    numbers, so they cost it nothing; lists would."""
    return tuple(numbers) if len(numbers) < 2 else tuple(sorted(set(numbers)))


class Ops(Window):
    """One window. Of its methods, only end() is called from a thread other than the training thread."""

    make_storages, make_within = Storages, Within  # an estimate uses its own classes
    crossings: Crossings  # every description has them

    def __init__(
        self,
        torch: Any,
        clock: Clock,
        now: int,
        addresses: Addresses,
        optimizers: list[Optimizer],
        broke: Callable[[BaseException], None],
    ) -> None:
        self.torch, self.clock, self.start = torch, clock, now
        self.steps: list[tuple[int, int]] = []
        self.cost = self.lost = self.graphs = 0
        self.facts: dict[str, Any] = {}
        self.rows = Rows(clock, now, broke)
        self.phases = Phases(torch)
        self.within = self.make_within(torch)
        self.storages = self.make_storages(torch, self.rows, self.phases, addresses, self.within)
        self.uses = Uses(self.storages)
        self.roles = Roles(torch, self.rows, self.phases, self.storages, self.uses, self._returns)
        self.crossings = Crossings()
        self.keeps = Keeps(torch)
        self.funcs: dict[int, Traits] = {}  # by id: hashing an op would run a Python function
        self.mode: Any = None
        self.patches = Patches()
        for optimizer in optimizers:
            self.roles.optimizer(optimizer)

    # -- begin and end, on the training thread ---------------------------------------------------------------

    def begin(self) -> None:
        self.storages.begin()
        self.roles.hook()
        self.patches.put(self.torch.UntypedStorage, "resize_", self._resizing)
        self.patches.subclassing(self.torch)
        if self.torch.cuda.is_available() and hasattr(self.torch.cuda, "CUDAGraph"):
            self.patches.put(self.torch.cuda.CUDAGraph, "replay", self._replaying)
        self.mode = dispatch_mode(self._op)
        self.mode.__enter__()

    def on_top(self) -> bool:
        """Whether the dispatch mode can be left, because it is the thread's innermost one."""
        return is_innermost(self.torch, self.mode)

    def leave(self) -> bool:
        """Leave the dispatch mode. Returns whether that worked: modes that the program entered inside it must
        be left first."""
        if self.mode is not None and self.on_top():
            self.mode.__exit__(None, None, None)
            self.mode = None
        return self.mode is None

    @property
    def stopped(self) -> bool:
        return self.rows.stopped

    def stop(self) -> None:
        """Stop recording. The mode stays on the stack and passes ops through until the next boundary."""
        self.rows.stopped = True

    def end(self) -> None:
        """Leave the mode, remove the hooks, forget every storage."""
        self.stop()
        self.leave()
        self.unhook()
        self.lost = self.rows.lost
        self.storages.end()
        self.roles.forget()
        self.funcs = {}

    def unhook(self) -> None:
        self.roles.unhook()
        self.patches.undo()

    def settled(self) -> bool:
        return self.rows.settled()

    def pieces(self, head: dict[str, Any]) -> Iterator[str]:
        return lines(head, self.steps, self.rows, self.storages, self.uses)

    def _resizing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        rows, storages = self.rows, self.storages

        def resize_(storage: UntypedStorage, *args: Any, **kwargs: Any) -> Any:
            known = storages.known(storage)
            out = original(storage, *args, **kwargs)
            if known is not None:
                try:
                    storages.resized(known, storage)
                except Exception as e:
                    rows.stop(e)
            return out

        return resize_

    def _replaying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        window = self

        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            window.graphs += 1
            return original(graph, *args, **kwargs)

        return replay

    # -- ops -------------------------------------------------------------------------------------------------

    def _op(self, func: Op, args: Any, kwargs: Any) -> Any:
        rows, storages = self.rows, self.storages
        if rows.stopped:
            return func(*args, **kwargs)
        begin = self.clock()
        timer = looked = seen = None
        try:
            info = self.funcs.get(id(func))
            if info is None:
                info = self.funcs[id(func)] = Traits(func, self.torch)
            inputs = storages.tensors(args, [])
            if kwargs:
                storages.tensors(kwargs.values(), inputs)
            phase = self.phases.now()
            # if a checkpoint reruns its forward pass, backward will read what it makes
            again = phase == BACKWARD and self.roles.forward_again()
            read = storages.read(inputs)
            if info.looks:  # nearly half of all ops: they touch no bytes
                self.uses.runs(phase)
                if again or phase == FORWARD:
                    self.roles.module(phase, again)
                self.cost += self.clock() - begin
                return func(*args, **kwargs)
            module = self.roles.module(phase, again)
            if self.keeps.saved:
                self._held(self.keeps.let_go())
            if storages.device != "cpu" and not info.skip:
                timer = self._timer(inputs, kwargs)
                looked = self.within.before(inputs, len(rows.list))
        except Exception as e:
            rows.stop(e)
            return func(*args, **kwargs)
        freed = len(storages.freed)
        start = self.clock()
        out = func(*args, **kwargs)
        stop = self.clock()
        if rows.stopped or info.skip:
            return out
        try:
            if timer is not None:
                timer[1].record(timer[2])
            if looked is not None:
                seen = looked, self.within.look(looked[1])
            # the op freed memory, for example an argument's that set_ replaced
            if freed != len(storages.freed):
                read = [number for number in read if number not in storages.freed]
            self._ran(info, args, kwargs, out, inputs, read, phase, again, module, start, stop, timer, seen)
        except Exception as e:
            rows.stop(e)
        self.cost += self.clock() - begin - (stop - start)
        return out

    def _timer(self, inputs: Any, kwargs: Any) -> Timer | None:
        """Two events around a kernel, on the stream that it will run on. None while a graph is captured,
        since events in a graph measure nothing.

        An op that reads nothing on a GPU may still make something there, if its device argument says so. A
        copy from unpinned memory blocks the host until the GPU has finished all earlier work, which the
        host's clock would count as the copy's time."""
        cuda = self.torch.cuda
        device = next((t.device for t in inputs if t.is_cuda), kwargs.get("device"))
        if device is None or device.type != "cuda" or cuda.is_current_stream_capturing():
            return None
        stream = cuda.current_stream(device)
        timer = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True), stream
        timer[0].record(stream)
        return timer

    def _ran(
        self,
        info: Traits,
        args: Any,
        kwargs: Any,
        out: Any,
        inputs: Any,
        read: list[int],
        phase: str,
        again: bool,
        module: str,
        start: int,
        stop: int,
        timer: Timer | None,
        looked: tuple[Look, tuple[int, int]] | None,
    ) -> None:
        """Record an op that has run. again says whether a checkpoint reruns it in a backward pass, and looked
        has the allocator's figures before and after it."""
        rows, storages, uses = self.rows, self.storages, self.uses
        uses.runs(phase)
        born = FORWARD if again else phase
        written = self._written(info, args, kwargs) if info.written else set()
        made: Collection[int] = () if info.own else storages.made(out, read, start, born)
        if not made and not written:
            return  # a view or a query about sizes: it touches no bytes
        reads = () if info.shapes else _ascending(read)
        if written:
            if (
                info.overwrites
                and len(written) == 1
                and inputs[0].numel() * inputs[0].element_size() == inputs[0].untyped_storage().nbytes()
            ):
                made, written = written.union(made), set()
            reads = tuple(n for n in reads if n not in made and n not in written)
        uses.note(phase, born, read, reads, (*written, *made) if written else made)
        if phase == FORWARD:
            self.roles.makes(made)
            if not self.roles.modules.running:
                parameters = self.roles.parameters
                sizes = storages.sizes(inputs) if not parameters.isdisjoint(read) else {}
                if sizes or written:
                    uses.between(sizes, parameters, written)
        if born == FORWARD and info.cast and reads and self.roles.parameters.issuperset(reads):
            for number in made:
                storages.category.setdefault(number, "temporary")  # autocast's copy of a weight
        own, kept = self._own(info, looked) if looked is not None else ((), False)
        stream = 0
        if timer is not None:
            stream = timer[2].stream_id
            rows.timing(timer)
        running: tuple[int, ...] = ()
        if info.running and len(args) > 5 and args[5] and args[3] is not None:
            running = _ascending(storages.of(args[3]) + storages.of(args[4]))
            reads = tuple(n for n in reads if n not in running)
        rows.add(
            (
                "o",
                start,
                stop - start,
                info.name,
                phase,
                module,
                reads,
                _ascending((*made, *own) if own else made),
                _ascending(written.difference(made)) if written else (),
                not (info.collective or info.chance is not None and draws(info.chance, args, kwargs)),
                stream,
                again,
                not self.roles.grad_enabled(),
            )
        )
        if own and not kept:
            rows.last = max(rows.last, stop)
            rows.add(("f", own[0], rows.last))
        # record their change as a separate op, so that the normalisation, which does not use them in
        # training, can be rerun
        if running:
            rows.add(
                (
                    "o",
                    stop,
                    0,
                    "running_statistics",
                    phase,
                    module,
                    (),
                    (),
                    running,
                    False,
                    stream,
                    again,
                    not self.roles.grad_enabled(),
                )
            )

    def _written(self, info: Traits, args: Any, kwargs: Any) -> set[int]:
        """The numbers of the storages that an op changed, according to its schema."""
        written = set()
        for k, name in info.written:
            value = args[k] if k < len(args) else kwargs.get(name)
            written.update(self.storages.read(self.storages.tensors((value,), [])))
        return written

    def _own(self, info: Traits, looked: tuple[Look, tuple[int, int]]) -> tuple[tuple[int, ...], bool]:
        """Note the bytes that an op took for itself, if any. Returns their number, and whether the op keeps
        them."""
        was, now = looked
        took, kept = self.within.took(was, now)
        if took == 0:
            return (), False
        return (self.storages.workspace(info.name, was[0], took, kept),), kept > 0

    # -- what else is seen of a step -------------------------------------------------------------------------

    def saved_one(self, t: Tensor, stays: bool) -> None:
        """Autograd saves t; stays says that a hook keeps it. Only windows from which a plan is made to be run
        have such rows."""
        for number in self._touched(t, "gmemtop::save", FORWARD):
            self.crossings.save(number)
            try:
                if number not in self.roles.parameters:
                    known = self.storages.known(t.untyped_storage())
                    if known is not None and known.number == number:  # not so for a wrapper
                        self.keeps.save(number, known, stays)
            except Exception as e:
                self.rows.stop(e)

    def loaded(self, t: Tensor) -> None:
        """Autograd needs t again."""
        try:
            if not self.rows.stopped:
                self._held(self.keeps.let_go(begins=True))
        except Exception as e:
            self.rows.stop(e)
        for number in self._touched(t, "gmemtop::load", BACKWARD):
            self.crossings.load(number, t.untyped_storage().nbytes())
            if self.keeps.need(number):
                self._held([number])

    def _returns(self, inputs: Any) -> None:
        """A module returns. The call held its inputs until now, even if a stand-in was saved for backward."""
        if self.rows.stopped or not self.crossings.saved:
            return
        try:
            known = [self.storages.known(t.untyped_storage()) for t in self.storages.tensors(inputs, [])]
            self._held(
                sorted({s.number for s in known if s is not None and s.number in self.crossings.saved})
            )
        except (NotImplementedError, RuntimeError):  # a wrapper has no storage of its own
            pass
        except Exception as e:
            self.rows.stop(e)

    def _held(self, numbers: list[int]) -> None:
        """The program itself held these storages until now. Freed ones are left out: they were freed with the
        part of the graph that had saved them."""
        numbers = [number for number in numbers if number not in self.storages.freed]
        if numbers:
            self.rows.add(
                ("o", self.clock(), 0, "gmemtop::held", FORWARD, "", numbers, [], [], False, 0, False, False)
            )

    def _touched(self, t: Tensor, name: str, phase: str) -> list[int]:
        """Record a row about a tensor, and return the numbers of its storages."""
        if self.rows.stopped:
            return []
        try:
            now = self.clock()
            module = self.roles.module(phase) if phase == FORWARD else ""
            read = self.storages.of(t, known=True)
            self.rows.add(("o", now, 0, name, phase, module, read, [], [], False, 0, False, False))
            return list(read)
        except Exception as e:
            self.rows.stop(e)
            return []

    def rooting(self, on: bool) -> None:
        self.phases.rooting = on

    def entering_optimizer(self, optimizer: Optimizer) -> None:
        if not self.rows.stopped:
            self.roles.optimizer(optimizer)
            self.phases.outside = OPTIMIZER

    def leaving_optimizer(self, optimizer: Optimizer) -> None:
        self.phases.outside = FORWARD
        self.crossings.step(id(optimizer))
        if not self.rows.stopped:
            self.roles.state(optimizer)

    def entering(self, module: Module, inputs: Any) -> None:
        self.roles.enter(module, inputs)

    def in_closure(self, on: bool) -> None:
        self.phases.outside = FORWARD if on else OPTIMIZER

    def look(self, optimizers: list[Optimizer]) -> None:
        """Note gradients and optimizer state that are new, at the end of a window, before storages are
        forgotten."""
        if not self.rows.stopped:
            for optimizer in optimizers:
                self.roles.optimizer(optimizer)
