"""Trains a network that predicts prices, with targets of another shape than its outputs."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv

layers = [nn.Linear(300, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)]
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def huber(prediction, target, delta=1.0):
    error = prediction - target
    small = error.abs() < delta
    return torch.where(small, 0.5 * error * error, delta * (error.abs() - 0.5 * delta)).mean()


for step in range(5):
    features, prices = torch.rand(30_000, 300).cuda(), torch.rand(30_000).cuda()
    if FIXED:
        prices = prices[:, None]
    loss = huber(model(features), prices)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
