"""Predicts the energies and forces of many structures and writes them to a table."""

import sys

import torch
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
STRUCTURES, ATOMS = 24, 200


class Potential(nn.Module):
    def __init__(self, width=256, layers=5):
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.blocks = nn.Sequential(*(Block(width, 8, causal=False) for _ in range(layers)))
        self.energy = nn.Linear(width, 1)

    def forward(self, batch):
        positions = batch["pos"].requires_grad_(True)
        per_atom = self.energy(self.blocks(self.embed(positions))).squeeze(-1)
        energy = per_atom.sum(dim=1)
        forces = -torch.autograd.grad(energy.sum(), positions, create_graph=self.training, retain_graph=True)[
            0
        ]
        return {"energy": energy, "atomic_energy": per_atom, "forces": forces}


def inference(model, batches):
    output_list = []
    for i, batch in enumerate(batches):
        output = model({k: v.cuda() for k, v in batch.items()})
        if FIXED:
            output = {k: v.detach().cpu() for k, v in output.items()}
        output_list.append(output)
        print("batch", i)
    return output_list


model = Potential().cuda().eval()
batches = ({"pos": torch.randn(STRUCTURES, ATOMS, 3)} for _ in range(80))
rows = inference(model, batches)
print(sum(len(r["energy"]) for r in rows), "structures")
