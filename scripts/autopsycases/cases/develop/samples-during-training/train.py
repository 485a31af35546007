"""Trains a flow transformer on latents; every few steps an ODE solver draws samples."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv


class Flow(nn.Module):
    """A transformer over patches of latents, told the time."""

    def __init__(self, width=768, layers=12):
        super().__init__()
        self.patches = nn.Linear(16, width)
        self.time = nn.Linear(256, width)
        self.blocks = nn.ModuleList(Block(width, 12, causal=False) for _ in range(layers))
        self.out = nn.Linear(width, 16)

    def forward(self, x, t):
        waves = torch.exp(-torch.arange(128, device=x.device) / 14) * t[:, None]
        y = self.patches(x) + self.time(torch.cat([waves.sin(), waves.cos()], dim=1))[:, None]
        for block in self.blocks:
            y = block(y)
        return self.out(y)


model = Flow().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def integrate(drift, x, steps=50):
    times = torch.linspace(0, 1, steps + 1).tolist()
    for t, following in zip(times, times[1:]):
        x = x + (following - t) * drift(x, torch.full((len(x),), t, device=x.device))
    return x


for step in range(6):
    x1 = torch.randn(32, 256, 16).cuda()
    x0, t = torch.randn_like(x1), torch.rand(32, device="cuda")
    mixed = t[:, None, None] * x1 + (1 - t[:, None, None]) * x0
    loss = F.mse_loss(model(mixed, t), x1 - x0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        with torch.set_grad_enabled(not FIXED):
            images = integrate(model, torch.randn(32, 256, 16).cuda())
