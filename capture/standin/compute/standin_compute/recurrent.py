"""Recurrent networks: the fused cells that PyTorch uses without cuDNN, and cuDNN's whole networks.

What a cell keeps for the backward pass has a layout of our own: nothing else reads it. cuDNN's networks run
as the CPU's of the same kind, with the list of weights that the op gets (they are views of cuDNN's one
buffer). The backward pass runs the forward pass again, under autograd; cuDNN's reserve stays unused. A
network with dropout between its layers is refused, since its mask would have to be kept there.

Source: Hochreiter and Schmidhuber 1997 and Cho et al. 2014 for the cells; PyTorch's schemas of the ops.
"""

import torch

from . import report

_aten = torch.ops.aten
_LSTM = 2  # the modes: 0 ReLU, 1 tanh, 2 LSTM, 3 GRU
_CELLS = {0: _aten.rnn_relu, 1: _aten.rnn_tanh, 2: _aten.lstm, 3: _aten.gru}

# The dispatch keys of a thread outside any op, with which autograd sees what runs.
_included = torch._C._dispatch_tls_local_include_set()
_excluded = torch._C._dispatch_tls_local_exclude_set()


# layout of our own.


def _lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    gates = input_gates + hidden_gates
    for b in (input_bias, hidden_bias):
        gates = gates if b is None else gates + b
    i, f, g, o = gates.chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], -1)


def _lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    i, f, g, o = workspace.chunk(4, -1)
    t = cy.tanh()
    grad_hy = torch.zeros_like(cx) if grad_hy is None else grad_hy
    through = grad_hy * o * (1 - t * t)
    if grad_cy is not None:
        through = through + grad_cy
    gates = torch.cat(
        [
            through * g * i * (1 - i),
            through * cx * f * (1 - f),
            through * i * (1 - g * g),
            grad_hy * t * o * (1 - o),
        ],
        -1,
    )
    return gates, through * f, gates.sum(0) if has_bias else None


def _gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    if input_bias is not None:
        input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
    ir, iz, in_ = input_gates.chunk(3, -1)
    hr, hz, hn = hidden_gates.chunk(3, -1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (in_ + r * hn).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hn], -1)


def _gru_cell_backward(grad_hy, workspace, has_bias):
    r, z, n, hx, hn = workspace.chunk(5, -1)
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_z = grad_hy * (hx - n) * z * (1 - z)
    grad_r = grad_n * hn * r * (1 - r)
    inputs, hidden = torch.cat([grad_r, grad_z, grad_n], -1), torch.cat([grad_r, grad_z, grad_n * r], -1)
    return (
        inputs,
        hidden,
        grad_hy * z,
        inputs.sum(0) if has_bias else None,
        hidden.sum(0) if has_bias else None,
    )


def _network(input, weight, stride, hx, cx, mode, layers, batch_first, bidirectional, batch_sizes):
    """Run a network on the CPU: its output, and its last states (two for an LSTM)."""
    states = [hx, cx] if mode == _LSTM else hx
    options = (list(weight), stride > 2, layers, 0.0, False, bidirectional)
    if batch_sizes:
        return _CELLS[mode].data(input, torch.tensor(batch_sizes), states, *options)
    return _CELLS[mode].input(input, states, *options, batch_first)


def _leaf(t):
    return t.detach().requires_grad_()


def _cudnn_rnn(
    input,
    weight,
    weight_stride0,
    weight_buf,
    hx,
    cx,
    mode,
    hidden_size,
    proj_size,
    num_layers,
    batch_first,
    dropout,
    train,
    bidirectional,
    batch_sizes,
    dropout_state,
    *,
    draw,
):
    if dropout > 0 and train and num_layers > 1:
        report.refuse("aten::_cudnn_rnn", "it drops between layers: set torch.backends.cudnn.enabled = False")
    out, *states = _network(
        input, weight, weight_stride0, hx, cx, mode, num_layers, batch_first, bidirectional, batch_sizes
    )
    return out, states[0], states[1] if mode == _LSTM else None, None, None


def _cudnn_rnn_backward(
    input,
    weight,
    weight_stride0,
    weight_buf,
    hx,
    cx,
    output,
    grad_output,
    grad_hy,
    grad_cy,
    mode,
    hidden_size,
    proj_size,
    num_layers,
    batch_first,
    dropout,
    train,
    bidirectional,
    batch_sizes,
    dropout_state,
    reserve,
    output_mask,
):
    with torch._C._ForceDispatchKeyGuard(_included, _excluded), torch.enable_grad():
        x, h, w = _leaf(input), _leaf(hx), [_leaf(t) for t in weight]
        c = None if cx is None else _leaf(cx)
        outs = _network(x, w, weight_stride0, h, c, mode, num_layers, batch_first, bidirectional, batch_sizes)
        pairs = [(o, g) for o, g in zip(outs, (grad_output, grad_hy, grad_cy)) if g is not None]
        leaves = [x, h, *([c] if mode == _LSTM else []), *w]
        grads = list(torch.autograd.grad([o for o, _ in pairs], leaves, [g for _, g in pairs]))
    dx, dh = grads.pop(0), grads.pop(0)
    dc = grads.pop(0) if mode == _LSTM else None
    return dx, dh, dc, grads


_OWN = {
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
    "_cudnn_rnn": _cudnn_rnn,
    "_cudnn_rnn_backward": _cudnn_rnn_backward,
}


def find(name):
    """Return the function that computes a recurrent op, or None."""
    return _OWN.get(name)
