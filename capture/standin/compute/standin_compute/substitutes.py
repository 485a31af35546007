"""Ops without a CPU kernel, or with one under another name: cuDNN's convolution and batch norm, synchronised
batch norm, matrix products with another output type, dropout.

Each function takes the op's own arguments (float16 and bfloat16 arrive as float32) and returns the op's
results.
"""

import torch

_aten = torch.ops.aten


def _dropout(input, p, train, *, draw, outputs):
    if train is False:
        return input, torch.ones_like(input, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(input), torch.zeros_like(input, dtype=torch.bool)
    mask = torch.rand(input.shape, generator=draw.generator()).lt(1 - p)
    return input * mask * (1 / (1 - p)), mask


def _fused_dropout(self, p, generator=None, *, draw, outputs):
    mask = torch.rand(self.shape, generator=draw.generator()).lt(p)
    return self * mask * (1 / p), mask.to(torch.uint8)


def _masked_scale(self, mask, scale):
    return self * mask.to(self.dtype) * scale


def _convolution(self, weight, padding, stride, dilation, groups, *flags, out=None, **more):
    result = _aten.convolution.default(
        self, weight, None, stride, padding, dilation, False, [0] * len(stride), groups
    )
    return result if out is None else out.copy_(result)


def _convolution_transpose(self, weight, padding, output_padding, stride, dilation, groups, *flags, **more):
    return _aten.convolution.default(
        self, weight, None, stride, padding, dilation, True, output_padding, groups
    )


def _convolution_relu(self, weight, bias, stride, padding, dilation, groups):
    return _aten.convolution.default(
        self, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups
    ).relu()


def _convolution_add_relu(self, weight, z, alpha, bias, stride, padding, dilation, groups):
    y = _aten.convolution.default(
        self, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups
    )
    return (y + z * (1 if alpha is None else alpha)).relu()


def _depthwise(self, weight, kernel_size, bias, stride, padding, dilation, *, out=None):
    result = _aten.convolution.default(
        self, weight, bias, stride, padding, dilation, False, [0] * len(stride), self.shape[1]
    )
    return result if out is None else out.copy_(result)


def _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """Like the CPU's, except that outside training CUDA returns statistics, which nothing reads, and the CPU
    returns none.
    """
    y, mean, invstd = _aten.native_batch_norm.default(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )
    return (y, mean, invstd) if training else (y, None, None)


def _cudnn_batch_norm(
    input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon, **out
):
    y, mean, invstd = _aten.native_batch_norm.default(
        input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon
    )
    return y, mean if training else None, invstd if training else None, None


def _cudnn_batch_norm_backward(
    input, grad_output, weight, running_mean, running_var, save_mean, save_var, epsilon, reserve
):
    return _aten.native_batch_norm_backward.default(
        grad_output,
        input,
        weight,
        running_mean,
        running_var,
        save_mean,
        save_var,
        True,
        epsilon,
        [True, True, True],
    )


def _batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps, **out):
    y, mean, invstd = _aten.native_batch_norm.default(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return y, mean, invstd, None


def _batch_norm_backward(
    grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask, reserve
):
    return _aten.native_batch_norm_backward.default(
        grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )


def _grid_sampler(self, grid):
    return _aten.grid_sampler_2d.default(self, grid, 0, 0, True)


def _grid_sampler_backward(self, grid, grad_output):
    return _aten.grid_sampler_2d_backward.default(grad_output, self, grid, 0, 0, True, [True, True])


def _affine_grid(theta, n, c, h, w):
    return _aten.affine_grid_generator.default(theta, [n, c, h, w], True)


def _affine_grid_backward(grad, n, c, h, w):
    return _aten.affine_grid_generator_backward.default(grad, [n, c, h, w], True)


def _cudnn_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, deterministic, zero_infinity):
    """The loss, and its gradient for the backward pass."""
    op, back = _aten._ctc_loss, _aten._ctc_loss_backward
    loss, alpha = op(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    grad = back(
        torch.ones_like(loss),
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        loss,
        alpha,
        blank,
        zero_infinity,
    )
    return loss, grad


# Synchronised batch norm: each rank's statistics, their union, and the gradient from sums over all ranks.


def _others(input):
    return [d for d in range(input.dim()) if d != 1]


def _along(statistic, input):
    return statistic.view([1, -1] + [1] * (input.dim() - 2))


def _batch_norm_stats(input, eps):
    variance, mean = torch.var_mean(input, _others(input), correction=0)
    return mean, (variance + eps).rsqrt()


def _batch_norm_elemt(input, weight, bias, mean, invstd, eps, *, out=None):
    y = (input - _along(mean, input)) * _along(invstd, input)
    if weight is not None:
        y = y * _along(weight, input)
    if bias is not None:
        y = y + _along(bias, input)
    return y if out is None else out.copy_(y)


def _batch_norm_gather(input, mean, invstd, running_mean, running_var, momentum, eps, counts):
    counts = counts.to(mean.dtype).view(-1, 1)
    total = counts.sum()
    union = (mean * counts).sum(0) / total
    variance = ((invstd.pow(-2) - eps + (mean - union) ** 2) * counts).sum(0) / total
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(union, alpha=momentum)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_(variance * (total / (total - 1)), alpha=momentum)
    return union, (variance + eps).rsqrt()


def _batch_norm_gather_stats(input, mean, invstd, running_mean, running_var, momentum, eps, count):
    return _batch_norm_gather(
        input,
        mean,
        invstd,
        running_mean,
        running_var,
        momentum,
        eps,
        torch.full((mean.shape[0],), float(count)),
    )


def _batch_norm_backward_reduce(grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g):
    centred = input - _along(mean, input)
    sum_dy, sum_dy_xmu = grad_out.sum(_others(input)), (grad_out * centred).sum(_others(input))
    return (
        sum_dy if input_g else None,
        sum_dy_xmu if input_g else None,
        sum_dy_xmu * invstd if weight_g else None,
        sum_dy if bias_g else None,
    )


def _batch_norm_backward_elemt(grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count):
    total = count.sum()
    grad = grad_out - _along(sum_dy / total, input)
    grad = grad - (input - _along(mean, input)) * _along(invstd * invstd * sum_dy_xmu / total, input)
    grad = grad * _along(invstd, input)
    return grad if weight is None else grad * _along(weight, input)


def _softmax(self, dim, half_to_float):
    return _aten._softmax.default(self, dim, False)


def _log_softmax(self, dim, half_to_float):
    return _aten._log_softmax.default(self, dim, False)


def _softmax_backward(grad_output, output, dim, input_dtype, *, grad_input=None):
    result = _aten._softmax_backward_data.default(grad_output, output, dim, grad_output.dtype)
    return result if grad_input is None else grad_input.copy_(result)


def _log_softmax_backward(grad_output, output, dim, input_dtype, *, out=None):
    result = _aten._log_softmax_backward_data.default(grad_output, output, dim, grad_output.dtype)
    return result if out is None else out.copy_(result)


def _mm(self, mat2, out_dtype, *, out=None):
    result = self @ mat2
    return result if out is None else out.copy_(result)


def _addmm(self, mat1, mat2, out_dtype, *, beta=1, alpha=1, out=None):
    result = self * beta + mat1 @ mat2 * alpha
    return result if out is None else out.copy_(result)


def _log_sigmoid(self):
    """On CUDA, nothing is kept for the backward pass."""
    return _aten.log_sigmoid_forward.default(self)[0], None


def _log_sigmoid_backward(grad_output, self, buffer, *, grad_input=None):
    result = _aten.log_sigmoid_backward.default(grad_output, self, (-self.abs()).exp())
    return result if grad_input is None else grad_input.copy_(result)


def _embedding_bag(
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=0,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=-1,
    *,
    outputs,
):
    """CUDA always returns which bag an index is in, for the backward pass; the CPU only if it needs that."""
    out, _, size, most = _aten._embedding_bag.default(
        weight,
        indices,
        offsets,
        scale_grad_by_freq,
        mode,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )
    starts = offsets[:-1] if include_last_offset else offsets
    bag = torch.bucketize(torch.arange(indices.numel(), dtype=offsets.dtype), starts, right=True) - 1
    same = [
        r if o is not None and r.shape == o.shape else None
        for r, o in ((bag, outputs[1]), (size, outputs[2]), (most, outputs[3]))
    ]
    return out, *same


def _rms_norm(input, normalized_shape, weight, eps):
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    rstd = (
        input.pow(2).mean(dims, keepdim=True) + (torch.finfo(input.dtype).eps if eps is None else eps)
    ).rsqrt()
    y = input * rstd
    return y if weight is None else y * weight, rstd


def _rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask):
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    wide = grad_out if weight is None else grad_out * weight
    normed = input * rstd
    grad = rstd * (wide - normed * (wide * normed).mean(dims, keepdim=True)) if output_mask[0] else None
    lead = list(range(input.dim() - len(normalized_shape)))
    grad_weight = None
    if output_mask[1]:
        grad_weight = (grad_out * normed).sum(lead) if lead else grad_out * normed
    return grad, grad_weight


