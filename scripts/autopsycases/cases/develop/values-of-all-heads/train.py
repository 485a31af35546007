"""Decodes with latent attention: the heads of all requests are projected with the same matrices."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
REQUESTS, HEADS, LATENT, VALUE, LAYERS = 8192, 32, 1024, 128, 6


class Values(nn.Module):
    """From latents of each head to its values: [requests, heads, latent] to [requests, heads * value]."""

    def __init__(self):
        super().__init__()
        weight = torch.empty(HEADS, LATENT, VALUE, dtype=torch.bfloat16)
        self.weight = nn.Parameter(nn.init.normal_(weight, std=0.02))
        self.out = nn.Linear(HEADS * VALUE, HEADS * LATENT // 8, bias=False, dtype=torch.bfloat16)

    def forward(self, latents):
        if FIXED:
            values = torch.einsum("rhl,hlv->rhv", latents, self.weight)
        else:
            values = torch.matmul(latents[:, :, None], self.weight[None])[:, :, 0]
        return self.out(values.flatten(1))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        width = HEADS * LATENT // 8
        self.latents = nn.ModuleList(
            nn.Linear(width, HEADS * LATENT, bias=False, dtype=torch.bfloat16) for _ in range(LAYERS)
        )
        self.values = nn.ModuleList(Values() for _ in range(LAYERS))

    def forward(self, x):
        for latents, values in zip(self.latents, self.values):
            x = x + values(latents(x).view(-1, HEADS, LATENT))
        return x


decoder = Decoder().cuda().eval()
with torch.inference_mode():
    x = torch.randn(REQUESTS, HEADS * LATENT // 8, dtype=torch.bfloat16, device="cuda")
    for token in range(4):
        x = decoder(x)
        print(token)
