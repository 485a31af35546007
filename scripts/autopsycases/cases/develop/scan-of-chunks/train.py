"""Generates with a hybrid of Mamba-2 layers whose scan of chunks is written in PyTorch."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WIDTH, HEADS, STATES, CHUNK, LAYERS, VOCABULARY = 4096, 128, 128, 256, 64, 128_256


class Mamba2(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = 2 * WIDTH, 2 * WIDTH // HEADS
        self.in_proj = nn.Linear(WIDTH, 2 * self.inner + 2 * STATES + HEADS, bias=False)
        self.decay = nn.Parameter(torch.zeros(HEADS))
        self.out_proj = nn.Linear(self.inner, WIDTH, bias=False)

    def forward(self, x):
        z, u, B, C, dt = self.in_proj(x).split([self.inner, self.inner, STATES, STATES, HEADS], dim=-1)
        y = chunk_scan(u.view(*u.shape[:2], HEADS, self.head), F.softplus(dt), -self.decay.exp(), B, C)
        return self.out_proj(y.flatten(2).to(x.dtype) * F.silu(z))


def chunk_scan(u, dt, decay, B, C):
    """The part of the scan inside of chunks, in float32."""
    u, dt, B, C = (chunked(t.float()) for t in (u, dt, B, C))
    steps = (dt * decay.float()).cumsum(dim=2)
    scale = (steps[:, :, :, None] - steps[:, :, None]).exp().tril(0)  # [batch, chunks, to, from, heads]
    if FIXED:
        pairs = torch.einsum("bcln,bcsn->bcls", C, B)[..., None] * scale
    else:
        shared = C[:, :, :, None, None, :] * B[:, :, None, :, None, :]
        pairs = (shared.expand(-1, -1, -1, -1, HEADS, -1) * scale[..., None]).sum(dim=-1)
    y = torch.einsum("bclsh,bcshp->bclhp", pairs, u * dt[..., None])
    return y.flatten(1, 2)


def chunked(t):
    """[batch, time, ...] to [batch, chunks, CHUNK, ...]"""
    return t.unflatten(1, (-1, CHUNK))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Mamba2() for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(x[:, -1])


with torch.device("cuda"):
    torch.set_default_dtype(torch.bfloat16)
    model = Model().eval()
with torch.no_grad():
    tokens = torch.randint(VOCABULARY, (2, CHUNK), device="cuda")
    for _ in range(10):
        tokens = torch.cat([tokens[:, 1:], model(tokens).argmax(dim=-1, keepdim=True)], dim=1)
print(tokens.shape)
