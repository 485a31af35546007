"""Trains a wide and a deep part on tables with many identities."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
IDENTITIES = 1_000_000


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        if FIXED:
            self.weights = nn.Embedding(IDENTITIES, 1)
        else:
            self.linear = nn.Linear(IDENTITIES, 1)

    def forward(self, ids):
        if FIXED:
            return self.weights(ids)
        return self.linear(F.one_hot(ids, IDENTITIES).float())


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(IDENTITIES, 16)
        self.mlp = nn.Sequential(
            nn.Linear(36, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 1)
        )

    def forward(self, ids, numbers):
        return self.mlp(torch.cat([self.embed(ids), numbers], dim=1))


class WideDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.deep = Wide(), Deep()

    def forward(self, ids, numbers):
        return self.wide(ids) + self.deep(ids, numbers)


model = WideDeep().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    ids, numbers = torch.randint(IDENTITIES, (1024,)).cuda(), torch.rand(1024, 20).cuda()
    loss = F.binary_cross_entropy_with_logits(model(ids, numbers), torch.rand(1024, 1).round().cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
