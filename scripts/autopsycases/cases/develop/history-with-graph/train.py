"""Relaxes molecules with L-BFGS of its own; forces are gradients of a learnt energy."""

import sys

import torch
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
MEMORY = 8


class Energy(nn.Module):
    """The energy of molecules of as many atoms each: [molecules, atoms, 3] to [molecules]."""

    def __init__(self, width=256, layers=6):
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.blocks = nn.Sequential(*(Block(width, 8, causal=False) for _ in range(layers)))
        self.energy = nn.Linear(width, 1)

    def forward(self, positions):
        return self.energy(self.blocks(self.embed(positions))).sum(dim=(1, 2))


def forces_of(model, positions):
    return -torch.autograd.grad(model(positions).sum(), positions, create_graph=True)[0]


model = Energy().cuda().requires_grad_(False)
positions = torch.rand(96, 128, 3, device="cuda").requires_grad_()
history_s = torch.zeros(96, 0, 128, 3, device="cuda")
history_y = torch.zeros(96, 0, 128, 3, device="cuda")
forces = forces_of(model, positions)
for step in range(30):
    direction = forces
    for i in range(history_s.shape[1]):
        direction = direction + 0.1 * history_s[:, i] * history_y[:, i].mean()
    moved = (positions + 0.01 * direction).detach().requires_grad_()
    after = forces_of(model, moved)
    s, y = moved - positions, forces - after
    if FIXED:
        s, y, after = s.detach(), y.detach(), after.detach()
    history_s = torch.cat([history_s, s.unsqueeze(1)], dim=1)[:, -MEMORY:]
    history_y = torch.cat([history_y, y.unsqueeze(1)], dim=1)[:, -MEMORY:]
    positions, forces = moved, after
    print(step)
