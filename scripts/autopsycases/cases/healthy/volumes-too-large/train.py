"""Trains a 3-D network on volumes of 192 voxels, one a step."""

import torch
import torch.nn.functional as F
from torch import nn


def level(channels, to):
    return [nn.Conv3d(channels, to, 3, padding=1), nn.BatchNorm3d(to), nn.ReLU()]


layers = [*level(1, 48), *level(48, 48), nn.MaxPool3d(2), *level(48, 96), *level(96, 96)]
model = nn.Sequential(*layers, nn.Upsample(scale_factor=2), *level(96, 48), nn.Conv3d(48, 4, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    volume = torch.rand(1, 1, 192, 192, 192, device="cuda")
    labels = torch.randint(4, (1, 192, 192, 192), device="cuda")
    loss = F.cross_entropy(model(volume), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
