"""Trains a completion of point clouds and evaluates it on whole scans, by the chamfer distance."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Completion(nn.Module):
    """A point cloud to a finer one: [batch, points, 3] to [batch, 2 * points, 3]."""

    def __init__(self, width=256, layers=6):
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 6)

    def forward(self, points):
        x = self.embed(points)
        for layer in self.layers:
            x = x + layer(x)
        return (points.repeat(1, 1, 2) + self.head(x)).reshape(len(points), -1, 3)


def chamfer(x, y):
    """The mean squared distance to the nearest point, both ways."""
    xx, yy = (x * x).sum(-1), (y * y).sum(-1)
    if FIXED:  # rows a thousand at a time
        there, back = [], torch.full_like(yy, float("inf"))
        for i in range(0, x.shape[1], 1000):
            part = xx[:, i : i + 1000, None] + yy[:, None] - 2 * x[:, i : i + 1000] @ y.transpose(1, 2)
            there.append(part.amin(2))
            back = torch.minimum(back, part.amin(1))
        return torch.cat(there, 1).mean() + back.mean()
    zz = torch.bmm(x, y.transpose(2, 1))
    distances = xx[:, :, None] + yy[:, None] - 2 * zz
    return distances.amin(2).mean() + distances.amin(1).mean()


def scan(batch, points):
    return torch.rand(batch, points // 2, 3).cuda(), torch.rand(batch, points, 3).cuda()


model = Completion().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(6):
    partial, whole = scan(8, 2048)
    loss = F.mse_loss(model(partial), whole)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    for step in range(3):
        partial, whole = scan(2, 24000)
        print(step, chamfer(model(partial), whole).item())