_OWN = {
    "native_dropout": _dropout,
    "_fused_dropout": _fused_dropout,
    "_masked_scale": _masked_scale,
    "cudnn_convolution": _convolution,
    "cudnn_convolution_transpose": _convolution_transpose,
    "cudnn_convolution_relu": _convolution_relu,
    "cudnn_convolution_add_relu": _convolution_add_relu,
    "_conv_depthwise2d": _depthwise,
    "conv_depthwise3d": _depthwise,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "log_sigmoid_forward": _log_sigmoid,
    "log_sigmoid_backward": _log_sigmoid_backward,
    "log_sigmoid_backward.grad_input": _log_sigmoid_backward,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "cudnn_grid_sampler": _grid_sampler,
    "cudnn_grid_sampler_backward": _grid_sampler_backward,
    "cudnn_affine_grid_generator": _affine_grid,
    "cudnn_affine_grid_generator_backward": _affine_grid_backward,
    "_cudnn_ctc_loss": _cudnn_ctc_loss,
    "cudnn_batch_norm": _cudnn_batch_norm,
    "cudnn_batch_norm_backward": _cudnn_batch_norm_backward,
    "_batch_norm_with_update": _batch_norm_with_update,
    "batch_norm_backward": _batch_norm_backward,
    "batch_norm_stats": _batch_norm_stats,
    "batch_norm_elemt": _batch_norm_elemt,
    "batch_norm_gather_stats": _batch_norm_gather_stats,
    "batch_norm_gather_stats_with_counts": _batch_norm_gather,
    "batch_norm_backward_reduce": _batch_norm_backward_reduce,
    "batch_norm_backward_elemt": _batch_norm_backward_elemt,
    "_fused_rms_norm": _rms_norm,
    "_fused_rms_norm_backward": _rms_norm_backward,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _log_softmax_backward,
    "mm.dtype": _mm,
    "mm.dtype_out": _mm,
    "bmm.dtype": _mm,
    "bmm.dtype_out": _mm,
    "addmm.dtype": _addmm,
    "addmm.dtype_out": _addmm,
    "baddbmm.dtype": _addmm,
    "baddbmm.dtype_out": _addmm,
}

