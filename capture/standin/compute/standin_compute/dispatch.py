"""Replaces each CUDA kernel by a function of ours: host code first, then the CPU kernel on aliases.

Traps that we fell into. If an op was called with a number in a tensor's place, the dispatcher hands Python
the number, but the original kernel wants a tensor: the number becomes a 0-dimensional tensor of the dtype to
which it would have promoted. Ops and copies inside an op's host code must be skipped, or in-place ops happen
twice; but some host code reads what they wrote and needs them (rules.READS_INSIDE). A copy between two
devices runs on the source's stream, which first waits for the target's, and the target's stream waits for the
copy.
"""

import inspect
import itertools
import threading
import warnings

import torch

from . import attention, random, recurrent, refuse, report, rules, runtime, shaped, substitutes, work
from .alias import CPU, HALF, WIDE, alias, is_cuda, mapped, tensors

_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key


class _Thread(threading.local):
    """What a thread is doing.

    inside: the op whose host code is running, or None
    lifted: whether that op's inner ops are computed
    suppressed: whether work that the thread enqueues is dropped
    """

    inside, lifted, suppressed = None, False, False

    def suppress(self, on):
        """Set suppressed and return its old value."""
        was, self.suppressed = self.suppressed, on
        if was != on:
            runtime.suppress(on)
        return was


_thread = _Thread()


class _host_code:
    """Runs an op's host code; work that it launches is dropped."""

    __slots__ = ("kernel", "before")

    def __init__(self, kernel):
        self.kernel = kernel

    def __enter__(self):
        self.before = _thread.inside, _thread.lifted, _thread.suppress(True)
        _thread.inside, _thread.lifted = self.kernel, self.kernel.reads_inside

    def __exit__(self, *error):
        _thread.inside, _thread.lifted, suppressed = self.before
        _thread.suppress(suppressed)


class _computing:
    """Work in this block is done, even within the host code of another op."""

    __slots__ = ("was",)

    def __enter__(self):
        self.was = _thread.suppress(False)

    def __exit__(self, *error):
        _thread.suppress(self.was)


def _scalar(x):
    if isinstance(x, bool):
        return torch.bool
    return torch.int64 if isinstance(x, int) else torch.float64 if isinstance(x, float) else torch.complex128


