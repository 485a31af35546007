"""Reads long texts with a language model that returns the attention maps of all its layers."""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WIDTH, HEADS, LAYERS = 1024, 16, 24


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x, output_attentions):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, HEADS, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = None
        if output_attentions:
            weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS), dim=-1)
            y = weights @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, t, WIDTH)), weights


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm = SelfAttention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, output_attentions):
        y, weights = self.attention(self.norm(x), output_attentions)
        return x + y + self.mlp(x), weights


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(32000, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens, output_attentions=False):
        x, attentions = self.tokens(tokens), ()
        for layer in self.layers:
            x, weights = layer(x, output_attentions)
            if output_attentions:
                attentions += (weights,)
        return x, attentions


model = Model().cuda().half().eval()
for text in range(4):
    tokens = torch.randint(32000, (1, 1024 + 512 * text)).cuda()
    with torch.no_grad():
        states, attentions = model(tokens, output_attentions=not FIXED)
    print(states.shape, len(attentions))
