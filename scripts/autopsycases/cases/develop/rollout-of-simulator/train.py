"""Finds initial velocities by differentiating through the whole rollout of a learned simulator."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
PARTICLES, NEIGHBOURS, WIDTH, STEPS = 3000, 12, 128, 120


def mlp(to_hidden, to):
    return nn.Sequential(nn.Linear(to_hidden, WIDTH), nn.ReLU(), nn.Linear(WIDTH, to), nn.LayerNorm(to))


class Interaction(nn.Module):
    def __init__(self):
        super().__init__()
        self.edge, self.node = mlp(3 * WIDTH, WIDTH), mlp(2 * WIDTH, WIDTH)

    def forward(self, nodes, edges, senders, receivers):
        edges = edges + self.edge(torch.cat([nodes[senders], nodes[receivers], edges], dim=-1))
        gathered = torch.zeros_like(nodes).index_add(0, receivers, edges)
        return nodes + self.node(torch.cat([nodes, gathered], dim=-1)), edges


class Simulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes, self.edges = mlp(6, WIDTH), mlp(3, WIDTH)
        self.interactions = nn.ModuleList(Interaction() for _ in range(4))
        self.accelerations = nn.Linear(WIDTH, 3)

    def forward(self, positions, velocities):
        senders = torch.arange(PARTICLES, device="cuda").repeat_interleave(NEIGHBOURS)
        receivers = torch.arange(PARTICLES * NEIGHBOURS, device="cuda") % PARTICLES
        nodes = self.nodes(torch.cat([positions, velocities], dim=-1))
        edges = self.edges(positions[senders] - positions[receivers])
        for interaction in self.interactions:
            nodes, edges = interaction(nodes, edges, senders, receivers)
        velocities = velocities + 0.01 * self.accelerations(nodes)
        return positions + 0.01 * velocities, velocities


simulator = Simulator().cuda()
for p in simulator.parameters():
    p.requires_grad_(False)
start, wanted = (torch.rand(PARTICLES, 3).cuda() for _ in range(2))
velocities = torch.zeros(PARTICLES, 3, device="cuda", requires_grad=True)
optimizer = torch.optim.Adam([velocities], lr=0.1)

for attempt in range(2):
    positions, v = start, velocities
    for step in range(STEPS):
        if FIXED:
            positions, v = checkpoint(simulator, positions, v, use_reentrant=False)
        else:
            positions, v = simulator(positions, v)
    loss = (positions - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
