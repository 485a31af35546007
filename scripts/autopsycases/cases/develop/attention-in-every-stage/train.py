"""Trains a diffusion model on large images with attention in each of its stages."""

import sys
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH = 2 if FIXED else 8


class Down(nn.Module):
    def __init__(self, channels, to):
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, to, 3, padding=1)
        )
        self.second = nn.Sequential(nn.GroupNorm(8, to), nn.SiLU(), nn.Conv2d(to, to, 3, padding=1))
        self.skip = nn.Conv2d(channels, to, 1)
        self.norm = nn.GroupNorm(8, to)
        self.attention = nn.MultiheadAttention(to, 4, batch_first=True)
        self.down = nn.Conv2d(to, to, 4, 2, 1)

    def forward(self, x):
        x = self.second(self.first(x)) + self.skip(x)
        sequence = self.norm(x).flatten(2).transpose(1, 2)
        seen, _ = self.attention(sequence, sequence, sequence)
        x = x + seen.transpose(1, 2).reshape(x.shape)
        return self.down(x)


class Network(nn.Module):
    def __init__(self, channels=3, widths=(32, 64, 128, 256)):
        super().__init__()
        self.stem = nn.Conv2d(channels, widths[0], 3, 2, 1)
        self.downs = nn.ModuleList(Down(a, b) for a, b in pairwise(widths))
        self.up = nn.Sequential(
            *(nn.ConvTranspose2d(b, a, 4, 2, 1) for a, b in reversed(list(pairwise(widths)))),
            nn.ConvTranspose2d(widths[0], channels, 4, 2, 1),
        )

    def forward(self, x):
        x = self.stem(x)
        for down in self.downs:
            x = down(x)
        return self.up(x)


model = Network().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(3):
    images = torch.rand(BATCH, 3, 144, 160).cuda()
    noise = torch.randn_like(images)
    loss = F.mse_loss(model(images + noise), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step)
