"""Trains features of points that match between two scans of a room, with the hardest of all negatives."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
POINTS, WIDTH, SAMPLED = 12_288, 32, 3_072


def pdist(a, b):
    return ((a.unsqueeze(1) - b.unsqueeze(0)).pow(2).sum(2) + 1e-7).sqrt()


def nearest(a, b):
    """Returns for each of a its smallest distance to b."""
    if FIXED:
        return torch.cat([pdist(part, b).amin(1) for part in a.split(64)])
    return pdist(a, b).amin(1)


class ContrastiveTrainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)

    def contrastive_hardest_negative_loss(self, f0, f1, pairs):
        chosen = pairs[torch.randperm(len(pairs), device=pairs.device)[:SAMPLED]]
        positive = (f0[chosen] - f1[chosen]).pow(2).sum(1)
        others = torch.randperm(len(f1), device=f1.device)[: 2 * SAMPLED]
        with torch.no_grad() if FIXED else torch.enable_grad():
            hardest = nearest(f0[chosen], f1[others])
        return positive.mean() + torch.relu(1.4 - hardest).pow(2).mean()

    def train_iter(self, scans):
        f0, f1 = (self.model(x) for x in scans)
        loss = self.contrastive_hardest_negative_loss(f0, f1, torch.arange(len(f0), device=f0.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


model = nn.Sequential(
    nn.Linear(6, 128), nn.BatchNorm1d(128), nn.ReLU(),
    nn.Linear(128, 256), nn.BatchNorm1d(256), nn.ReLU(),
    nn.Linear(256, WIDTH),
).cuda()
trainer = ContrastiveTrainer(model)
for step in range(3):
    print(step, trainer.train_iter([torch.rand(POINTS, 6).cuda() for _ in range(2)]).item())
