"""Simulates coarse-grained molecules with Langevin dynamics; a network gives the forces."""

import sys

import torch
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
MOLECULES, BEADS, STEP, FRICTION = 64, 96, 0.002, 0.9


class Potential(nn.Module):
    """The energy and the forces of molecules."""

    def __init__(self, width=192, layers=4):
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.interactions = nn.Sequential(*(Block(width, 6, causal=False) for _ in range(layers)))
        self.energy = nn.Linear(width, 1)

    def forward(self, positions):
        energy = self.energy(self.interactions(self.embed(positions))).sum(dim=(1, 2))
        forces = -torch.autograd.grad(energy.sum(), positions, create_graph=True)[0]
        return energy, forces


class Simulation:
    def __init__(self, model):
        self.model = model
        self.positions = torch.randn(MOLECULES, BEADS, 3).cuda()
        self.velocities = torch.zeros(MOLECULES, BEADS, 3).cuda()

    def calculate(self):
        at = self.positions.detach().requires_grad_()
        energy, forces = self.model(at)
        if FIXED:
            forces = forces.detach()
        return energy.detach(), forces

    def timestep(self):
        _, forces = self.calculate()
        self.velocities = FRICTION * (self.velocities + STEP * forces)
        self.velocities = self.velocities + 0.01 * torch.randn_like(self.velocities)
        self.positions = self.positions + STEP * self.velocities

    def simulate(self, steps):
        frames = []
        for i in range(steps):
            self.timestep()
            if i % 10 == 0:
                frames.append(self.positions.detach().cpu())
        return frames


print(len(Simulation(Potential().cuda()).simulate(120)), "frames")
