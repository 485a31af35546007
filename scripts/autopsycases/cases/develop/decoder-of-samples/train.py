"""Trains adapters of a video transformer; now and then it samples a video and decodes it."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
FRAMES, HEIGHT, WIDTH = 9, 60, 104  # of latents: 33 frames of 832 x 480


class Adapted(nn.Module):
    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class VideoTransformer(nn.Module):
    def __init__(self, width=1536, layers=30):
        super().__init__()
        self.patches = nn.Conv3d(16, width, (1, 2, 2), (1, 2, 2))
        self.blocks = nn.ModuleList(Block(width, 12, causal=False) for _ in range(layers))
        self.out = nn.Linear(width, 64)

    def forward(self, latents):
        x = self.patches(latents).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        b, _, f, h, w = latents.shape
        x = self.out(x).view(b, f, h // 2, w // 2, 16, 2, 2)
        return x.permute(0, 4, 1, 2, 5, 3, 6).reshape(b, 16, f, h, w)


class ResidualBlock(nn.Module):
    def __init__(self, channels, to):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, channels), nn.Conv3d(channels, to, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, to), nn.Conv3d(to, to, 3, padding=1)
        self.skip = nn.Conv3d(channels, to, 1) if channels != to else nn.Identity()

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class Decoder(nn.Module):
    """Latents [b, 16, f, h, w] to a video [b, 3, 4f, 8h, 8w]."""

    def __init__(self):
        super().__init__()
        self.conv_in = nn.Conv3d(16, 384, 3, padding=1)
        self.stages = nn.ModuleList(
            ResidualBlock(a, b) for a, b in ((384, 384), (384, 384), (384, 192), (192, 96))
        )
        self.head = nn.Sequential(nn.GroupNorm(8, 96), nn.SiLU(), nn.Conv3d(96, 3, 3, padding=1))

    def forward(self, z):
        x = self.conv_in(z)
        for i, stage in enumerate(self.stages):
            if i:
                x = F.interpolate(x, scale_factor=(2 if i < 3 else 1, 2, 2))
            x = stage(x)
        return self.head(x)


class VAE(nn.Module):
    def __init__(self, tiling):
        super().__init__()
        self.decoder, self.tiling = Decoder(), tiling

    def decode(self, z):
        if not self.tiling:
            return self.decoder(z)
        rows = []
        for row in z.split(20, dim=3):
            rows.append(torch.cat([self.decoder(tile).cpu() for tile in row.split(26, dim=4)], dim=4))
        return torch.cat(rows, dim=3)


torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = VideoTransformer().requires_grad_(False)
    adapters = []
    for block in model.blocks:
        block.attention.qkv = Adapted(block.attention.qkv)
        adapters += [*block.attention.qkv.down.parameters(), *block.attention.qkv.up.parameters()]
    vae = VAE(tiling=FIXED).requires_grad_(False)
optimizer = torch.optim.AdamW(adapters, lr=1e-4)


@torch.no_grad()
def sample(steps=4):
    latents = torch.randn(1, 16, FRAMES, HEIGHT, WIDTH, device="cuda")
    for _ in range(steps):
        latents = latents - model(latents) / steps
    return vae.decode(latents)


for step in range(6):
    clean = torch.randn(1, 16, FRAMES, HEIGHT, WIDTH).cuda()
    noise = torch.randn_like(clean)
    loss = F.mse_loss(model(0.5 * clean + 0.5 * noise), noise - clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        video = sample()
