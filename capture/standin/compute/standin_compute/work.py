"""The second half of an op: its CPU kernel, as work of a stream.

At once, the work is done before the op returns. In the late and the seeded orders, and while a CUDA graph is
captured, it is handed to the stream, which runs it on whatever thread waits for it. Host memory that the op
reads is copied when it is handed over, as the driver copies a kernel's arguments; device memory is read when
the work runs.
"""

import itertools
import threading

import torch

from . import report, runtime
from .alias import HALF, WIDE, mapped, put, tensors

_Keys = torch._C.DispatchKey
# Everything from ADInplaceOrView up (autograd, autocast, functorch, tracing), and modes written in Python.
_ABOVE = torch._C._dispatch_keyset_full() - torch._C._dispatch_keyset_full_after(_Keys.ADInplaceOrView)
_ABOVE = _ABOVE | torch._C.DispatchKeySet(_Keys.Python)

deferred = runtime.deferred()


class below:
    """Code inside sees neither autograd nor the modes of the thread that waits."""

    __slots__ = ("keys", "functions")

    def __enter__(self):
        self.functions = torch._C.DisableTorchFunction()
        self.functions.__enter__()
        self.keys = torch._C._ExcludeDispatchKeyGuard(_ABOVE)
        self.keys.__enter__()

    def __exit__(self, *error):
        self.keys.__exit__(*error)
        self.functions.__exit__(*error)


class Work:
    """One call of an op on aliases.

    op        the name, for errors
    function  what computes: called with args and kwargs, returns the results (one, or a tuple)
    written   the aliases among the arguments that the op writes
    outputs   aliases of what the host code allocated for the results; None where a result is an argument
    """

    __slots__ = ("op", "function", "args", "kwargs", "written", "outputs", "single", "narrow")

    def __init__(self, op, function, args, kwargs, written, outputs, single, narrow):
        self.op, self.function, self.args, self.kwargs = op, function, args, kwargs
        self.written, self.outputs, self.single, self.narrow = written, outputs, single, narrow

    def run(self):
        """Compute. Raises what the CPU kernel raises."""
        args, kwargs, back = self.args, self.kwargs, ()
        if not self.narrow:
            args, kwargs, back = self._widened()
        result = self.function(*args, **kwargs)
        for narrow, wide in back:
            narrow.copy_(wide)
        if self.outputs is not None:
            if self.single:
                put(self.outputs[0], result)
            else:
                for to, r in zip(self.outputs, result):
                    put(to, r)
        report.computed[self.op] += 1

    def _widened(self):
        """Return the arguments with float16 and bfloat16 as float32, and the pairs to write back."""
        args, kwargs = self.args, self.kwargs
        if not any(t.dtype in HALF for a in itertools.chain(args, kwargs.values()) for t in tensors(a)):
            return args, kwargs, ()
        back = []

        def widen(t):
            if t.dtype not in HALF:
                return t
            wide = t.to(WIDE[t.dtype])
            if any(t is w for w in self.written):
                back.append((t, wide))
            return wide

        def argument(x):
            return WIDE.get(x, x) if isinstance(x, torch.dtype) else mapped(widen, x)

        return [argument(a) for a in args], {k: argument(a) for k, a in kwargs.items()}, back


_pending = {}
_tickets = itertools.count(1)
_lock = threading.Lock()


class _Handed:
    __slots__ = ("op", "run", "keep")

    def __init__(self, op, run, keep):
        self.op, self.run, self.keep = op, run, keep


@runtime.Callback
def _perform(ticket):
    with _lock:
        handed = _pending[ticket] if _pending[ticket].keep else _pending.pop(ticket)
    try:
        with below():
            handed.run()
    except BaseException as error:  # nothing may pass through the C frames that called us
        report.late(handed.op, error)


def hand_over(op, run, device, keep):
    """Make run() work of the current stream of a device. keep: a graph may run it many times."""
    with _lock:
        ticket = next(_tickets)
        _pending[ticket] = _Handed(op, run, keep)
    stream = torch._C._cuda_getCurrentRawStream(device)
    here = torch._C._cuda_getDevice()
    if here == device:
        runtime.enqueue(stream, _perform, ticket)
        return
    torch._C._cuda_setDevice(device)
    try:
        runtime.enqueue(stream, _perform, ticket)
    finally:
        torch._C._cuda_setDevice(here)


def enqueue_here(f):
    """Make f work of the current stream of the current device."""
    if deferred or torch.cuda.is_current_stream_capturing():
        hand_over("replay", f, torch._C._cuda_getDevice(), False)
    else:
        f()