# Overloads that write to arguments, whereas the function above returns its results.
_NOT = frozenset(
    [
        "native_batch_norm.out",
        "_native_batch_norm_legit.out",
        "_native_batch_norm_legit.no_stats",
        "_native_batch_norm_legit.no_stats_out",
        "log_sigmoid_forward.output",
        "_softmax.out",
        "_log_softmax.out",
        "cudnn_batch_norm.out",
        "_batch_norm_with_update.out",
    ]
)


def find(name):
    """Return the function that computes an overload of an op, or None if its own CPU kernel does."""
    full = name[len("aten::") :]
    if full in _NOT:
        return None
    return _OWN.get(full) or _OWN.get(full.split(".")[0])


# Host code that cannot be called: PyTorch makes a number on the device in it, which the dispatcher cannot
# hand to Python.


def _pow(base, exponent, *, out=None):
    base = torch.full((), base, dtype=torch.result_type(base, exponent), device=exponent.device)
    if out is None:
        return _aten.pow.Tensor_Tensor(base, exponent)
    return _aten.pow.Tensor_Tensor_out(base, exponent, out=out)


_HOST = {"aten::pow.Scalar": _pow, "aten::pow.Scalar_out": _pow}


def host_code(name):
    """Return the replacement of an overload's host code, or None if that itself runs."""
    return _HOST.get(name)
