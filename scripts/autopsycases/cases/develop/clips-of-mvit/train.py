"""Trains a multiscale vision transformer on clips."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

FIXED = "--fixed" in sys.argv
BATCH, FRAMES, SIZE, CLASSES = 8, 8, 56, 80  # after the embedding of patches
STAGES = [(96, 1, 1), (192, 2, 2), (384, 4, 11), (768, 8, 2)]  # width, heads, blocks


class PoolingAttention(nn.Module):
    """Keys and values are pooled to 7 by 7, and in the first block of a stage queries to half the size."""

    def __init__(self, width, to, heads, shrink):
        super().__init__()
        self.heads, self.shrink = heads, shrink
        self.qkv = nn.Linear(width, 3 * to)
        self.out = nn.Linear(to, to)

    def pool(self, x, shape, size):
        b, n, w = x.shape
        x = F.adaptive_avg_pool3d(x.transpose(1, 2).unflatten(2, shape), size)
        return x.flatten(2).transpose(1, 2)

    def forward(self, x, shape):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        to = shape
        if self.shrink:
            to = (shape[0], shape[1] // 2, shape[2] // 2)
            q = self.pool(q, shape, to)
        k, v = (self.pool(p, shape, (shape[0], 7, 7)) for p in (k, v))
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (q, k, v))
        attention = F.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, dim=-1)
        return self.out((attention @ v).transpose(1, 2).flatten(2)), to


class MultiscaleBlock(nn.Module):
    def __init__(self, width, to, heads, shrink):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(to)
        self.attention = PoolingAttention(width, to, heads, shrink)
        self.mlp = nn.Sequential(nn.Linear(to, 4 * to), nn.GELU(), nn.Linear(4 * to, to))
        self.skip = nn.Linear(width, to) if width != to else nn.Identity()

    def forward(self, x, shape):
        y, to = self.attention(self.norm1(x), shape)
        skip = self.skip(x)
        if to != shape:
            skip = self.attention.pool(skip, shape, to)
        x = skip + y
        return x + self.mlp(self.norm2(x)), to


class MViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv3d(3, STAGES[0][0], (3, 7, 7), (2, 4, 4), (1, 3, 3))
        blocks, last = [], STAGES[0][0]
        for width, heads, count in STAGES:
            for i in range(count):
                blocks.append(MultiscaleBlock(last, width, heads, width > last))
                last = width
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(last), nn.Linear(last, CLASSES)

    def forward(self, clips):
        x = self.patches(clips)
        shape = tuple(x.shape[2:])
        x = x.flatten(2).transpose(1, 2)
        for block in self.blocks:
            if FIXED:
                x, shape = checkpoint(block, x, shape, use_reentrant=False)
            else:
                x, shape = block(x, shape)
        return self.head(self.norm(x).mean(dim=1))


model = MViT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(3):
    clips = torch.rand(BATCH, 3, 2 * FRAMES, 4 * SIZE, 4 * SIZE).cuda()
    labels = torch.randint(2, (BATCH, CLASSES)).float().cuda()
    loss = F.binary_cross_entropy_with_logits(model(clips), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
