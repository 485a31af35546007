"""Computes the Hessian of a molecule's energy, a row at a time, with a learnt potential."""

import sys

import torch
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv


class Potential(nn.Module):
    def __init__(self, width=256, layers=4):
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.blocks = nn.ModuleList(Block(width, 8, causal=False, math=True) for _ in range(layers))
        self.energy = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, positions):
        scales = torch.arange(1, 17, device=positions.device) / 4
        distances = (positions[:, None] - positions[None]).square().sum(-1).add(1e-6).sqrt()
        features = torch.exp(-distances[..., None] * scales).sum(1)
        x = self.embed(features)[None]
        for block in self.blocks:
            x = block(x)
        return self.energy(x).sum()


def forces_and_hessian(model, positions):
    positions = positions.detach().requires_grad_()
    energy = model(positions)
    forces = -torch.autograd.grad(energy, positions, create_graph=True)[0]
    rows = []
    for value in -forces.flatten():
        row = torch.autograd.grad(value, positions, retain_graph=True, create_graph=not FIXED)[0]
        rows.append(row.flatten())
    return forces.detach(), torch.stack(rows)


model = Potential().cuda().eval().requires_grad_(False)
for molecule in range(2):
    positions = torch.rand(96, 3).cuda()
    forces, hessian = forces_and_hessian(model, positions)
    print(forces.shape, hessian.shape)
