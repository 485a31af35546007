"""Makes fake tensors behave like real ones when a script reads their values, copies them, moves their
modules, or makes other tensors from lists of them.
"""

import functools
import sys
import threading

from .followed import SMALL_BYTES
from .training import Unsupported

MOST_KEPT = 65536  # the most elements of a CPU tensor that keeps its values


def _tensors_answer(run, kind):
    """Answer Python's questions about a tensor's values."""
    torch = run.torch

    def values(t):
        known = run.followed.values(t)
        if known is not None:
            return known
        run.made("values")
        dtype = torch.float32 if t.dtype == torch.bfloat16 else t.dtype
        if t.numel() > 1 << 28:
            raise Unsupported("the script asks for the %d values of a tensor" % t.numel())
        value = run._taken_for(t)
        if t.numel() * t.element_size() > SMALL_BYTES:  # zeros take no memory until they are read
            return torch.zeros(tuple(t.shape), dtype=dtype)
        return torch.full(tuple(t.shape), t.dtype != torch.bool if value is None else value, dtype=dtype)

    def tolist(t):
        with run.without():
            return values(t).tolist()

    def numpy(t, *, force=False):
        with run.without():
            return values(t).detach().numpy()

    def array(t, dtype=None, **kwargs):
        a = numpy(t)
        return a if dtype is None else a.astype(dtype)

    def form(t, spec):
        return (
            t.item().__format__(spec) if t.dim() == 0 else object.__format__(t, spec) if not spec else repr(t)
        )

    def data_ptr(t):
        """An address by which a script can tell tensors apart, for example to count shared parameters once.
        Code that would pass it to a kernel is refused: Triton, and code that uses ctypes."""
        names = sys._getframe(1).f_globals
        caller = names.get("__name__", "")
        package = caller.partition(".")[0]
        if package == "torch":
            return 0
        if package == "triton" or any(getattr(x, "__name__", "") == "ctypes" for x in names.values()):
            raise Unsupported(
                "%s takes the address of a tensor, as kernels outside of torch (Triton's, extensions') do: "
                "there is no memory there" % caller
            )
        return (t.untyped_storage()._cdata << 12) + t.storage_offset() * t.element_size()

    kind.data_ptr = data_ptr
    kind.tolist, kind.numpy, kind.__array__, kind.__format__ = tolist, numpy, array, form
    kind.pin_memory = lambda t, device=None: t
    kind.is_pinned = lambda t, device=None: False


def _made_of_tensors(run):
    """For a list with tensors in it, torch.tensor() reads their values below the mode, which asks CUDA about
    the device. We read their values here instead."""
    torch = run.torch

    def read(x):
        if isinstance(x, (list, tuple)):
            return [read(y) for y in x]
        return x.item() if isinstance(x, run.fake) and x.dim() == 0 else x

    def made(function):
        @functools.wraps(function)
        def make(data, *args, **kwargs):
            return function(read(data) if isinstance(data, (list, tuple)) else data, *args, **kwargs)

        return make

    for name in ("tensor", "as_tensor"):
        setattr(torch, name, made(getattr(torch, name)))


def _modules_move(torch, fake):
    """When a module moves, torch gives its parameters new data and keeps the tensors, so references to them
    do not matter. But it swaps fake tensors, and refuses while a graph or a hook refers to them. Here fake
    tensors move like real ones, and take on the new device."""
    original = getattr(torch.utils, "swap_tensors", None)
    if original is None:  # torch 2.2 moves all tensors in the same way
        return

    def swap(to, of):
        if not (isinstance(to, fake) and isinstance(of, fake)):
            return original(to, of)
        to.data = of
        to.fake_device = of.fake_device
        _now_constant(to, of.constant)

    torch.utils.swap_tensors = swap


def _parameters_by_type(torch, fake):
    """accelerate makes parameters by type(parameter)(data, requires_grad=...), and passes a parameter's
    attributes, too. A fake parameter has the type of all fake tensors, which takes other arguments."""
    original = fake.__new__

    def new(cls, *args, **kwargs):
        if args and isinstance(args[0], torch.Tensor):
            data, grad = (*args, kwargs.get("requires_grad", True))[:2]
            return torch.nn.Parameter(data, grad)
        return original(cls, *args, **kwargs)

    fake.__new__ = staticmethod(new)


def _threads_take_turns(run, fake):
    """The script may have other threads that use its tensors, such as one that draws the batch. All fake
    tensors share one mode, which is entered and left around the ops of a thread where it is not set."""
    original = fake.__torch_dispatch__.__func__

    def dispatch(cls, *args, **kwargs):
        with run.turn:
            return original(cls, *args, **kwargs)

    fake.__torch_dispatch__ = classmethod(dispatch)


def _refuse_traces(torch):
    """torch.jit.trace would crash the process."""

    def refused(*args, **kwargs):
        raise Unsupported(
            "the script traces its model (torch.jit.trace), which needs memory in its tensors: "
            "try --allocator real"
        )

    torch.jit.trace = torch.jit.trace_module = refused


def _threads_pretend(run):
    """Set the mode in the threads that the script starts, too: without it, torch would look for a driver to
    move a tensor to the device. What they make counts from the first op of the main thread that uses it."""
    original = threading.Thread._bootstrap_inner

    def bootstrap(thread):
        with run.mode:
            original(thread)

    threading.Thread._bootstrap_inner = bootstrap


def _now_constant(t, constant):
    """Give a fake tensor these values, if any, until an op writes to it."""
    t.constant = constant
    if constant is not None:
        t.fake_mode.fake_tensor_converter.add_constant_storage_mapping(t)


def _copying(run, fake):
    """A copy of a fake tensor with known values has the same values. torch would copy them as part of the
    fake tensor, which fails under its mode."""
    original = fake.__deepcopy__

    def deepcopy(t, memo):
        if id(t) in memo:
            return memo[id(t)]
        constant, values, known = t.constant, run.followed.values(t), vars(t).pop("known", None)
        t.constant = None
        try:
            out = original(t, memo)
        finally:
            t.constant = constant
            if known is not None:
                t.known = known
        if values is not None:
            with run.without():
                values = values.clone()
            run.followed.keep(out, values)
        return out

    fake.__deepcopy__ = deepcopy
