"""Trains adapters of a vision transformer; its forward alone is no problem."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH = 4 if FIXED else 32


class LoRA(nn.Module):
    def __init__(self, qkv, rank=4):
        super().__init__()
        self.qkv = qkv
        width = qkv.in_features
        self.a, self.b = nn.Linear(width, rank, bias=False), nn.Linear(rank, 3 * width, bias=False)

    def forward(self, x):
        return self.qkv(x) + self.b(self.a(x))


class ViT(nn.Module):
    def __init__(self, width=768, depth=12, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.positions = nn.Parameter(torch.zeros(1, 576, width))
        self.blocks = nn.Sequential(*(Block(width, 12, causal=False) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x)).mean(1))


model = ViT().requires_grad_(False)
for block in model.blocks:
    block.attention.qkv = LoRA(block.attention.qkv)
model.head.requires_grad_(True)
model.cuda()
with torch.no_grad():
    print(model(torch.rand(64, 3, 384, 384).cuda()).shape)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
for step in range(4):
    images, labels = torch.rand(BATCH, 3, 384, 384).cuda(), torch.randint(10, (BATCH,)).cuda()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
