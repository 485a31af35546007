"""Measures how close restored photographs are to their originals with a metric that compares patches."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class PatchMetric(nn.Module):
    """Compares the features of all patches of two images and weighs them."""

    def __init__(self, stride=9, size=64):
        super().__init__()
        self.stride, self.size = stride, size
        layers, channels = [], 3
        for width in (64, 64, 128, 128, 256):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels = width
        self.features = nn.Sequential(*layers)
        self.score = nn.Linear(4 * channels, 1)
        self.weight = nn.Linear(4 * channels, 1)

    def crop_patches(self, images):
        rows = images.unfold(2, self.size, self.stride)
        patches = rows.unfold(3, self.size, self.stride).permute(0, 2, 3, 1, 4, 5)
        if FIXED:
            for row in patches.flatten(0, 1):
                yield row.contiguous()
        else:
            yield patches.reshape(-1, images.shape[1], self.size, self.size)

    def forward(self, x, y):
        scores, weights = [], []
        for a, b in zip(self.crop_patches(x), self.crop_patches(y)):
            for part, other in zip(a.split(64), b.split(64)):
                difference = (self.features(part) - self.features(other)).flatten(1)
                scores.append(self.score(difference))
                weights.append(self.weight(difference).relu() + 1e-6)
        scores, weights = torch.cat(scores), torch.cat(weights)
        return (scores * weights).sum() / weights.sum()


metric = PatchMetric().cuda().eval()
for _ in range(2):
    restored, original = torch.rand(1, 3, 2000, 3000).cuda(), torch.rand(1, 3, 2000, 3000).cuda()
    with torch.no_grad():
        print(metric(restored, original).item())
