"""Answers prompts with a language model; keys and values are cached for each answer."""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LAYERS = 1024, 16, 8

with torch.device("cuda"):
    tokens = nn.Embedding(32000, WIDTH)
    layers = [nn.ModuleList([nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)]) for _ in range(LAYERS)]
    head = nn.Linear(WIDTH, 32000)
with torch.no_grad():
    for prompt in range(4):
        x, cache = tokens(torch.randint(32000, (8, 64)).cuda()), [None] * LAYERS
        for position in range(24):
            for i, (qkv, out) in enumerate(layers):
                b, t, _ = x.shape
                q, k, v = (p.view(b, t, HEADS, -1).transpose(1, 2) for p in qkv(x).chunk(3, dim=-1))
                if cache[i] is not None:
                    k, v = torch.cat([cache[i][0], k], dim=2), torch.cat([cache[i][1], v], dim=2)
                cache[i] = k, v
                y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
                x = x + out(y.transpose(1, 2).reshape(b, t, WIDTH))
            x = tokens(head(x[:, -1:]).argmax(dim=-1))
