"""Flex attention with the memory use of its compiled kernels.

torch's flex_attention is meant to be compiled: uncompiled, it makes the whole score matrix. We know what the
compiled kernels allocate without running them. Forward: the output and two numbers for each row of queries.
Backward: one more number for each row, then the gradients. torch describes these tensors itself in its
functions for fake tensors, which we call with real ones. A compiled create_block_mask makes tables of blocks
but not the mask itself, which has one byte for each pair of query and key.

Source: torch/_higher_order_ops/flex_attention.py, torch/_inductor/kernel/flex/flex_attention.py.
"""

import importlib

from .kernels import after_import


def take_flex_attention(run):
    """Replace the uncompiled formulas by the tensors of the compiled kernels as soon as something imports the
    module (importing it takes half a second). run.kernels_known then maps the functions that a script may
    compile to their replacements."""

    def take(flex):
        run.kernels_known.update(_described(run.torch, flex))

    after_import("torch.nn.attention.flex_attention", take)


def _described(torch, flex):
    """Make torch's module allocate what its own functions for fake tensors describe. Returns the replacements
    of the functions that a script may compile; empty for a release that describes them differently."""
    try:  # by name, since the package has a function of the module's name
        ops = importlib.import_module("torch._higher_order_ops.flex_attention")
    except ImportError:
        return {}
    forward = getattr(ops, "flex_attention_fake_impl", None)
    gradients = getattr(ops, "flex_attention_backward_fake_tensor_mode", None)
    if forward is None or gradients is None or not hasattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"):
        return {}

    def backward(query, *args, **kwargs):
        rows = query.new_empty(query.shape[:-1], dtype=torch.float32)
        out = gradients(query, *args, **kwargs)
        del rows
        return out

    def block_mask(mask_mod, B, H, Q_LEN, KV_LEN, device=None, BLOCK_SIZE=128, *args, **kwargs):
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        rows, columns = -(-Q_LEN // size[0]), -(-KV_LEN // size[1])
        some, whole = (
            torch.zeros(B or 1, H or 1, rows, columns, dtype=torch.int8, device=device or "cuda")
            for _ in range(2)
        )
        return flex._create_sparse_block_from_block_mask((some, whole), mask_mod, (Q_LEN, KV_LEN), *size)

    flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # otherwise it compiles itself
    ops.flex_attention.py_kernels[torch._C.DispatchKey.CUDA] = forward
    ops.flex_attention_backward.py_kernels[torch._C.DispatchKey.CUDA] = backward
    return {flex.flex_attention: flex.flex_attention, flex.create_block_mask: block_mask}
