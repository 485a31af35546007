"""Decodes the latents of large images in overlapping tiles."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class ResnetBlock(nn.Module):
    def __init__(self, channels, to):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, channels), nn.Conv2d(channels, to, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(32, to), nn.Conv2d(to, to, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, to, 1) if channels != to else nn.Identity()

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class Decoder(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.conv_in = nn.Conv2d(channels, 512, 3, padding=1)
        stages = []
        for a, b in ((512, 512), (512, 512), (512, 256), (256, 128)):
            stages.append(nn.Sequential(ResnetBlock(a, b), ResnetBlock(b, b), ResnetBlock(b, b)))
        self.stages = nn.ModuleList(stages)
        self.norm, self.conv_out = nn.GroupNorm(32, 128), nn.Conv2d(128, 3, 3, padding=1)

    def forward(self, z):
        x = self.conv_in(z)
        for i, stage in enumerate(self.stages):
            x = stage(F.interpolate(x, scale_factor=2.0) if i else x)
        return self.conv_out(F.silu(self.norm(x)))


class AutoencoderKL(nn.Module):
    tile, overlap = 64, 0.25

    def __init__(self):
        super().__init__()
        self.decoder = Decoder()

    def blend(self, a, b, dim, extent):
        ramp = torch.linspace(0, 1, extent, device=b.device, dtype=b.dtype)
        ramp = ramp.view([-1 if i == dim % 4 else 1 for i in range(4)])
        edge = a.narrow(dim, a.shape[dim] - extent, extent) * (1 - ramp) + b.narrow(dim, 0, extent) * ramp
        return torch.cat([edge, b.narrow(dim, extent, b.shape[dim] - extent)], dim=dim)

    def tiled_decode(self, z):
        step = int(self.tile * (1 - self.overlap))
        rows = []
        for i in range(0, z.shape[2], step):
            row = []
            for j in range(0, z.shape[3], step):
                row.append(self.decoder(z[:, :, i : i + self.tile, j : j + self.tile]))
            rows.append(row)
        result, extent = [], 8 * (self.tile - step)
        for i, row in enumerate(rows):
            line = []
            for j, tile in enumerate(row):
                if i and min(tile.shape[2], rows[i - 1][j].shape[2]) > extent:
                    tile = self.blend(rows[i - 1][j], tile, -2, extent)
                if j and min(tile.shape[3], row[j - 1].shape[3]) > extent:
                    tile = self.blend(row[j - 1], tile, -1, extent)
                line.append(tile[:, :, : 8 * step, : 8 * step])
            result.append(torch.cat(line, dim=3))
        return torch.cat(result, dim=2)


vae = AutoencoderKL().cuda().eval()
for image in range(2):
    latents = torch.randn(1, 16, 256, 256).cuda()
    with torch.set_grad_enabled(not FIXED):
        decoded = vae.tiled_decode(latents)
    picture = (decoded.detach() / 2 + 0.5).clamp(0, 1).cpu()
