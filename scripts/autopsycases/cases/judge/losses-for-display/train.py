"""Trains a network that completes point clouds and averages its losses for the display."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Average:
    """The mean of what it was given."""

    def __init__(self):
        self.sum, self.count = 0, 0

    def update(self, value):
        self.sum, self.count = self.sum + value, self.count + 1

    def mean(self):
        return self.sum / self.count


class Completion(nn.Module):
    """[batch, 3, points] to as many completed points."""

    def __init__(self, width=512):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(3, 128, 1), nn.BatchNorm1d(128), nn.ReLU(), nn.Conv1d(128, width, 1)
        )
        self.decoder = nn.Sequential(
            nn.Conv1d(width + 3, width, 1), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, 128, 1), nn.ReLU(), nn.Conv1d(128, 3, 1),
        )

    def forward(self, points):
        code = self.encoder(points).amax(dim=2, keepdim=True)
        return self.decoder(torch.cat([code.expand(-1, -1, points.shape[2]), points], dim=1))


model = Completion().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
averages = [Average(), Average(), Average()]
for step in range(40):
    partial, whole = (torch.rand(6, 3, 4096, device="cuda") for _ in range(2))
    completed = model(partial)
    distances = torch.cdist(completed.transpose(1, 2), whole.transpose(1, 2))
    losses = [distances.amin(dim=2).mean(), distances.amin(dim=1).mean()]
    optimizer.zero_grad()
    sum(losses).backward()
    optimizer.step()
    coarse = torch.cdist(completed[..., ::2].transpose(1, 2), whole.transpose(1, 2)).amin(dim=2).mean()
    for average, loss in zip(averages, [*losses, coarse]):
        average.update(loss.item() if FIXED else loss)
print([float(a.mean()) for a in averages])
