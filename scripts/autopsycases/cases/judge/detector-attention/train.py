"""Trains a detector's transformer, which discards the attention weights that it asks for."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class Layer(nn.Module):
    def __init__(self, width=256, heads=8):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, width))

    def forward(self, x):
        y, _ = self.self_attn(x, x, x, need_weights=not FIXED)
        x = self.norm1(x + y)
        return self.norm2(x + self.mlp(x))


stem = nn.Conv2d(3, 256, 16, 16).cuda()
layers = nn.Sequential(*(Layer() for _ in range(6))).cuda()
head = nn.Linear(256, 84).cuda()
parameters = [p for m in (stem, layers, head) for p in m.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-4)
for step in range(4):
    images = torch.rand(4, 3, 800, 800).cuda()
    loss = head(layers(stem(images).flatten(2).transpose(1, 2))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
