"""Part four of the agent: makes tensors again that were dropped, by the very ops that made them. Part five
decides which; it and this one rest on torch alone.

An op is taken down as it runs, below autograd and autocast: what was called, with which arguments. A tensor
among the arguments is a handle of a value, so that memory is held only by what the plan keeps. What an op
reads that nobody makes again is held; what is changed in place by an op that is not taken down is first read
for all that depends on it.

What runs again goes straight to those ops: no module's code runs a second time, no hook of the program's,
no draw: an op that may draw runs again only where it was asked not to. A normalisation runs again without
its running statistics, which it would change twice.
"""

import contextlib
import time

from .draws import chance_of, draws, undrawn, unwritten
from .values import Handle

# which arguments they are
STATISTICS = {
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
}


class _Call(object):
    """How an op was called. Tensors among the arguments are handles."""

    __slots__ = ("func", "args", "kwargs", "outs", "seeded")


class Again(object):
    """The half of a Carrier that has ops run again."""

    def _mode(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        carrier = self

        class Mode(TorchDispatchMode):
            @classmethod
            def _should_skip_dynamo(cls):
                return False

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                for kind in types:
                    if getattr(kind, "__tensor_flatten__", None) is not None:
                        return NotImplemented
                return carrier._op(carrier.now, func, args, kwargs or {})

        return Mode()

    def _op(self, it, func, args, kwargs):
        if self.graph_task() != -1:
            return func(*args, **kwargs)
        name, wanted, writes, chance = self.infos.get(func) or self._info(func)
        if wanted is None:
            groups = None
        else:
            n = it.seen.get(name, 0)
            it.seen[name] = n + 1
            groups = wanted.get(n)
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
            self._broke(it, e)
        if call is None and written:
            self._spoil(it, written)
        out = func(*args, **kwargs)
        if call is not None:
            try:
                self._made(it, call, out, args, kwargs, groups)
                for g in groups:
                    it.calls.setdefault(g, []).append(call)
            except Exception as e:
                self._broke(it, e)
        return out

    def _info(self, func):
        """What there is to know of an op: its name, the calls of it that are wanted, which arguments it
        writes, by which it draws random numbers."""
        schema = func._schema
        writes = [
            (k, a.name)
            for k, a in enumerate(schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write
        ]
        info = self.infos[func] = (
            schema.name,
            self.wanted.get(schema.name),
            writes,
            chance_of(func, self.torch),
        )
        return info

    def _note(self, it, name, func, args, kwargs, written, groups):
        """Take down a call, or return None where it cannot be repeated: it changes what another than its
        own group has made, or runs on another stream than the plan's."""
        if self.main is not None and self._elsewhere():
            return None
        for t in written:
            value = self._known(it, t.untyped_storage()) if type(t) in self.plain else None
            if value is None or value.spoiled or value.groups != groups:
                return None
        call, statistics = _Call(), STATISTICS.get(name, ()) if len(args) > 5 and args[5] else ()
        call.func, call.seeded = func, self.infos[func][3] is not None
        call.args = tuple(None if k in statistics else self._held(it, a) for k, a in enumerate(args))
        call.kwargs = {k: self._held(it, a) for k, a in kwargs.items()}
        return call

    def _held(self, it, x):
        if isinstance(x, self.torch.Tensor):
            if (
                type(x) not in self.plain
                or x.layout != self.torch.strided
                or x.is_conj()
                or x.is_neg()
                or x.is_inference()
            ):
                with self.torch._C._DisableTorchDispatch():
                    return x.detach()
            storage = x.untyped_storage()
            value = self._known(it, storage)
            if value is None:
                value = self._value(it, storage)
            if value.entry is None and value.groups is None and value.base is None:
                value.base = self._flat(storage, x.dtype)  # whoever reads it again holds it
            return Handle(None, value, x)  # of no iteration, which holds the calls
        if isinstance(x, (list, tuple)):
            return type(x)(self._held(it, y) for y in x)
        return x

    def _made(self, it, call, out, args, kwargs, groups):
        read = {
            t.untyped_storage()._cdata
            for t in self._tensors((args, tuple(kwargs.values())), [])
            if type(t) in self.plain
        }
        call.outs = []
        for t in self._tensors((out,), []):
            storage = t.untyped_storage()
            if storage._cdata in read:
                call.outs.append(None)
                continue
            value = self._known(it, storage) or self._value(it, storage)
            value.groups = groups
            call.outs.append(value)
        for t in unwritten(self.torch, call.func, out):
            value = self._known(it, t.untyped_storage())
            if value is not None:
                value.unwritten = True

    def _tensors(self, tree, out):
        for x in tree:
            if isinstance(x, self.torch.Tensor):
                out.append(x)
            elif isinstance(x, (list, tuple)):
                self._tensors(x, out)
        return out

    def _spoil(self, it, written):
        """Tensors are about to be changed by an op that is not noted: what is to be made from them is made
        now. Where that fails, a copy of them is kept to make it from; if there is no memory for one
        either, the op does not run, rather than that something is made of the wrong bytes."""
        for t in written:
            value = (
                self._known(it, t.untyped_storage())
                if type(t) in self.plain and t.layout == self.torch.strided
                else None
            )
            if value is None:
                continue
            try:
                for g, calls in list(it.calls.items()):
                    if any(self._reads(c, value) for c in calls):
                        self._run(it, g)
                        it.over.add(g)
            except Exception as e:
                self._broke(it, e)
                with self.torch._C._DisableTorchDispatch(), self.torch.no_grad():
                    value.base = self._flat(t.untyped_storage(), t.dtype).clone()
            value.spoiled = True
        # the change waits for what was just made of the bytes
        if self.main is not None and self._elsewhere():
            self.torch.cuda.current_stream(self.main.device).wait_stream(self.main)

    def _reads(self, call, value):
        return any(h.value is value for h in _handles((call.args, tuple(call.kwargs.values())), []))

    def _again(self, it, value):
        """Make a value that was dropped, and with it all that its group makes."""
        self._run(it, value.entry["group"] if value.entry is not None else None, value)
        if value.base is None:
            raise RuntimeError(
                "gmemtop: a tensor that was dropped cannot be made again; turn the plan off and report this"
            )

    def _run(self, it, group, wanted=None):
        with self._there():
            self._calls(it, group)

    def _calls(self, it, group):
        begin = time.thread_time_ns()
        calls = it.calls.get(group, ())
        env, last = {}, {}
        for k, call in enumerate(calls):
            for h in _handles((call.args, tuple(call.kwargs.values())), []):
                last[h.value] = k
        with self.torch.no_grad(), self.torch._C._DisableAutocast():
            for k, call in enumerate(calls):
                args, kwargs = (
                    self._given(it, call.args, env),
                    {n: self._given(it, (a,), env)[0] for n, a in call.kwargs.items()},
                )
                with undrawn(self.torch, args[0].device) if call.seeded else contextlib.nullcontext():
                    out = call.func(*args, **kwargs)
                del args, kwargs
                for value, t in zip(call.outs, self._tensors((out,), [])):
                    if value is not None:
                        env[value] = self._flat(t.untyped_storage(), t.dtype)
                        last.setdefault(value, k)
                del out
                for value in [v for v in env if last[v] <= k]:
                    if value.entry is not None and value.entry.get("group") == group:
                        value.base, value.stream = env[value], self.main
                        last[value] = len(calls)
                    else:
                        del env[value]
        it.calls.pop(group, None)
        it.again += time.thread_time_ns() - begin

    def _given(self, it, args, env):
        out = []
        for a in args:
            if isinstance(a, Handle):
                a = self._tensor(it, a, env)
            elif isinstance(a, (list, tuple)):
                a = type(a)(self._given(it, a, env))
            out.append(a)
        return out


def _handles(tree, out):
    for x in tree:
        if isinstance(x, Handle):
            out.append(x)
        elif isinstance(x, (list, tuple)):
            _handles(x, out)
    return out
