"""CPU tensors in the memory of CUDA tensors.

An alias holds no reference to the CUDA tensor's storage, on purpose: if the caching allocator gives the
memory to another tensor while work is pending, the work must read what is there then, as a kernel on a GPU
would. Freeing device memory waits for the device, so memory that pending work points to stays mapped.
"""

import torch

CPU = torch.device("cpu")
HALF = frozenset({torch.float16, torch.bfloat16, torch.complex32})
WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}

_storage = torch._C._construct_storage_from_data_pointer
_empty = torch.empty


def alias(t):
    """Return a CPU tensor with the memory, shape, strides, dtype and lazy bits of a CUDA tensor."""
    storage = t.untyped_storage()
    size = storage.nbytes()
    if t._is_zerotensor():  # zeros without memory
        return torch.zeros(t.shape, dtype=t.dtype)
    if size == 0:
        if t.numel() > 0:
            raise RuntimeError(f"a tensor of shape {tuple(t.shape)} lies in a storage of 0 bytes")
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
    out = _empty(0, dtype=t.dtype)
    out.set_(_storage(storage.data_ptr(), CPU, size), t.storage_offset(), t.shape, t.stride())
    if t.is_conj():
        out = torch._conj(out)
    if t.is_neg():
        out = torch._neg_view(out)
    return out


def is_cuda(x):
    return isinstance(x, torch.Tensor) and x.device.type == "cuda"


def tensors(x):
    """Yield the tensors in an argument, which may be a tensor or a list of tensors and None."""
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            if isinstance(y, torch.Tensor):
                yield y


def mapped(f, x):
    """Return an argument with each tensor t in it replaced by f(t)."""
    if isinstance(x, torch.Tensor):
        return f(x)
    if isinstance(x, (list, tuple)) and any(isinstance(y, torch.Tensor) for y in x):
        return [f(y) if isinstance(y, torch.Tensor) else y for y in x]
    return x


def put(to, result):
    """Copy a result of the CPU kernel into the memory that the CUDA host code allocated for it."""
    if to is None or result is None:
        return
    if isinstance(to, (list, tuple)):
        if len(to) != len(result):
            raise RuntimeError(f"the CUDA op returned {len(to)} tensors and the CPU op {len(result)}")
        for a, b in zip(to, result):
            put(a, b)
        return
    if not isinstance(result, torch.Tensor):
        return
    if to.shape != result.shape:
        raise RuntimeError(
            f"the CUDA op returned shape {tuple(to.shape)} and the CPU op {tuple(result.shape)}"
        )
    to.copy_(result)
