"""Extracts features of videos with an inflated 3D network, many frames at a time."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class Unit(nn.Sequential):
    def __init__(self, channels, to, kernel, stride=1):
        super().__init__(
            nn.Conv3d(channels, to, kernel, stride=stride, padding=kernel // 2, bias=False),
            nn.BatchNorm3d(to),
            nn.ReLU(),
        )


class Inception(nn.Module):
    def __init__(self, channels, a, b, c):
        super().__init__()
        self.a = Unit(channels, a, 1)
        self.b = nn.Sequential(Unit(channels, b // 2, 1), Unit(b // 2, b, 3))
        self.c = nn.Sequential(nn.MaxPool3d(3, 1, 1), Unit(channels, c, 1))

    def forward(self, x):
        return torch.cat([self.a(x), self.b(x), self.c(x)], dim=1)


class I3D(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            Unit(3, 64, 7, stride=2),
            nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)),
            Unit(64, 64, 1),
            Unit(64, 192, 3),
        )
        self.mixed = nn.Sequential(
            nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)),
            Inception(192, 64, 128, 64),
            Inception(256, 128, 192, 160),
            nn.MaxPool3d(3, 2, 1),
            Inception(480, 192, 208, 112),
            Inception(512, 160, 224, 128),
            nn.MaxPool3d(2, 2),
            Inception(512, 384, 384, 256),
        )

    def extract_features(self, x):
        return self.mixed(self.stem(x)).mean(dim=(3, 4))


def run(model, videos, most=1600):
    for name, frames in videos:
        features = []
        for start in range(0, frames, most):
            inputs = torch.zeros(1, 3, min(most, frames - start), 224, 224).cuda()
            with torch.set_grad_enabled(not FIXED):
                features.append(model.extract_features(inputs).squeeze(0).permute(1, 0).data.cpu())
        print(name, torch.cat(features).shape)


network = I3D().cuda().train(False)
run(network, [("a", 64), ("b", 96), ("c", 80), ("d", 960)])
