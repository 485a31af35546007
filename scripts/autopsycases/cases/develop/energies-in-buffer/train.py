"""Moves ions: energies and forces of long range from a sum over waves, with a buffer for the energies."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class EwaldModelWrapper(nn.Module):
    """The energies of systems by waves, and the forces by the formula for their derivative."""

    def __init__(self, waves=600):
        super().__init__()
        vectors = torch.randn(waves, 3)
        self.register_buffer("vectors", vectors)
        self.register_buffer("weights", torch.exp(-vectors.square().sum(dim=1)))
        self._energies_buf = None

    def structure_factors(self, terms, batch_idx, systems):
        return terms.new_zeros(systems, terms.shape[1]).index_add_(0, batch_idx, terms)

    def forward(self, positions, charges, batch_idx, systems):
        if self._energies_buf is None:
            self._energies_buf = positions.new_zeros(systems)
        positions = positions.requires_grad_()
        phase = positions @ self.vectors.T
        cos, sin = phase.cos() * charges[:, None], phase.sin() * charges[:, None]
        real = self.structure_factors(cos, batch_idx, systems)
        imaginary = self.structure_factors(sin, batch_idx, systems)
        per_atom_energies = (cos * real[batch_idx] + sin * imaginary[batch_idx]) @ self.weights
        self._energies_buf.zero_()
        self._energies_buf.scatter_add_(0, batch_idx, per_atom_energies)
        energies = self._energies_buf.clone()
        if FIXED:
            self._energies_buf.detach_()
        with torch.no_grad():
            forces = 2 * (sin * real[batch_idx] - cos * imaginary[batch_idx]) * self.weights @ self.vectors
        return {"energies": energies, "forces": forces}


class Dynamics:
    def __init__(self, model, positions, charges, batch_idx, systems):
        self.model, self.charges, self.batch_idx, self.systems = (
            model,
            charges,
            batch_idx,
            systems,
        )
        self.positions, self.velocities = positions, torch.zeros_like(positions)
        self.forces = None

    def step(self, dt=0.001):
        outputs = self.model(self.positions, self.charges, self.batch_idx, self.systems)
        with torch.no_grad():
            self.velocities += dt * outputs["forces"]
            self.positions = self.positions.detach() + dt * self.velocities
        return outputs["energies"]

    def run(self, steps):
        for step in range(steps):
            energies = self.step()
            if step % 50 == 0:
                print(step, energies.mean().item())


systems, atoms = 32, 96
batch_idx = torch.arange(systems).repeat_interleave(atoms).cuda()
positions, charges = (
    torch.rand(systems * atoms, 3).cuda(),
    torch.randn(systems * atoms).cuda(),
)
Dynamics(EwaldModelWrapper().cuda(), positions, charges, batch_idx, systems).run(steps=400)
