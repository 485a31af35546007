"""Trains a normalizing flow over images whose batch norm layers keep averages of their own."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class FlowBatchNorm(nn.Module):
    """An invertible batch norm with running averages."""

    def __init__(self, features, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.log_scale = nn.Parameter(torch.zeros(features))
        self.shift = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def forward(self, x):
        mean, var = x.mean(dim=0), x.var(dim=0)
        if FIXED:
            self.running_mean = self.running_mean.lerp(mean.detach(), self.momentum)
            self.running_var = self.running_var.lerp(var.detach(), self.momentum)
        else:
            self.running_mean = self.running_mean.lerp(mean, self.momentum)
            self.running_var = self.running_var.lerp(var, self.momentum)
        y = (x - mean) / torch.sqrt(var + 1e-5)
        return y * self.log_scale.exp() + self.shift, (self.log_scale - 0.5 * torch.log(var + 1e-5)).sum()


class Coupling(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.half = features // 2
        first, second = nn.Linear(self.half, hidden), nn.Linear(hidden, hidden)
        self.net = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(hidden, 2 * self.half))

    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        scale, shift = self.net(a).chunk(2, dim=-1)
        scale = torch.sigmoid(scale + 2)
        return torch.cat([b * scale + shift, a], dim=-1), scale.log().sum(dim=-1)


class Flow(nn.Module):
    def __init__(self, features=3072, hidden=1024, layers=8):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(layers):
            self.layers += [FlowBatchNorm(features), Coupling(features, hidden)]

    def forward(self, x):
        total = 0
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return x, total


flow = Flow().cuda()
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-4)
for step in range(30):
    batch = torch.rand(512, 3072).cuda()
    z, log_det = flow(batch)
    loss = (0.5 * z.pow(2).sum(dim=-1) - log_det).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
