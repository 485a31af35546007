"""Flex attention as its compiled kernels hold memory.

torch's flex_attention is written to be compiled: run as it stands it makes the whole matrix of scores. What
the compiled kernels make is known without them: forward the output and two numbers for each row of queries;
backward one more number for each row, then the gradients. The tensors are torch's own description of that,
its functions for fake tensors, called here with real ones. A compiled create_block_mask makes tables
of blocks without the mask itself, which has a byte for each pair of query and key.

Source: torch/_higher_order_ops/flex_attention.py, torch/_inductor/kernel/flex/flex_attention.py.
"""

import importlib


def take_flex_attention(run):
    """Put the tensors of the compiled kernels in place of the ones of the written-out mathematics, as soon as
    something imports the module, which takes half a second. run.kernels_known then has the functions that a
    script may compile, with what stands in for each."""

    def take(flex):
        run.kernels_known.update(_described(run.torch, flex))

    after_import("torch.nn.attention.flex_attention", take)


def _described(torch, flex):
    """Have torch's module make what its own functions for fake tensors describe. Returns what stands in for
    the functions that a script may compile, nothing for a release that describes them otherwise."""
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

    flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # or it compiles itself
    ops.flex_attention.py_kernels[torch._C.DispatchKey.CUDA] = forward
    ops.flex_attention_backward.py_kernels[torch._C.DispatchKey.CUDA] = backward
    return {flex.flex_attention: flex.flex_attention, flex.create_block_mask: block_mask}
