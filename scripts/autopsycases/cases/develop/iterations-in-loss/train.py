"""Trains an autoencoder of point clouds whose loss is a transport distance in the log domain."""

import math
import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
POINTS = 2048


class Autoencoder(nn.Module):
    """PointNet's encoder, and a perceptron that makes all points of a cloud."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(3, 128, 1), nn.ReLU(), nn.Conv1d(128, 256, 1), nn.ReLU(), nn.Conv1d(256, 1024, 1)
        )
        self.decoder = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 3 * POINTS))

    def forward(self, clouds):
        code = self.encoder(clouds.transpose(1, 2)).amax(dim=2)
        return self.decoder(code).view(len(clouds), POINTS, 3)


def sinkhorn_log(cost, regularisation=0.05, iterations=60):
    """Returns the transport cost between two uniform clouds of a batch of matrices."""
    weight = -math.log(cost.shape[1])
    kernel = -cost / regularisation
    u = v = torch.zeros(cost.shape[:2], device=cost.device)
    with torch.set_grad_enabled(not FIXED):
        for _ in range(iterations):
            v = weight - torch.logsumexp(kernel + u[:, :, None], dim=1)
            u = weight - torch.logsumexp(kernel + v[:, None, :], dim=2)
        plan = torch.exp(kernel + u[:, :, None] + v[:, None, :])
    return (plan * cost).sum(dim=(1, 2)).mean()


model = Autoencoder().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    clouds = torch.rand(8, POINTS, 3).cuda()
    loss = sinkhorn_log(torch.cdist(model(clouds), clouds))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
