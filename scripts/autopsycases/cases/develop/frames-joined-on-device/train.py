"""Decodes the latents of a long generated video, a few frames at a time."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Decoder(nn.Module):
    """From [batch, 16, time, height, width] to frames four times as many and eight times as large."""

    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Conv3d(16, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv3d(width, width, 3, padding=1) for _ in range(3))
        self.last = nn.Conv3d(width, 3, 3, padding=1)

    def forward(self, z):
        x = self.first(z)
        for i, block in enumerate(self.blocks):
            x = F.interpolate(x, scale_factor=(2 if i < 2 else 1, 2, 2), mode="nearest")
            x = F.silu(block(x))
        return self.last(x)


class DecodingStage:
    """Turns latents into frames with values from 0 to 1."""

    def __init__(self, vae):
        self.vae = vae

    def scale(self, latents):
        return latents / 0.18 + 0.1

    @torch.no_grad()
    def decode(self, latents):
        images = []
        for chunk in self.scale(latents).split(1, dim=2):
            image = (self.vae(chunk) / 2 + 0.5).clamp(0, 1)
            images.append(image.cpu() if FIXED else image)
        return torch.cat(images, dim=2)


stage = DecodingStage(Decoder().cuda().eval())
video = stage.decode(torch.randn(1, 16, 60, 60, 104, device="cuda"))
print(video.shape)
