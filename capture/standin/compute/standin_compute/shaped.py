"""Ops computed without their host code: the size of the result depends on the data, or the host code calls a
library that does nothing here.

We synchronise the stream, run the CPU op, and copy its results to the device. What the host code would have
allocated besides its results (temporaries of CUB and Thrust, workspaces of cuSOLVER and cuFFT) is missing
from the device's memory.
"""

import torch

from . import report
from .alias import CPU, alias, mapped


def compute(kernel, args, kwargs):
    """Synchronise the op's stream, run the op on the CPU, and return its results on the device."""
    device = torch.device("cuda", kernel._device(args, kwargs))
    torch.cuda.current_stream(device).synchronize()
    report.raise_late()

    def host(x):
        if isinstance(x, torch.device):
            return CPU
        return mapped(lambda t: alias(t) if t.device.type == "cuda" else t, x)

    new, outs = [], []
    for i, x in enumerate(args):
        new.append(_argument(kernel, i in kernel.written, x, host, outs))
    named = {k: _argument(kernel, k in kernel.written_names, x, host, outs) for k, x in kwargs.items()}
    try:
        result = kernel.op(*new, **named)
    except Exception as error:
        report.refuse(kernel.name, f"{type(error).__name__}: {error}")
        raise
    report.computed[kernel.name] += 1
    if outs:
        for out, computed in outs:
            if out.shape != computed.shape:
                torch.ops.aten.resize_.default(out, computed.shape)
            alias(out).copy_(computed)
        back = tuple(out for out, _ in outs)
        return back[0] if len(back) == 1 else back

    def to_device(t):
        out = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
        alias(out).copy_(t)
        return out

    if isinstance(result, tuple):
        return tuple(mapped(to_device, r) for r in result)
    return mapped(to_device, result)


def _argument(kernel, written, x, host, outs):
    """A tensor that is written is computed in a copy, since the op may resize it."""
    if written and isinstance(x, torch.Tensor) and kernel.op._schema.name.endswith("_"):
        return host(x)
    if written and isinstance(x, torch.Tensor):
        fresh = torch.empty(x.shape if kernel.short.endswith("_") else 0, dtype=x.dtype)
        outs.append((x, fresh))
        return fresh
    return host(x)
