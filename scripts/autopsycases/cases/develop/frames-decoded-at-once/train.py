"""Generates a short video: denoises the latents of all frames, then decodes them."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
FRAMES, HEIGHT, WIDTH = 25, 576, 1024
DECODING_T = 1 if FIXED else 14


class SpatioTemporal(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, a), nn.Conv2d(a, b, 3, 1, 1)
        self.norm2, self.conv2 = nn.GroupNorm(32, b), nn.Conv2d(b, b, 3, 1, 1)
        self.temporal = nn.Conv3d(b, b, (3, 1, 1), 1, (1, 0, 0))
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        x = self.skip(x) + self.conv2(F.silu(self.norm2(y)))
        return x + self.temporal(x.transpose(0, 1)[None])[0].transpose(0, 1)


class VideoDecoder(nn.Module):
    def __init__(self, widths=(512, 512, 256, 128)):
        super().__init__()
        self.conv_in = nn.Conv2d(4, widths[0], 3, 1, 1)
        self.stages = nn.ModuleList(
            nn.Sequential(SpatioTemporal(a, b), SpatioTemporal(b, b))
            for a, b in zip((widths[0],) + widths, widths)
        )
        self.conv_out = nn.Conv2d(widths[-1], 3, 3, 1, 1)

    def forward(self, z):
        x = self.conv_in(z)
        for i, stage in enumerate(self.stages):
            x = stage(x)
            if i < len(self.stages) - 1:
                x = F.interpolate(x, scale_factor=2.0)
        return self.conv_out(x)


class Denoiser(nn.Module):
    def __init__(self, width=320):
        super().__init__()
        self.conv_in, self.conv_out = nn.Conv2d(8, width, 3, 1, 1), nn.Conv2d(width, 4, 3, 1, 1)
        self.blocks = nn.ModuleList(SpatioTemporal(width, width) for _ in range(6))

    def forward(self, x):
        x = self.conv_in(x)
        for block in self.blocks:
            x = block(x)
        return self.conv_out(x)


class DiffusionEngine:
    def __init__(self):
        self.model = Denoiser().half().cuda().eval()
        self.first_stage_model = VideoDecoder().half().cuda().eval()
        self.en_and_decode_n_samples_a_time = DECODING_T

    def sample(self, steps=4):
        x = torch.randn(FRAMES, 4, HEIGHT // 8, WIDTH // 8).half().cuda()
        image = torch.randn_like(x)
        for _ in range(steps):
            x = x - 0.1 * self.model(torch.cat([x, image], dim=1))
        return x

    def decode_first_stage(self, z):
        return torch.cat(
            [self.first_stage_model(part) for part in z.split(self.en_and_decode_n_samples_a_time)]
        )


with torch.no_grad():
    engine = DiffusionEngine()
    for video in range(2):
        z = engine.sample()
        print(video, engine.decode_first_stage(z).shape)
