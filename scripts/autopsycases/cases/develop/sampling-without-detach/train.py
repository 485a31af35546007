"""Trains a small diffusion model and draws samples from it after each epoch."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet
from torch import nn

FIXED = "--fixed" in sys.argv


class DDPM(nn.Module):
    def __init__(self, net, steps=400):
        super().__init__()
        self.net, self.steps = net, steps
        self.register_buffer("alpha", torch.linspace(0.9999, 0.98, steps))

    def forward(self, x):
        t = torch.randint(self.steps, (len(x),), device=x.device)
        noise = torch.randn_like(x)
        a = self.alpha[t].view(-1, 1, 1, 1)
        return F.mse_loss(self.net(a.sqrt() * x + (1 - a).sqrt() * noise), noise)

    def sample(self, count, size):
        x_i = torch.randn(count, *size, device=self.alpha.device)
        for i in reversed(range(self.steps)):
            z = torch.randn(count, *size, device=x_i.device) if i > 1 else 0
            eps = self.net(x_i)
            x_i = self.alpha[i].rsqrt() * (x_i - (1 - self.alpha[i]) * eps) + 0.01 * z
            if FIXED:
                x_i = x_i.detach()
        return x_i


ddpm = DDPM(UNet(channels=1, classes=1, width=64, levels=2)).cuda()
optimizer = torch.optim.Adam(ddpm.parameters(), lr=1e-4)
for epoch in range(2):
    ddpm.train()
    for step in range(5):
        loss = ddpm(torch.rand(128, 1, 28, 28).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ddpm.eval()
    print(ddpm.sample(40, (1, 28, 28)).shape)
