"""Attributes predictions of several models of DNA to the bases of sequences, one model after another."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class Profile(nn.Module):
    """Dilated convolutions over a sequence of bases."""

    def __init__(self, width=256, layers=8):
        super().__init__()
        self.first = nn.Conv1d(4, width, 21, padding=10)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=1 << i, dilation=1 << i) for i in range(layers)
        )
        self.relus = nn.ModuleList(nn.ReLU() for _ in range(layers + 1))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.relus[0](self.first(x))
        for relu, layer in zip(self.relus[1:], self.layers):
            x = x + relu(layer(x))
        return self.head(x.mean(2))


def forward_pre_hook(module, inputs):
    module.input = inputs[0].detach()


def forward_hook(module, inputs, output):
    module.output = output.detach()


def backward_hook(module, grad_inputs, grad_outputs):
    change = module.output.chunk(2)[0] - module.output.chunk(2)[1]
    reach = module.input.chunk(2)[0] - module.input.chunk(2)[1]
    ratio = torch.where(reach.abs() > 1e-6, change / (reach + 1e-6), 1.0)
    return (grad_outputs[0] * torch.cat([ratio, ratio]),)


def deep_lift_shap(model, sequences, references, batch=32):
    handles = []
    for module in model.relus:
        handles.append(module.register_forward_pre_hook(forward_pre_hook))
        handles.append(module.register_forward_hook(forward_hook))
        handles.append(module.register_full_backward_hook(backward_hook))
    attributions = []
    for x, r in zip(sequences.split(batch), references.split(batch)):
        both = torch.cat([x, r]).cuda().requires_grad_()
        y, base = model(both).chunk(2)
        grads = torch.autograd.grad((y - base).sum(), both)[0]
        attributions.append((grads.chunk(2)[0] * (x - r).cuda()).cpu())
    for handle in handles:
        handle.remove()
    if FIXED:
        for module in model.relus:
            del module.input, module.output
    return torch.cat(attributions)


models = [Profile().cuda().eval() for _ in range(6)]
sequences = nn.functional.one_hot(torch.randint(4, (64, 2114)), 4).transpose(1, 2).float()
references = sequences[:, :, torch.randperm(2114)]
for model in models:
    print(deep_lift_shap(model, sequences, references).shape)
