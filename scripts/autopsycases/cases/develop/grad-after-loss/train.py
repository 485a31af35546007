"""Trains a transformer on point clouds; its transport loss switches gradients off for its own iterations."""

import sys

import torch
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv


class Deformation(nn.Module):
    """Where each point of a cloud moves to."""

    def __init__(self, width=256, layers=4):
        super().__init__()
        self.points = nn.Linear(3, width)
        self.blocks = nn.Sequential(*(Block(width, 8, causal=False) for _ in range(layers)))
        self.moves = nn.Linear(width, 3)

    def forward(self, clouds):
        return clouds + self.moves(self.blocks(self.points(clouds)))


class SamplesLoss(nn.Module):
    def loop(self, costs, epsilon=0.05, iterations=10):
        before = torch.is_grad_enabled()
        torch.autograd.set_grad_enabled(False)
        f = g = torch.zeros(costs.shape[:2], device=costs.device)
        for _ in range(iterations):
            f = -epsilon * torch.logsumexp((g[:, None, :] - costs) / epsilon, dim=2)
            g = -epsilon * torch.logsumexp((f[:, :, None] - costs) / epsilon, dim=1)
        torch.autograd.set_grad_enabled(before if FIXED else True)
        return -epsilon * torch.logsumexp((g[:, None, :] - costs) / epsilon, dim=2), g

    def forward(self, x, y):
        f, g = self.loop(torch.cdist(x, y))
        return (f.mean(1) + g.mean(1)).mean()


model, criterion = Deformation().cuda(), SamplesLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def clouds():
    return torch.rand(16, 1024, 3).cuda(), torch.rand(16, 1024, 3).cuda()


def validate(batches=12):
    model.eval()
    total = 0
    with torch.no_grad():
        for _ in range(batches):
            source, target = clouds()
            total += criterion(model(source), target)
    model.train()
    return (total / batches).item()


for epoch in range(2):
    for step in range(4):
        source, target = clouds()
        loss = criterion(model(source), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, validate())
