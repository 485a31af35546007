"""Virtual time for ops on the stand-in GPU: says what each op computes and moves.

The problem. Kernels are opaque: their names and arguments do not say how much they do. An op's tensors do.

The solution. We replace each op's CUDA kernel by a function that calls it and then gives the clock
(clock.cpp) the op's FLOPs and bytes. Bytes: each tensor that an op reads counts once, each that it writes
once, and none counts more than its storage. FLOPs come from torch.utils.flop_counter if it has a formula
(products, convolutions, attention); otherwise they are one for each element of the results. An op that
launches no kernel takes no time; if ops nest, each counts only the kernels that it launches itself.

Ops that look up rows of a large tensor read as much as they return.

In addition, time.perf_counter and time.perf_counter_ns return the host's virtual clock: programs and
gmemtop's agent time steps with them. All other clocks stay real, so that nothing times out.

Cost: some 30 microseconds of Python an op. Rejected: a TorchDispatchMode, which sees only one thread and is
visible to the program.
"""

import ctypes
import time
import warnings

_process = ctypes.CDLL(None)
_begin, _end, _now = _process.standin_op_begin, _process.standin_op_end, _process.standin_now
_begin.restype, _begin.argtypes = None, ()
_end.restype = _now.restype = ctypes.c_uint64
_end.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_double, ctypes.c_double)
_end.argtypes += (ctypes.c_int,)

# Ops that only describe a tensor, or copy a number to the host.
_NO_WORK = frozenset("_local_scalar_dense record_stream is_pinned _pin_memory set_ resize_".split())
# Ops that read no more of their first tensor than they return.
_ROWS = frozenset("embedding index_select gather index take index_put_ _index_put_impl_ scatter_add_".split())


def follow_host():
    """Make time.perf_counter the host's virtual clock."""
    time.perf_counter_ns = lambda: _now()
    time.perf_counter = lambda: _now() / 1e9


def _tensors(x, Tensor):
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, (list, tuple)):
        return [t for y in x for t in _tensors(y, Tensor)]
    return []


class _Op:
    def __init__(self, torch, op, name, original, flops):
        self.torch, self.original, self.flops = torch, original, flops
        self.short = name[len("aten::") :].split(".")[0]
        self.label = ("aten::" + self.short).encode()
        self.written = [
            i
            for i, a in enumerate(op._schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write
        ]
        self.convolves = "conv" in self.short
        self.numbers = {
            i for i, a in enumerate(op._schema.arguments) if str(a.type) in ("Tensor", "Optional[Tensor]")
        }

    def _with_tensors(self, args):
        """Return the arguments in the form that the original kernel wants: if an op was called with a number
        in a tensor's place, as a tensor of the dtype to which that would have promoted."""
        number = self.torch.scalar_tensor
        like = next((x for x in args if isinstance(x, self.torch.Tensor)), None)
        return [
            number(x, dtype=None if like is None else self.torch.result_type(like, x), device="cpu")
            if i in self.numbers and type(x) in (int, float, bool, complex)
            else x
            for i, x in enumerate(args)
        ]

    def call(self, keys, *args, **kwargs):
        if any(type(args[i]) in (int, float, bool, complex) for i in self.numbers if i < len(args)):
            args = self._with_tensors(args)
        _begin()
        out, work = None, (b"", 0.0, 0.0, 0)
        try:
            out = self.original.call_boxed(keys, *args, **kwargs)
            work = self._work(args, kwargs, out)
        finally:
            _end(self.torch._C._cuda_getCurrentRawStream(self.torch._C._cuda_getDevice()), self.label, *work)
        return out

    def _work(self, args, kwargs, out):
        """Return the shapes, the FLOPs, the bytes and the precision."""
        Tensor = self.torch.Tensor
        read = [t for t in _tensors(list(args) + list(kwargs.values()), Tensor) if t.is_cuda]
        made = [t for t in _tensors(out, Tensor) if t.is_cuda]
        if not read and not made:
            return b"", 0.0, 0.0, 0
        given = {id(t) for t in read}
        written = [t for i in self.written if i < len(args) for t in _tensors(args[i], Tensor)]
        written += [t for t in made if id(t) not in given]
        if self.short in _ROWS and read:
            rest = sum(_size(t) for t in read[1:])
            moved = rest + 2 * (sum(_size(t) for t in made if id(t) not in given) or rest)
        else:
            moved = sum(_size(t) for t in read) + sum(_size(t) for t in written)
        flops = float(sum(t.numel() for t in written))
        if self.flops is not None:
            try:
                flops = float(self.flops(*args, **kwargs, out_val=out))
            except Exception as e:  # the formula does not know the op's shapes
                warnings.warn(f"the FLOPs of {self.short} are unknown: {e}")
        kind = (read or made)[0].dtype
        precision = 0
        if kind in (self.torch.float16, self.torch.bfloat16):
            precision = 2
        elif kind == self.torch.float32 and self.flops is not None:
            b = self.torch.backends
            precision = int(b.cudnn.allow_tf32 if self.convolves else b.cuda.matmul.allow_tf32)
        shapes = ";".join("x".join(map(str, t.shape)) for t in read[:3])
        return shapes.encode(), flops, float(moved), precision


def _size(t):
    return min(t.numel() * t.element_size(), t.untyped_storage().nbytes())


_library = None


def install():
    """Put our functions around the CUDA kernels. Called once, when torch has been imported, before
    standin_compute puts in its own: those call the kernels that they find, so that both work."""
    global _library
    import torch
    from torch.utils.flop_counter import flop_registry

    if not hasattr(torch.library, "get_kernel"):
        raise RuntimeError("STANDIN_CLOCK=program needs torch 2.9 or later: choose another clock")
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in torch._C._dispatch_get_all_op_names():
            has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")
            if not name.startswith("aten::") or not has_kernel:
                continue
            short, _, overload = name[len("aten::") :].partition(".")
            packet = getattr(torch.ops.aten, short)
            op = getattr(packet, overload or "default")
            if short in _NO_WORK:
                continue
            if any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns):
                continue  # a view
            original = torch.library.get_kernel(op, "CUDA")
            around = _Op(torch, op, name, original, flop_registry.get(packet))
            _library.impl(name[len("aten::") :], around.call, "CUDA", with_keyset=True, allow_override=True)
