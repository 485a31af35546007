"""Trains a generator of windows of attention at 1024 pixels."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv


class Windows(nn.Module):
    """Blocks of attention within windows of 8 by 8."""

    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, 4, causal=False) for _ in range(depth))

    def forward(self, x):
        batch, width, high, wide = x.shape
        x = x.unflatten(3, (wide // 8, 8)).unflatten(2, (high // 8, 8))
        x = x.permute(0, 2, 4, 3, 5, 1).reshape(-1, 64, width)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if FIXED else block(x)
        x = x.view(batch, high // 8, wide // 8, 8, 8, width)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(batch, width, high, wide)


class Generator(nn.Module):
    def __init__(self, widths=(512, 256, 128, 64, 32), depth=4):
        super().__init__()
        self.begin = nn.Parameter(torch.randn(1, widths[0], 32, 32))
        self.stages = nn.ModuleList(Windows(w, depth) for w in widths)
        self.larger = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in zip(widths, widths[1:]))
        self.image = nn.ConvTranspose2d(widths[-1], 3, 2, 2)

    def forward(self, noise):
        x = self.begin + noise
        for k, stage in enumerate(self.stages):
            x = stage(x)
            if k < len(self.larger):
                x = self.larger[k](x)
        return self.image(x)


generator = Generator().cuda()
optimizer = torch.optim.Adam(generator.parameters(), lr=5e-5)
for step in range(3):
    image = generator(torch.randn(2, 512, 32, 32).cuda())
    loss = F.softplus(-image.mean(dim=(1, 2, 3))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
