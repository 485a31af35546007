"""Loads a language model with a long context to look into its attention."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class Attention(nn.Module):
    def __init__(self, width, heads, n_ctx):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        if not FIXED:
            causal_mask = torch.tril(torch.ones((n_ctx, n_ctx)).bool())
            self.register_buffer("mask", causal_mask)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        if FIXED:
            mask = torch.tril(torch.ones((t, t), device=x.device).bool())
        else:
            mask = self.mask[:t, :t]
        scores = q @ k.transpose(-2, -1) / (w // self.heads) ** 0.5
        pattern = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return self.out((pattern @ v).transpose(1, 2).reshape(b, t, w))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads, n_ctx):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, n_ctx)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class HookedTransformer(nn.Module):
    def __init__(self, vocabulary=151936, width=2048, layers=24, heads=16, n_ctx=32768):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, n_ctx) for _ in range(layers)))
        self.unembed = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.unembed(self.blocks(self.embed(tokens)))


torch.set_default_dtype(torch.float16)
with torch.device("cuda"):
    model = HookedTransformer()
model.eval()
with torch.no_grad():
    for prompt in range(3):
        logits = model(torch.randint(151936, (1, 128)).cuda())
