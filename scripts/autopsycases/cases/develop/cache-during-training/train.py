"""Trains a transformer for inference on rows of a table; its attention writes keys and values to a cache."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH, ROWS, COLUMNS, WIDTH, HEADS, KV_HEADS, LAYERS = 32, 256, 64, 1024, 16, 8, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = WIDTH // HEADS
        self.wq = nn.Linear(WIDTH, HEADS * self.head, bias=False)
        self.wk = nn.Linear(WIDTH, KV_HEADS * self.head, bias=False)
        self.wv = nn.Linear(WIDTH, KV_HEADS * self.head, bias=False)
        self.wo = nn.Linear(WIDTH, WIDTH, bias=False)
        if not FIXED:
            self.cache_k = torch.zeros(BATCH, ROWS, KV_HEADS, self.head, device="cuda")
            self.cache_v = torch.zeros(BATCH, ROWS, KV_HEADS, self.head, device="cuda")

    def forward(self, x, positions):
        batch, rows, _ = x.shape
        q = self.wq(x).view(batch, rows, HEADS, self.head)
        k = self.wk(x).view(batch, rows, KV_HEADS, self.head)
        v = self.wv(x).view(batch, rows, KV_HEADS, self.head)
        if not FIXED:
            places = (positions % ROWS)[None, :, None, None].repeat(batch, 1, KV_HEADS, self.head)
            self.cache_k[:batch].scatter_(dim=1, index=places, src=k)
            self.cache_v[:batch].scatter_(dim=1, index=places, src=v)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=2) for t in (k, v))
        out = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, rows, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 3 * WIDTH), nn.SiLU(), nn.Linear(3 * WIDTH, WIDTH))

    def forward(self, x, positions):
        x = x + self.attention(self.norm1(x), positions)
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(COLUMNS, WIDTH), nn.Linear(WIDTH, 1)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, table, positions):
        x = self.embed(table)
        for block in self.blocks:
            x = block(x, positions)
        return self.head(x)


model = Transformer().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(60):
    table = torch.randn(BATCH, ROWS, COLUMNS).cuda()
    target = torch.randn(BATCH, ROWS, 1).cuda()
    loss = F.mse_loss(model(table, torch.arange(ROWS, device="cuda")), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