class Kernel:
    """Replaces the CUDA kernel of one overload of one op."""

    def __init__(self, name, op, original):
        schema = op._schema
        self.name, self.op, self.original = name, op, original
        self.short = name[len("aten::") :].split(".")[0]
        self.parameters = [a.name for a in schema.arguments]
        self.written = frozenset(
            i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        )
        self.written_names = frozenset(self.parameters[i] for i in self.written)
        self.fresh = [
            r.alias_info is None and str(r.type) in ("Tensor", "List[Tensor]") for r in schema.returns
        ]
        self.single = len(schema.returns) == 1
        self.numbers = frozenset(
            i for i, a in enumerate(schema.arguments) if str(a.type) in ("Tensor", "Optional[Tensor]")
        )
        self.seeded = torch.Tag.nondeterministic_seeded in op.tags
        self.takes_generator = "generator" in self.parameters
        self.function = (
            substitutes.find(name) or attention.find(self.short) or recurrent.find(self.short) or op
        )
        self.own = self.function is not op
        self.wants_outputs = self.own and "outputs" in inspect.signature(self.function).parameters
        self.host = substitutes.host_code(name)
        self.refused = rules.refusal(self.short)
        self.reads_inside = self.short in rules.READS_INSIDE
        self.narrow = self.short in rules.NARROW
        self.replaced = self.short in rules.SIZED_BY_DATA or rules.by_library(self.short)
        self.copies = self.short == "copy_"

    def call(self, keys, *args, **kwargs):
        args, plain = self._with_tensors(args)
        inside = _thread.inside
        if inside is not None and not _thread.lifted:
            if self.replaced:
                report.refuse(inside.name, f"its host code reads what {self.name} answers")
            return self.original.call_boxed(keys, *args, **kwargs)
        report.raise_late()
        if self.copies and not (args[0].device == args[1].device):
            return self._between_devices(keys, args, kwargs)
        if self._writes_host(args, kwargs):
            return self.original.call_boxed(keys, *args, **kwargs)  # its inner ops compute and copy
        if self.refused is not None:
            report.refuse(self.name, self.refused)
        if self.replaced:
            with _computing(), work.below():
                return shaped.compute(self, args, kwargs)
        device = self._device(args, kwargs)
        draw = None
        if self.seeded:
            draw = random.take(kwargs.get("generator"), device)
        with _host_code(self):
            if self.host is not None:
                out = self.host(*args, **kwargs)
            else:
                out = self.original.call_boxed(keys, *args, **kwargs)
        with _computing():
            self._compute(plain, kwargs, out, device, draw)
        return out

    def _compute(self, args, kwargs, out, device, draw):
        """Run the CPU kernel now, or enqueue it on the stream."""
        capturing = torch._C._cuda_isCurrentStreamCapturing()
        later = work.deferred or capturing
        try:
            with work.below():
                job = self._job(args, kwargs, out, draw, later)
                if not later:
                    job.run()
        except report.Uncomputed:
            raise
        except Exception as error:
            report.refuse(self.name, f"{type(error).__name__}: {error}")
            return
        if later:
            work.hand_over(self.name, job.run, device, capturing)

    def _job(self, args, kwargs, out, draw, later):
        written = []

        def shadow(t):
            if t.device.type == "cuda":
                return alias(t)
            return t.clone() if later else t

        def argument(position, x):
            if isinstance(x, torch.device):
                return CPU
            if isinstance(x, torch.Generator):
                return None
            x = mapped(shadow, x)
            if position in self.written or position in self.written_names:
                written.extend(tensors(x))
            return x

        new = [argument(i, a) for i, a in enumerate(args)]
        named = {k: argument(k, a) for k, a in kwargs.items()}
        outputs = None
        if any(self.fresh):
            outs = (out,) if self.single else out
            outputs = [mapped(shadow_output, o) if f else None for o, f in zip(outs, self.fresh)]
        function = self.function
        if draw is not None:
            function = self._drawing(function, draw)
            if self.own:
                named["draw"] = draw
        if self.wants_outputs:
            named["outputs"] = outputs
        return work.Work(self.name, function, new, named, written, outputs, self.single, self.narrow)

    def _drawing(self, function, draw):
        if self.own:
            return function
        if not self.takes_generator:
            report.refuse(self.name, "its CPU kernel takes no generator")
            return function

        def drawn(*args, **kwargs):
            if "generator" not in kwargs:
                args = list(args)[: self.parameters.index("generator")]
            kwargs["generator"] = draw.generator()
            return function(*args, **kwargs)

        return drawn

    def _with_tensors(self, args):
        """Return the arguments as the kernel wants them and as the CPU op wants them."""
        if not any(type(x) in (int, float, bool, complex) and i in self.numbers for i, x in enumerate(args)):
            return args, args
        like = next(
            (
                t
                for i, t in enumerate(args)
                if isinstance(t, torch.Tensor) and not (self.short == "where" and i == 0)
            ),
            None,
        )
        host, plain = list(args), list(args)
        for i, x in enumerate(args):
            if i not in self.numbers or type(x) not in (int, float, bool, complex):
                continue
            dtype = _scalar(x) if like is None else torch.result_type(like, x)
            with work.below():
                try:
                    host[i] = torch.scalar_tensor(x, dtype=dtype, device=CPU)
                except RuntimeError:  # a number out of the dtype's range, as in int8_tensor == 1000
                    host[i] = torch.scalar_tensor(x, dtype=_scalar(x), device=CPU)
                plain[i] = (
                    x
                    if self.short in _TAKES_NUMBERS
                    else host[i].to(WIDE[dtype]) if dtype in HALF else host[i]
                )
        return host, plain

    def _writes_host(self, args, kwargs):
        for i in self.written:
            x = args[i] if i < len(args) else kwargs.get(self.parameters[i])
            for t in tensors(x):
                if t.device.type != "cuda":
                    return True
                break
        return False

    @staticmethod
    def _device(args, kwargs):
        for x in itertools.chain(args, kwargs.values()):
            for t in tensors(x):
                if t.device.type == "cuda":
                    return t.device.index
        d = kwargs.get("device")
        if isinstance(d, torch.device) and d.index is not None:
            return d.index
        return torch._C._cuda_getDevice()

    def _between_devices(self, keys, args, kwargs):
        """Copy between the host and a device, or between two devices. Only the latter leaves us something to
        do.
        """
        to, source = args[0], args[1]
        if not (is_cuda(to) and is_cuda(source)):
            return self.original.call_boxed(keys, *args, **kwargs)
        with _host_code(self):
            self.original.call_boxed(keys, *args, **kwargs)
        with _computing():
            # The host code has made the source's stream wait for the other, and has waited for what we skip.
            self._compute(args, {}, to, source.device.index, None)
            done = torch.cuda.Event()
            done.record(torch.cuda.current_stream(source.device))
            torch.cuda.current_stream(to.device).wait_event(done)
        return to


# Ops whose CPU overload takes a number in a tensor's place, with a number's precision.
_TAKES_NUMBERS = frozenset(
    n + suffix for n in ("add", "sub", "mul", "div", "true_divide", "floor_divide") for suffix in ("", "_")
)


def shadow_output(t):
    return alias(t) if t.device.type == "cuda" else t


_library = None


def install():
    """Replace the CUDA kernels by our functions. Called once, when torch has been imported."""
    global _library
    if _library is not None:
        return
    if not hasattr(torch.library, "get_kernel"):
        raise RuntimeError(
            "STANDIN_COMPUTE needs a torch that has torch.library.get_kernel (2.9 or later): "
            "set STANDIN_COMPUTE=0"
        )
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of each override
        for name in torch._C._dispatch_get_all_op_names():
            if name.startswith("aten::"):
                _replace(name)
        refuse.install(_library)
    random.follow_graphs(work.enqueue_here)


def _replace(name):
    short, _, overload = name[len("aten::") :].partition(".")
    if short in rules.MEMORY_ONLY or not (_has_kernel(name, "CUDA") or short == "copy_"):
        return
    op = getattr(getattr(torch.ops.aten, short), overload or "default")
    if short == "_local_scalar_dense":
        original = torch.library.get_kernel(op, "CUDA")

        def read(keys, t):
            if _thread.inside is not None and not _thread.lifted:
                report.refuse(_thread.inside.name, "its host code reads a number from device memory")
            return original.call_boxed(keys, t)

        _library.impl(name[len("aten::") :], read, "CUDA", with_keyset=True, allow_override=True)
        return
    schema = op._schema
    if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
        return  # a view
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    if not writes and not schema.returns and not short.startswith("_assert_async"):
        return
    kernel = Kernel(name, op, torch.library.get_kernel(op, "CUDA"))
    _library.impl(name[len("aten::") :], kernel.call, "CUDA", with_keyset=True, allow_override=True)
