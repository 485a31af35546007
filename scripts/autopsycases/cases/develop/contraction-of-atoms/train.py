"""Computes the forces on the atoms of a large configuration with an equivariant network."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
ATOMS, NEIGHBOURS, CHANNELS, ORDER, PART = 900, 40, 128, 16, 100


class SymmetricContraction(nn.Module):
    def __init__(self, paths=23, elements=10):
        super().__init__()
        self.register_buffer("u3", torch.randn(ORDER, ORDER, ORDER, paths))
        self.w3 = nn.Parameter(torch.randn(elements, paths, CHANNELS))

    def contract(self, x, y):
        out = torch.einsum("ijkp,epc,bck,be->bcij", self.u3, self.w3, x, y)
        out = torch.einsum("bcij,bcj->bci", out, x)
        return torch.einsum("bci,bci->bc", out, x)

    def forward(self, x, y):
        if not FIXED:
            return self.contract(x, y)
        parts = zip(x.split(PART), y.split(PART))
        return torch.cat([checkpoint(self.contract, a, b, use_reentrant=False) for a, b in parts])


class Interaction(nn.Module):
    def __init__(self):
        super().__init__()
        self.radial = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, CHANNELS))
        self.contraction = SymmetricContraction()
        self.update = nn.Linear(CHANNELS, CHANNELS)

    def forward(self, h, y, lengths, senders, receivers):
        basis = torch.sin(lengths * torch.arange(1, 9, device=h.device))
        harmonics = torch.cos(lengths * torch.arange(ORDER, device=h.device))
        messages = (self.radial(basis) * h[senders])[:, :, None] * harmonics[:, None]
        x = torch.zeros(ATOMS, CHANNELS, ORDER, device=h.device).index_add(0, receivers, messages)
        return h + self.update(self.contraction(x, y))


class MACE(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(10, CHANNELS)
        self.layers = nn.ModuleList(Interaction() for _ in range(layers))
        self.energy = nn.Linear(CHANNELS, 1)

    def forward(self, species, positions, senders, receivers):
        lengths = (positions[receivers] - positions[senders]).norm(dim=1, keepdim=True)
        h, y = self.embedding(species), torch.nn.functional.one_hot(species, 10).float()
        for layer in self.layers:
            h = layer(h, y, lengths, senders, receivers)
        return self.energy(h).sum()


model = MACE().cuda()
for configuration in range(2):
    positions = torch.rand(ATOMS, 3).cuda().requires_grad_()
    species = torch.randint(10, (ATOMS,)).cuda()
    senders = torch.randint(ATOMS, (ATOMS * NEIGHBOURS,)).cuda()
    receivers = torch.arange(ATOMS).repeat_interleave(NEIGHBOURS).cuda()
    energy = model(species, positions, senders, receivers)
    forces = -torch.autograd.grad(energy, positions)[0]
    print(configuration, energy.item(), forces.shape)
