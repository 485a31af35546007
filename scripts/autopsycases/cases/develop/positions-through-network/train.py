"""Generates audio codes with a transformer whose bias of positions is computed by a small network."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WIDTH, HEADS, LAYERS, CODES, COARSE, FINE = 512, 8, 6, 1024, 3, 5


class PositionBias(nn.Module):
    """A network from the distance in time and in quantizers to a bias for each head."""

    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, HEADS)
        )

    def forward(self, tokens, quantizers, device):
        place = torch.arange(tokens, device=device)
        time, layer = place // quantizers, place % quantizers
        if FIXED:  # each distance once, and then looked up
            most = tokens // quantizers + 1
            t = torch.arange(-most, most + 1, device=device, dtype=torch.float)
            q = torch.arange(-quantizers, quantizers + 1, device=device, dtype=torch.float)
            table = self.net(torch.cartesian_prod(t, q))
            index = (time[:, None] - time) * (2 * quantizers + 1) + layer[:, None] - layer
            return table[index + most * (2 * quantizers + 1) + quantizers].permute(2, 0, 1)
        distance = torch.stack((time[:, None] - time, layer[:, None] - layer), dim=-1)
        return self.net(distance.float()).permute(2, 0, 1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, bias):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class FineTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(CODES, WIDTH)
        self.bias = PositionBias()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CODES)

    def forward(self, ids):
        x = self.codes(ids)
        bias = self.bias(ids.shape[1], COARSE + FINE, ids.device)[None]
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(x[:, -1])


model = FineTransformer().cuda().eval()
with torch.no_grad():
    ids = torch.randint(CODES, (1, 900)).cuda()
    for _ in range(160):
        logits = model(ids)
        ids = torch.cat((ids, torch.multinomial(torch.ones_like(logits), 16)), dim=1)
        print("tokens", ids.shape[1])
