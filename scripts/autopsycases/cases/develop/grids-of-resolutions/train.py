"""Decodes images of many sizes; the positional encodings of each size are kept for the next time."""

import sys

import torch
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)


class Decoder(nn.Module):
    def __init__(self, width=768, layers=6, patch=8):
        super().__init__()
        self.width, self.patch = width, patch
        self.embed = nn.Conv2d(16, width, 1)
        self.blocks = nn.ModuleList(Block(width, 12, causal=False) for _ in range(layers))
        self.pixels = nn.Linear(width, 3 * patch * patch)
        self.cache = {}

    def positions(self, height, width, like):
        key = (height, width)
        if key not in self.cache:
            if FIXED and len(self.cache) >= 8:
                self.cache.pop(next(iter(self.cache)))
            rates = torch.exp(-torch.arange(self.width // 4, device=like.device) / 50)
            y = torch.arange(height, device=like.device)[:, None] * rates
            x = torch.arange(width, device=like.device)[:, None] * rates
            grid = torch.cat(
                [
                    y.sin()[:, None].expand(-1, width, -1),
                    y.cos()[:, None].expand(-1, width, -1),
                    x.sin()[None].expand(height, -1, -1),
                    x.cos()[None].expand(height, -1, -1),
                ],
                dim=-1,
            )
            self.cache[key] = grid.flatten(0, 1)
        return self.cache[key]

    def forward(self, latents):
        b, _, h, w = latents.shape
        x = self.embed(latents).flatten(2).transpose(1, 2) + self.positions(h, w, latents)
        for block in self.blocks:
            x = block(x)
        return (
            self.pixels(x)
            .view(b, h, w, 3, self.patch, self.patch)
            .permute(0, 3, 1, 4, 2, 5)
            .flatten(4)
            .flatten(2, 3)
        )


decoder = Decoder().cuda().eval()
sizes = [(h, w) for h in range(48, 129, 4) for w in range(48, 129, 4)]
with torch.inference_mode():
    for i in torch.randperm(len(sizes)).tolist():
        h, w = sizes[i]
        images = decoder(torch.randn(1, 16, h, w, device="cuda")).clamp(0, 1).cpu()
        print(i, images.shape)
