"""Recomputes dropped tensors by rerunning the ops that made them. Carrier decides which.

An op is noted as it runs, below autograd and autocast: what was called, and with which arguments. Tensor
arguments are kept as handles of values, so they hold no memory beyond what the plan keeps. If an op reads
something that is not recomputed, it is held. Before an op that is not noted changes something in place,
everything that depends on the old bytes is recomputed.

Between modules no op is seen, and the program may change there what the outermost module was given or
returned. Small tensors are therefore copied. For larger ones the plan has backups: ops that make such a
tensor, from what autograd saves. They run again only if the tensor's version shows that it was changed.

Rerunning calls the ops directly: no module code, no hook of the program and no random draw runs a second
time. An op that may draw is rerun only if the call did not draw. A normalisation is rerun without its running
statistics, which it would otherwise update twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any, Callable, Sequence

from .compat import (
    address_of,
    graph_task,
    schema_of,
    version_of,
    without_autocast,
    without_dispatch,
    written_arguments,
)
from .draws import ONCE, chance_of, draws, undrawn, unwritten
from .values import Handle, bytes_of, movable

if TYPE_CHECKING:
    from .carry import Iteration
    from .kinds import Info, Op, Plan, Tensor
    from .streams import Streams
    from .values import Value

# the positions of the running statistics among the arguments
STATISTICS = {
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
}


def updated(name: str, args: Sequence[Any]) -> tuple[int, ...]:
    """Which arguments of a call are running statistics that it updates. The name is checked first: any
    argument of another op may be a tensor, which is neither true nor false."""
    return STATISTICS[name] if name in STATISTICS and len(args) > 5 and args[5] else ()


def ordinal(seen: dict[Any, int], key: Any, graded: bool) -> int:
    """The number of the next op with this key. Ops without gradients count down from -1: an evaluation may
    come before any step, and must not change the numbers of ops that train."""
    n = seen.get(key, 0)
    seen[key] = n + 1
    return n if graded else -1 - n


class _Call:
    """A call of an op. Tensors among the arguments are handles."""

    __slots__ = ("func", "args", "kwargs", "outs", "seeded", "graded")
    func: Op
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: list[Value | None]  # None for an output that is one of its arguments
    seeded: bool  # it may draw random numbers
    graded: bool  # gradients were on: some ops make more, or something else, then

    def reads(self) -> list[Handle]:
        """The tensors among the arguments."""
        return _handles((self.args, tuple(self.kwargs.values())), [])


class Rerun:
    """Notes ops and reruns them. tensor makes a tensor from a handle, and broke is told of errors. shelve is
    told what an op made and what it read, where ops run again with as little memory as possible."""

    def __init__(
        self,
        torch: Any,
        plan: Plan,
        streams: Streams,
        tensor: Callable[[Iteration, Handle, dict[Value, Tensor]], Tensor],
        broke: Callable[[Iteration, BaseException], None],
        shelve: Callable[[dict[Value, Tensor], list[Value]], None],
    ) -> None:
        self.torch, self.streams, self.tensor, self.broke = torch, streams, tensor, broke
        self.shelve = shelve
        self.wanted: dict[str, dict[int, list[int]]] = {}  # the groups of an op, by its name and number
        groups, backups = plan.get("groups", ()), plan.get("backups", ())
        for g, ops in enumerate([*groups, *backups]):
            for name, n in ops:
                self.wanted.setdefault(name, {}).setdefault(n, []).append(g)
        self.backups = range(len(groups), len(groups) + len(backups))
        # up to how many bytes something that modules were given or returned is copied
        self.copies = plan.get("copies", 0)
        self.plain, self.strided = (torch.Tensor, torch.nn.Parameter), torch.strided
        self.graph_task = graph_task(torch)
        self.infos: dict[Op, Info] = {}
        # the number of an op of a name in the planned step, if its place gives it
        self.number: Callable[[Iteration, str, bool], int | None] | None = None
        self.overwritten = False  # an op read a tensor again that the program had changed meanwhile
        self.failed = ""  # the op that raised when it ran again, for whoever resets this

    def op(self, it: Iteration, func: Op, args: Any, kwargs: Any) -> Any:
        if self.graph_task() != -1:
            return func(*args, **kwargs)
        name, wanted, writes, chance = self.infos.get(func) or self._info(func)
        if wanted is None:
            groups = None
        else:
            graded = self.torch.is_grad_enabled()
            n = (
                self.number(it, name, graded)
                if self.number is not None
                else ordinal(it.seen, (name, graded), graded)
            )
            groups = None if n is None else wanted.get(n)
        if groups is None and not writes:
            return func(*args, **kwargs)
        call = written = None
        try:
            if writes and (it.values or groups is not None):
                written = [
                    t
                    for k, key in writes
                    for t in self._tensors((args[k] if k < len(args) else kwargs.get(key),), [])
                ]
            if (
                groups is not None
                and not draws(chance, args, kwargs)
                and not it.why
                and it.over.isdisjoint(groups)
            ):
                call = self._note(it, name, func, args, kwargs, written or (), groups)
        except Exception as e:
            self.broke(it, e)
        if call is None and written:
            self._spoil(it, written)
        out = func(*args, **kwargs)
        if call is not None and groups is not None:
            try:
                self._made(it, call, out, args, kwargs, groups)
                for g in groups:
                    it.calls.setdefault(g, []).append(call)
                    # by id: hashing an op would run a Python function
                    it.paths[g] = hash((it.paths.get(g, 0), id(func), call.graded))
            except Exception as e:
                self.broke(it, e)
        return out

    def _info(self, func: Op) -> Info:
        """What is known about an op: its name, which calls of it are wanted, which arguments it writes, and
        which argument makes it draw random numbers."""
        schema = schema_of(func)
        info = self.infos[func] = (
            schema.name,
            self.wanted.get(schema.name),
            written_arguments(func),
            chance_of(func, self.torch),
        )
        return info

    def _note(
        self,
        it: Iteration,
        name: str,
        func: Op,
        args: Any,
        kwargs: Any,
        written: Sequence[Tensor],
        groups: list[int],
    ) -> _Call | None:
        """Note a call, or return None if it cannot be rerun: it changes something that its own group did not
        make or that another group reads, or runs on a stream other than the plan's."""
        if self.streams.elsewhere():
            return None
        for t in written:
            value = it.known(t.untyped_storage()) if type(t) in self.plain else None
            if value is None or value.spoiled or value.groups != groups or not value.readers.issubset(groups):
                return None
        for t in self._tensors((args, tuple(kwargs.values())), []):
            value = it.known(t.untyped_storage()) if movable(t, self.plain, self.strided) else None
            if value is not None and value.spoiled and value.entry is not None:
                return None  # the value has other bytes than those that the op reads
        call, statistics = _Call(), updated(name, args)
        call.func, call.seeded = func, self.infos[func][3] is not None
        call.graded = self.torch.is_grad_enabled()
        call.args = tuple(None if k in statistics else self._held(it, a, groups) for k, a in enumerate(args))
        call.kwargs = {k: self._held(it, a, groups) for k, a in kwargs.items()}
        return call

    def _held(self, it: Iteration, x: Any, groups: list[int]) -> Any:
        """An argument, in the form in which a noted call keeps it. A tensor is held, unless the plan makes it
        leave or each of these groups makes it itself. If a step differs from the planned one, another group
        may have made the tensor."""
        if isinstance(x, self.torch.Tensor):
            if not movable(x, self.plain, self.strided):
                with without_dispatch(self.torch):
                    return x.detach()
            storage = x.untyped_storage()
            value = it.known(storage)
            if value is not None and value.stale(x):
                value.spoiled = True
            # if another op has changed it since, its group no longer makes these bytes
            if value is None or value.spoiled:
                value = it.value(storage)
            made = value.groups is not None and set(groups).issubset(value.groups)
            if not made:
                value.readers.update(groups)
            if value.entry is None and not made and value.base is None:
                value.base = bytes_of(self.torch, storage, x.dtype)  # held for the call that rereads it
            return Handle(None, value, x)  # without the iteration, which already holds the calls
        if isinstance(x, (list, tuple)):
            return type(x)(self._held(it, y, groups) for y in x)
        return x

    def _made(self, it: Iteration, call: _Call, out: Any, args: Any, kwargs: Any, groups: list[int]) -> None:
        read = {
            address_of(t.untyped_storage())
            for t in self._tensors((args, tuple(kwargs.values())), [])
            if type(t) in self.plain
        }
        call.outs = []
        for t in self._tensors((out,), []):
            storage = t.untyped_storage()
            if address_of(storage) in read:
                call.outs.append(None)
                continue
            value = it.known(storage) or it.value(storage)
            value.groups = groups
            call.outs.append(value)
        for t in unwritten(self.torch, call.func, out):
            known = it.known(t.untyped_storage())
            if known is not None:
                known.unwritten = True

    def _tensors(self, tree: Any, out: list[Tensor]) -> list[Tensor]:
        for x in tree:
            if isinstance(x, self.torch.Tensor):
                out.append(x)
            elif isinstance(x, (list, tuple)):
                self._tensors(x, out)
        return out

    def _spoil(self, it: Iteration, written: list[Tensor]) -> None:
        """An op that is not noted is about to change tensors: everything that depends on their bytes is
        recomputed now. If that fails, a copy of them is kept for later. If there is no memory for a copy
        on the host either, this raises and the op does not run, since recomputing would use the wrong
        bytes."""
        for t in written:
            value = (
                it.known(t.untyped_storage())
                if type(t) in self.plain and t.layout == self.torch.strided
                else None
            )
            if value is None:
                continue
            failed = False
            try:
                for g, calls in list(it.calls.items()):
                    if g not in self.backups and any(self._reads(c, value) for c in calls):
                        self._run(it, g)
                # last, as what runs above may need them
                for g in [b for b in self.backups if any(self._reads(c, value) for c in it.calls.get(b, ()))]:
                    self._forget(it, g)
            except Exception as e:
                self.broke(it, e)
                failed = True
            if failed:
                self._keep(value, t)
            value.spoiled = True
        self.streams.follow()  # the change waits for what was just computed from the bytes

    def leave(self, it: Iteration, reach: Any) -> None:
        """The outermost module is left. Nobody sees the ops that the program runs until it enters the next,
        and one of them may change in place what the module was given or returned. So copy what is small, and
        note the versions of the rest."""
        with without_dispatch(self.torch), self.torch.no_grad():
            for t in reachable(self.torch, reach, []):
                if not movable(t, self.plain, self.strided) or t.is_leaf and t.requires_grad:
                    continue
                value = it.known(t.untyped_storage())
                if value is None or value.entry is not None:
                    continue
                value.left = version_of(t)
                if value.base is None or value.copied:
                    continue
                if value.bytes <= self.copies and not self.streams.elsewhere():
                    value.base, value.copied = value.base.clone(), True
                else:
                    value.witness = t.detach()

    def _mend(self, it: Iteration, call: _Call, env: dict[Value, Tensor], busy: tuple[int, ...]) -> None:
        """Put what a call reads and the program has changed since into env, with the bytes that it had. Calls
        that were noted make it again: those of a backup, or of another group. busy are the groups that wait
        for it. No other group is run for that, so this ends."""
        for value in {h.value for h in call.reads()}:
            if value in env or not value.overwritten():
                continue
            group = next((g for g in value.groups or () if g in it.calls and g not in busy), None)
            made = dict(env)
            if group is None or not self._make(it, group, made, (*busy, group)):
                self.overwritten = True
            else:
                env[value] = made[value]

    def _make(self, it: Iteration, group: int, env: dict[Value, Tensor], busy: tuple[int, ...]) -> bool:
        """Run the calls of a group and put what they make into env. Returns False if something that they
        read has been dropped."""
        for call in it.calls[group]:
            self._mend(it, call, env, busy)
            for h in call.reads():
                value = h.value
                if value in env or value.base is not None or value.host is not None:
                    continue
                if value.storage() is None or value.spoiled or value.spare is not None:
                    return False
            for v, t in zip(call.outs, self._called(it, call, env)):
                if v is not None:
                    env[v] = bytes_of(self.torch, t.untyped_storage(), t.dtype)
        return True

    def _forget(self, it: Iteration, group: int) -> None:
        it.calls.pop(group, None)
        it.over.add(group)

    def _keep(self, value: Value, t: Tensor) -> None:
        """Copy the bytes of a tensor that is about to change: on its device, or to the host if there is no
        memory."""
        torch = self.torch
        with without_dispatch(torch), torch.no_grad():
            flat = bytes_of(torch, t.untyped_storage(), t.dtype)
            try:
                value.base = flat.clone()
            except torch.cuda.OutOfMemoryError:
                value.base = None
            if value.base is None:
                value.host = bytes_of(torch, t.untyped_storage(), torch.uint8).cpu()

    def _reads(self, call: _Call, value: Value) -> bool:
        return any(h.value is value for h in call.reads())

    def again(self, it: Iteration, value: Value, serially: bool = False) -> None:
        """Recompute a dropped value, and with it everything that its group makes. If serially, what one op
        has made may wait on the host while the next one runs; the value may be there too afterwards."""
        self._run(it, value.entry["group"] if value.entry is not None else None, serially)
        if value.base is None and value.host is None:
            raise RuntimeError(
                "gmemtop: a tensor that was dropped cannot be made again; turn the plan off and report this"
            )

    def _run(self, it: Iteration, group: Any, serially: bool = False) -> None:
        with self.streams.there():
            self._calls(it, group, serially)

    def _calls(self, it: Iteration, group: Any, serially: bool) -> None:
        begin = time.thread_time_ns()
        calls = it.calls.get(group, ())
        # what an op changes in place has to stay where it is
        serially = serially and not any(self.infos[call.func][2] for call in calls)
        env: dict[Value, Tensor] = {}
        last: dict[Value, int] = {}
        for k, call in enumerate(calls):
            for h in call.reads():
                last[h.value] = k
        with self.torch.no_grad(), without_autocast(self.torch):
            for k, call in enumerate(calls):
                self._mend(it, call, env, (group,))
                out = self._called(it, call, env)
                for value, t in zip(call.outs, out):
                    if value is not None:
                        env[value] = bytes_of(self.torch, t.untyped_storage(), t.dtype)
                        last.setdefault(value, k)
                del out
                for value in [v for v in env if last[v] <= k]:
                    if value.entry is not None and value.entry.get("group") == group:
                        value.base, value.stream = env[value], self.streams.main
                        last[value] = len(calls)
                    else:
                        del env[value]
                if serially:
                    self.shelve(env, [h.value for h in call.reads()])
        # its later ops cannot be rerun, as their inputs are gone: what they make stays
        self._forget(it, group)
        for read in last:
            if read.readers <= it.over:
                for g in read.groups or ():
                    if g in self.backups:
                        self._forget(it, g)
        it.again += time.thread_time_ns() - begin

    def _called(self, it: Iteration, call: _Call, env: dict[Value, Tensor]) -> list[Tensor]:
        """Run an op again. Returns the tensors that it made. If it raises, other than for lack of memory,
        later plans run it only once."""
        args, kwargs = (
            self._given(it, call.args, env),
            {n: self._given(it, (a,), env)[0] for n, a in call.kwargs.items()},
        )
        try:
            with undrawn(self.torch, args[0].device) if call.seeded else contextlib.nullcontext():
                with self.torch.set_grad_enabled(call.graded):  # no argument requires one
                    return self._tensors((call.func(*args, **kwargs),), [])
        except Exception as e:
            self.failed = schema_of(call.func).name
            if not isinstance(e, self.torch.cuda.OutOfMemoryError):
                ONCE.add(self.failed)
            raise

    def _given(self, it: Iteration, args: Any, env: dict[Value, Tensor]) -> list[Any]:
        out = []
        for a in args:
            if isinstance(a, Handle):
                a = self.tensor(it, a, env)
            elif isinstance(a, (list, tuple)):
                a = type(a)(self._given(it, a, env))
            out.append(a)
        return out


def _handles(tree: Any, out: list[Handle]) -> list[Handle]:
    for x in tree:
        if isinstance(x, Handle):
            out.append(x)
        elif isinstance(x, (list, tuple)):
            _handles(x, out)
    return out


def reachable(torch: Any, x: Any, out: list[Tensor]) -> list[Tensor]:
    """The tensors in what a module was given or returned."""
    if isinstance(x, torch.Tensor):
        out.append(x)
    elif isinstance(x, (list, tuple)):
        for y in x:
            reachable(torch, y, out)
    elif isinstance(x, dict):
        for y in x.values():
            reachable(torch, y, out)
    elif dataclasses.is_dataclass(x):
        for y in vars(x).values():
            reachable(torch, y, out)
    return out
