"""Draws images with a latent diffusion model and decodes them."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet
from torch import nn

FIXED = "--fixed" in sys.argv
IMAGES = 16


class Residual(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, a), nn.Conv2d(a, b, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(32, b), nn.Conv2d(b, b, 3, padding=1)
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class Up(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, layers, channels = nn.Conv2d(4, 512, 3, padding=1), [], 512
        for i, to in enumerate((512, 512, 256, 128)):
            layers += [Residual(channels, to), Residual(to, to)] + ([Up(to)] if i < 3 else [])
            channels = to
        self.layers = nn.Sequential(*layers)
        self.norm, self.last = nn.GroupNorm(32, 128), nn.Conv2d(128, 3, 3, padding=1)

    def forward(self, z):
        return self.last(F.silu(self.norm(self.layers(self.first(z)))))


class Pipeline:
    def __init__(self):
        self.unet = UNet(channels=4, classes=4, width=128, levels=3).cuda().half().eval()
        self.vae = Decoder().cuda().half().eval()

    def decode_latents(self, latents):
        latents = latents / 0.18215
        if FIXED:
            return torch.cat([self.vae(z.unsqueeze(0)).float().cpu() for z in latents])
        return self.vae(latents).float().cpu()

    @torch.no_grad()
    def __call__(self, images, steps=6):
        latents = torch.randn(images, 4, 64, 64, device="cuda", dtype=torch.half)
        for _ in range(steps):
            latents = latents - 0.1 * self.unet(latents)
        return self.decode_latents(latents)


pipeline = Pipeline()
for n in (1, IMAGES):
    print(pipeline(n).shape)
