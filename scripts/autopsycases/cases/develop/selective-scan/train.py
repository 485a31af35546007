"""Predicts traffic with a state-space model whose scan is written in PyTorch."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH = 16 if FIXED else 48


class Mamba(nn.Module):
    def __init__(self, width, states=128):
        super().__init__()
        self.inner = 2 * width
        self.states = states
        self.in_proj = nn.Linear(width, 2 * self.inner)
        self.conv = nn.Conv1d(self.inner, self.inner, 4, groups=self.inner, padding=3)
        self.x_proj = nn.Linear(self.inner, 2 * states + 16)
        self.dt_proj = nn.Linear(16, self.inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, states + 1).repeat(self.inner, 1).float()))
        self.D = nn.Parameter(torch.ones(self.inner))
        self.out_proj = nn.Linear(self.inner, width)

    def forward(self, x):
        length = x.shape[1]
        x, z = self.in_proj(x).chunk(2, dim=-1)
        x = F.silu(self.conv(x.transpose(1, 2))[:, :, :length].transpose(1, 2))
        dt, B, C = self.x_proj(x).split([16, self.states, self.states], dim=-1)
        y = self.selective_scan(x, F.softplus(self.dt_proj(dt)), -torch.exp(self.A_log), B, C)
        return self.out_proj(y * F.silu(z))

    def selective_scan(self, u, delta, A, B, C):
        dA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        dB = torch.einsum("bld,bln,bld->bldn", delta, B, u)
        state, ys = torch.zeros_like(dA[:, 0]), []
        for t in range(u.shape[1]):
            state = dA[:, t] * state + dB[:, t]
            ys.append(torch.einsum("bdn,bn->bd", state, C[:, t]))
        return torch.stack(ys, dim=1) + u * self.D


class Forecaster(nn.Module):
    def __init__(self, sensors=307, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(Mamba(sensors) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(sensors) for _ in range(layers))

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return x


model = Forecaster().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(3):
    past, future = torch.rand(BATCH, 24, 307).cuda(), torch.rand(BATCH, 24, 307).cuda()
    loss = F.mse_loss(model(past), future)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step)
