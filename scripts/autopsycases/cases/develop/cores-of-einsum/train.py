"""Classifies images with a tensor network: one large core meets a vector of two for each pixel."""

import string
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
PIXELS, CHANNELS, BATCH, SIDE = 16, 2, 12, 25


class Cores(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.Parameter(torch.randn(*[2] * PIXELS, CHANNELS, dtype=torch.float64))

    def forward(self, pixels):
        letters = string.ascii_lowercase[:PIXELS]
        small, large = [f"xyz{letter}" for letter in letters], letters + "w"
        if FIXED:
            return torch.einsum(",".join([large, *small]) + "->xyzw", self.core, *pixels)
        return torch.einsum(",".join([*small, large]) + "->xyzw", *pixels, self.core)


model = nn.Sequential(Cores()).cuda()
head = nn.Linear(SIDE * SIDE * CHANNELS, 10, dtype=torch.float64).cuda()
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
with torch.backends.opt_einsum.flags(enabled=False):
    for step in range(3):
        images = torch.rand(PIXELS, BATCH, SIDE, SIDE, dtype=torch.float64).cuda()
        pixels = list(torch.stack([images, 1 - images], dim=-1))
        logits = head(model(pixels).flatten(1))
        loss = F.cross_entropy(logits, torch.randint(10, (BATCH,)).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
