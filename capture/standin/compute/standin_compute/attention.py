"""Fused attention: flash, memory-efficient and cuDNN's, forward and backward.

All three compute softmax(QK'·scale + bias)V for (batch, heads, length, width) and return the logarithm of
each row's sum for the backward pass. Without dropout, without a bias that needs a gradient and with as many
key heads as query heads, we use the CPU's own flash kernels, which give the bits of a CPU run. Otherwise the
formula is written out, which takes O(length²) memory.

The dropout mask is drawn from the seed and offset that the forward pass took. The forward pass returns them
in tensors, and the backward pass draws the same mask from them.

Source: Dao et al. 2022, "FlashAttention", equations of section 3 and appendix B; PyTorch's schemas of the
ops.
"""

import torch

from .random import Draw

_aten = torch.ops.aten


def _scale(q, scale):
    return q.shape[-1] ** -0.5 if scale is None else scale


def _heads(t, n):
    """Repeat key or value heads until there are as many as query heads."""
    return t if t.shape[1] == n else t.repeat_interleave(n // t.shape[1], 1)


def _sum_heads(grad, like):
    if grad.shape[1] == like.shape[1]:
        return grad
    return grad.unflatten(1, (like.shape[1], -1)).sum(2)


def _scores(q, k, bias, causal, scale):
    s = q @ k.transpose(-2, -1) * _scale(q, scale)
    if bias is not None:
        s = s + bias
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).tril().logical_not(), float("-inf"))
    return s


def _keep(shape, p, draw):
    """The dropout mask, already divided by the share that is kept."""
    return torch.rand(shape, generator=draw.generator()).ge(p).float() / (1 - p)


def _plain(q, k, v, p, bias=None, bias_grad=False):
    return (
        p == 0
        and not bias_grad
        and q.shape[1] == k.shape[1] == v.shape[1]
        and q.shape[-1] == v.shape[-1]
        and q.dim() == 4
    )


def _forward(q, k, v, bias, p, causal, scale, draw):
    if _plain(q, k, v, p):
        return _aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=bias, scale=scale
        )[:2]
    k, v = _heads(k, q.shape[1]), _heads(v, q.shape[1])
    s = _scores(q, k, bias, causal, scale)
    lse = s.logsumexp(-1)
    weights = (s - lse.unsqueeze(-1)).exp().nan_to_num(0.0)  # a row without keys gives zeros
    if p > 0:
        weights = weights * _keep(weights.shape, p, draw)
    return weights @ v, lse


def _backward(grad, q, k, v, out, lse, bias, p, causal, scale, draw, bias_grad=False):
    lse = lse[..., : q.shape[-2]]
    if _plain(q, k, v, p, bias, bias_grad):
        lse = (
            lse.transpose(1, 2).contiguous().transpose(1, 2)
        )  # with the strides that the CPU's forward pass gives it
        return (
            *_aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad, q, k, v, out, lse, 0.0, causal, attn_mask=bias, scale=scale
            ),
            None,
        )
    wide_k, wide_v = _heads(k, q.shape[1]), _heads(v, q.shape[1])
    weights = (_scores(q, wide_k, bias, causal, scale) - lse.unsqueeze(-1)).exp().nan_to_num(0.0)
    keep = _keep(weights.shape, p, draw) if p > 0 else None
    dropped = weights if keep is None else weights * keep
    grad_v = dropped.transpose(-2, -1) @ grad
    grad_weights = grad @ wide_v.transpose(-2, -1)
    if keep is not None:
        grad_weights = grad_weights * keep
    grad_scores = weights * (grad_weights - (grad * out).sum(-1, keepdim=True))
    grad_q = grad_scores @ wide_k * _scale(q, scale)
    grad_k = grad_scores.transpose(-2, -1) @ q * _scale(q, scale)
    grad_bias = grad_scores.sum_to_size(bias.shape) if bias is not None and bias_grad else None
    return grad_q, _sum_heads(grad_k, k), _sum_heads(grad_v, v), grad_bias


def _remember(draw, seed, offset):
    """Write the seed and offset where the CUDA kernel would: in one tensor of two numbers, or two of one."""
    if seed is None:
        return
    if seed.numel() == 2:
        seed.copy_(torch.tensor([_signed(draw.seed), _signed(draw.offset)]).view(seed.dtype))
    elif seed.numel() == 1:
        seed.fill_(_signed(draw.seed))
        offset.fill_(_signed(draw.offset))


