"""Trains a forecaster with a loss over alignments of series (soft-DTW)."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
STEPS, WIDTH = 320, 48


def distances(x, y):
    if FIXED:
        return (x**2).sum(-1)[:, :, None] + (y**2).sum(-1)[:, None] - 2 * x @ y.mT
    n, m, d = x.shape[1], y.shape[1], x.shape[2]
    x = x.unsqueeze(2).expand(-1, n, m, d)
    y = y.unsqueeze(1).expand(-1, n, m, d)
    return torch.pow(x - y, 2).sum(3)


class SoftDTW(nn.Module):
    """The soft minimum over bands of the matrix stands in for the recursion, which needs its own kernel."""

    def __init__(self, gamma=1.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, x, y):
        costs = distances(x, y)
        return -self.gamma * torch.logsumexp(-costs / self.gamma, dim=2).mean(dim=1)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(WIDTH, 256, num_layers=2, batch_first=True)
        self.decoder = nn.Linear(256, WIDTH)

    def forward(self, x):
        return self.decoder(self.encoder(x)[0])


model = Forecaster().cuda()
criterion = SoftDTW(gamma=0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    x, y = torch.rand(2, 100, STEPS, WIDTH).cuda()
    loss = criterion(model(x), y).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
