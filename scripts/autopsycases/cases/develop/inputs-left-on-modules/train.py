"""Explains sequences with the models of all folds, one after another, by comparing them with references."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
FOLDS = 12


class BPNet(nn.Module):
    """Dilated convolutions with residuals: [batch, 4, length] to counts."""

    def __init__(self, filters=64, layers=8):
        super().__init__()
        self.first, self.first_relu = nn.Conv1d(4, filters, 21, padding=10), nn.ReLU()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(filters, filters, 3, padding=2**i, dilation=2**i) for i in range(1, layers + 1)
        )
        self.relus = nn.ModuleList(nn.ReLU() for _ in range(layers))
        self.counts = nn.Linear(filters, 1)

    def forward(self, x):
        x = self.first_relu(self.first(x))
        for convolution, relu in zip(self.convolutions, self.relus):
            x = x + relu(convolution(x))
        return self.counts(x.mean(dim=-1))


def _forward_pre_hook(module, inputs):
    module.input = inputs[0].clone().detach()


def _forward_hook(module, inputs, outputs):
    module.output = outputs.clone().detach()


def _backward_hook(module, grad_input, grad_output):
    delta_in = module.input.chunk(2)
    delta_out = module.output.chunk(2)
    delta_in, delta_out = delta_in[0] - delta_in[1], delta_out[0] - delta_out[1]
    multiplier = torch.cat([delta_out / (delta_in + 1e-6)] * 2)
    return (grad_output[0] * multiplier,)


def _register_hooks(module):
    if isinstance(module, nn.ReLU):
        module.handles = [
            module.register_forward_pre_hook(_forward_pre_hook),
            module.register_forward_hook(_forward_hook),
            module.register_full_backward_hook(_backward_hook),
        ]


def _clear_hooks(module):
    if hasattr(module, "handles"):
        for handle in module.handles:
            handle.remove()
        del module.handles
        if FIXED:
            del module.input, module.output


def deep_lift_shap(model, sequences, references, batch=32):
    model = model.cuda().eval()
    model.apply(_register_hooks)
    attributions = []
    for begin in range(0, len(sequences), batch):
        x, r = (
            sequences[begin : begin + batch].cuda(),
            references[begin : begin + batch].cuda(),
        )
        x.requires_grad_()
        y = model(torch.cat([x, r]))
        multipliers = torch.autograd.grad(y.chunk(2)[0].sum(), x)[0]
        attributions.append((multipliers * (x - r)).detach().cpu())
    model.apply(_clear_hooks)
    return torch.cat(attributions)


models = [BPNet() for _ in range(FOLDS)]
sequences, references = torch.rand(96, 4, 2114), torch.rand(96, 4, 2114)
total = 0
for model in models:
    total = total + deep_lift_shap(model, sequences, references)