def _signed(x):
    return x - (1 << 64) if x >> 63 else x


def _recall(p, seed, offset):
    if p == 0:
        return None
    if seed.numel() == 2:
        seed, offset = seed.view(torch.int64).tolist()
        return Draw(seed, offset)
    return Draw(int(seed.item()), int(offset.item()))


def _padded(lse, to):
    """The kernels' rows of logarithms may be longer than the sequence, or empty if nothing needs them."""
    if to is None or to.numel() == 0:
        return to
    if lse.dim() < to.dim():
        lse = lse.unsqueeze(-1)
    if lse.shape == to.shape:
        return lse
    wide = torch.full(to.shape, float("inf"), dtype=to.dtype)
    wide[..., : lse.shape[-1]] = lse
    return wide


def flash(
    query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None, draw, outputs
):
    out, lse = _forward(query, key, value, None, dropout_p, is_causal, scale, draw)
    if dropout_p > 0:
        _remember(draw, outputs[6], outputs[7])
    return out, _padded(lse, outputs[1]), *(None,) * 7


def flash_backward(
    grad_out,
    query,
    key,
    value,
    out,
    logsumexp,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    philox_seed,
    philox_offset,
    *,
    scale=None,
):
    draw = _recall(dropout_p, philox_seed, philox_offset)
    return _backward(grad_out, query, key, value, out, logsumexp, None, dropout_p, is_causal, scale, draw)[:3]


def efficient(
    query,
    key,
    value,
    attn_bias,
    compute_log_sumexp,
    dropout_p=0.0,
    is_causal=False,
    *,
    scale=None,
    draw,
    outputs,
):
    out, lse = _forward(query, key, value, attn_bias, dropout_p, is_causal, scale, draw)
    if dropout_p > 0:
        _remember(draw, outputs[2], outputs[3])
    return out, _padded(lse, outputs[1]), None, None


def efficient_backward(
    grad_out_,
    query,
    key,
    value,
    attn_bias,
    out,
    logsumexp,
    philox_seed,
    philox_offset,
    dropout_p,
    grad_input_mask,
    is_causal=False,
    *,
    scale=None,
    draw=None,
):
    draw = _recall(dropout_p, philox_seed, philox_offset)
    return _backward(
        grad_out_,
        query,
        key,
        value,
        out,
        logsumexp,
        attn_bias,
        dropout_p,
        is_causal,
        scale,
        draw,
        grad_input_mask[3],
    )


def cudnn(
    query,
    key,
    value,
    attn_bias,
    compute_log_sumexp,
    dropout_p=0.0,
    is_causal=False,
    return_debug_mask=False,
    *,
    scale=None,
    draw,
    outputs,
):
    out, lse = _forward(query, key, value, attn_bias, dropout_p, is_causal, scale, draw)
    if dropout_p > 0:
        _remember(draw, outputs[6], outputs[7])
    lse = lse.unsqueeze(-1) if outputs[1] is not None and outputs[1].dim() > lse.dim() else lse
    return out, lse if compute_log_sumexp else None, *(None,) * 7


def cudnn_backward(
    grad_out,
    query,
    key,
    value,
    out,
    logsumexp,
    philox_seed,
    philox_offset,
    attn_bias,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    *,
    scale=None,
    draw=None,
):
    draw = _recall(dropout_p, philox_seed, philox_offset)
    lse = logsumexp.squeeze(-1) if logsumexp.dim() == 4 else logsumexp
    return _backward(grad_out, query, key, value, out, lse, attn_bias, dropout_p, is_causal, scale, draw)[:3]


_OWN = {
    "_scaled_dot_product_flash_attention": flash,
    "_scaled_dot_product_flash_attention_backward": flash_backward,
    "_scaled_dot_product_efficient_attention": efficient,
    "_scaled_dot_product_efficient_attention_backward": efficient_backward,
    "_scaled_dot_product_cudnn_attention": cudnn,
    "_scaled_dot_product_cudnn_attention_backward": cudnn_backward,
}


def find(name):
    """Return the function that computes an attention op, or None."""
    return _OWN.get(name)
