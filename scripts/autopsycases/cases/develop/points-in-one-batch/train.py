"""Segments everything in an image: masks for a grid of points."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv


class Image(nn.Module):
    """A vision transformer's embedding of an image."""

    def __init__(self, width=768, layers=12):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.ModuleList(Block(width, 12, causal=False) for _ in range(layers))
        self.neck = nn.Conv2d(width, 256, 1)

    def forward(self, images):
        x = self.patches(images)
        high, wide = x.shape[-2:]
        x = x.flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.neck(x.transpose(1, 2).unflatten(2, (high, wide)))


class Masks(nn.Module):
    """Decodes three masks for each point."""

    def __init__(self, width=256):
        super().__init__()
        self.point = nn.Linear(2, width)
        self.tokens = nn.Parameter(torch.zeros(4, width))
        self.blocks = nn.ModuleList(Block(width, 8, causal=False) for _ in range(2))
        self.larger = nn.Sequential(
            nn.ConvTranspose2d(width, 64, 2, 2), nn.GELU(), nn.ConvTranspose2d(64, 32, 2, 2), nn.GELU()
        )
        self.hyper = nn.Linear(width, 32)

    def forward(self, embedding, points):
        n, (high, wide) = len(points), embedding.shape[-2:]
        queries = self.tokens.expand(n, -1, -1) + self.point(points)[:, None]
        x = torch.cat([queries, embedding.flatten(2).transpose(1, 2).expand(n, -1, -1)], dim=1)
        for block in self.blocks:
            x = block(x)
        image = self.larger(x[:, 4:].transpose(1, 2).unflatten(2, (high, wide)))
        return torch.einsum("nqc,nchw->nqhw", self.hyper(x[:, 1:4]), image)


encoder, decoder = Image().cuda().eval(), Masks().cuda().eval()


@torch.no_grad()
def generate(image, size, per_batch):
    embedding = encoder(image)
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 32)] * 2).cuda()
    found = []
    for points in grid.split(per_batch):
        masks = F.interpolate(decoder(embedding, points), size, mode="bilinear") > 0
        found.append(masks.flatten(2).any(dim=2).cpu())
    return torch.cat(found)


generate(torch.rand(1, 3, 1024, 1024).cuda(), (1200, 1800), per_batch=8 if FIXED else 64)
