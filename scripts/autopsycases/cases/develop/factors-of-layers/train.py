"""Trains an autoencoder with K-FAC: hooks collect what the factors of each layer are made of."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH, PIXELS = 2048, 3072


class Block:
    """The Kronecker factors of one linear layer."""

    def __init__(self, layer):
        self.layer, self.inputs, self.sensitivities = layer, [], []
        layer.register_forward_pre_hook(self.before_forward)
        layer.register_full_backward_hook(self.after_backward)
        width, to = layer.in_features, layer.out_features
        self.a, self.s = torch.eye(width, device="cuda"), torch.eye(to, device="cuda")

    def before_forward(self, layer, inputs):
        if layer.training and torch.is_grad_enabled():
            self.inputs.append(inputs[0].detach())

    def after_backward(self, layer, grad_input, grad_output):
        self.sensitivities.append(grad_output[0].detach() * len(grad_output[0]))

    @torch.no_grad()
    def update(self, decay=0.95):
        x, s = self.inputs[-1], self.sensitivities[-1]
        self.a.mul_(decay).addmm_(x.t(), x, alpha=(1 - decay) / len(x))
        self.s.mul_(decay).addmm_(s.t(), s, alpha=(1 - decay) / len(s))
        if FIXED:
            self.inputs.clear()
            self.sensitivities.clear()


class KFAC(torch.optim.Optimizer):
    def __init__(self, model, lr):
        super().__init__(model.parameters(), {"lr": lr})
        self.blocks = [Block(m) for m in model.modules() if isinstance(m, nn.Linear)]

    @torch.no_grad()
    def step(self):
        for block in self.blocks:
            block.update()
            weight = block.layer.weight
            weight.grad = block.s @ weight.grad @ block.a / weight.numel()
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])


def autoencoder():
    widths = [PIXELS, 1000, 500, 250, 30, 250, 500, 1000, PIXELS]
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


model = autoencoder().cuda()
optimizer = KFAC(model, lr=1e-3)
for step in range(120):
    images = torch.rand(BATCH, PIXELS).cuda()
    loss = F.mse_loss(model(images), images)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
