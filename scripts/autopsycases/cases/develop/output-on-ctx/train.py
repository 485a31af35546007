"""Trains a recurrent network whose scan is a function of its own, which keeps its output for the backward."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class Scan(torch.autograd.Function):
    """A leaky sum over time: y[t] = decay * y[t-1] + x[t], written out as a product with a kernel."""

    @staticmethod
    def forward(ctx, x, decay):
        steps = torch.arange(x.shape[1], device=x.device)
        kernel = torch.where(steps[:, None] >= steps, decay ** (steps[:, None] - steps).clamp(min=0), 0.0)
        y = torch.tanh(torch.einsum("ts,bsc->btc", kernel, x))
        if FIXED:
            ctx.save_for_backward(kernel, y)
        else:
            ctx.kernel = kernel
            ctx.y = y
        return y

    @staticmethod
    def backward(ctx, grad):
        kernel, y = ctx.saved_tensors if FIXED else (ctx.kernel, ctx.y)
        return torch.einsum("ts,btc->bsc", kernel, grad * (1 - y * y)), None


class Network(nn.Module):
    def __init__(self, width=512, layers=4, classes=35):
        super().__init__()
        self.inputs = nn.Linear(80, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.outputs = nn.Linear(width, classes)

    def forward(self, x):
        x = self.inputs(x)
        for layer in self.layers:
            x = x + layer(Scan.apply(x, 0.95))
        return self.outputs(x.mean(1))


model = Network().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(40):
    spectra, words = torch.randn(32, 500, 80).cuda(), torch.randint(35, (32,)).cuda()
    loss = nn.functional.cross_entropy(model(spectra), words)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
