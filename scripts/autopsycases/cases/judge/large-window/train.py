"""Trains a 3-D U-Net for abdominal organs on windows of 128 voxels."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WINDOW = 96 if FIXED else 128


def block(channels, to):
    return nn.Sequential(
        nn.Conv3d(channels, to, 3, padding=1), nn.InstanceNorm3d(to), nn.LeakyReLU(),
        nn.Conv3d(to, to, 3, padding=1), nn.InstanceNorm3d(to), nn.LeakyReLU(),
    )


class UNet3D(nn.Module):
    """[batch, 1, depth, height, width] to [batch, classes, depth, height, width]."""

    def __init__(self, classes=14, width=64):
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([1, *sizes], sizes))
        self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in zip(sizes, sizes[1:]))
        self.merge = nn.ModuleList(block(2 * a, a) for a in sizes[:-1])
        self.head = nn.Conv3d(width, classes, 1)

    def forward(self, x):
        skips = []
        for i, down in enumerate(self.down):
            x = down(F.max_pool3d(x, 2) if i else x)
            skips.append(x)
        x = skips.pop()
        for up, merge in zip(reversed(self.up), reversed(self.merge)):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


model = UNet3D().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
for step in range(3):
    volume = torch.rand(2, 1, WINDOW, WINDOW, WINDOW, device="cuda")
    organs = torch.randint(14, (2, WINDOW, WINDOW, WINDOW), device="cuda")
    logits = model(volume)
    dice = F.softmax(logits, dim=1).mean()
    loss = F.cross_entropy(logits, organs) - dice
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
